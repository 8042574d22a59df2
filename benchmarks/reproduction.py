"""The runs, the table and the plot of docs/reproduction.md: mlp.yaml and variations of it.

    python3 benchmarks/reproduction.py --data-dir ~/data                    # everything
    python3 benchmarks/reproduction.py --data-dir ~/data as-is inv          # these alone
    python3 benchmarks/reproduction.py --data-dir ~/data --plot docs/compounding.png as-is inv

Each variation is `dnnstack train --config mlp.yaml` with the `--set` values listed here, once for
each seed, then `dnnstack eval` of both splits; printed are mean and sample deviation. Results are
kept in the work folder and not computed again. `--mismatch` reads the pictures of the test set in
another way than the trained network was, which `dnnstack eval` refuses to do on purpose.
"""

from __future__ import annotations

import argparse
import csv
import json
import subprocess
import sys
from pathlib import Path
from statistics import mean, stdev
from typing import Any

LR, DECAY, STEPS = 0.02, 0.00005, 1600

INV = "schedule={type: inv, gamma: 5e-5, power: 1}"
STANDARDISED = "data.normalize={mean: 0.1307, std: 0.3081}"
CENTRED = "data.normalize={mean: 0.5, std: 0.5}"


def normal(std: float) -> list[str]:
    """Both weight matrices from a normal distribution of this deviation."""
    kernel = f"kernel_initializer={{normal: {{std: {std}}}}}"
    return [f"layers.dense_1.{kernel}", f"layers.dense_2.{kernel}"]


def subset(count: int) -> list[str]:
    """Train on so many pictures: all others are held back, and looked at only at the end."""
    held_back = f"data.validation={60000 - count}"
    return [held_back, "train.validate_every_epochs=1600", "checkpoint.every_steps=1600"]


VARIATIONS: dict[str, list[str]] = {
    "as-is": [],
    "all-60000": ["data.validation=0"],
    "fixed-178-steps": ["schedule=fixed", "train.max_steps=178"],
    "inv": [INV],
    "momentum-0.9": ["optimizer.momentum=0.9"],
    "inv-momentum-0.9": [INV, "optimizer.momentum=0.9"],
    "summed": ["optimizer.lr=5.12"],
    "raw": ["data.normalize={std: 0.00392156862745098}"],
    "standardised": [STANDARDISED],
    "inv-standardised": [INV, STANDARDISED],
    "centred": [CENTRED],
    "inv-centred": [INV, CENTRED],
    "normal-0.01": normal(0.01),
    "normal-0.1": normal(0.1),
    "normal-1": normal(1),
    "inv-normal-1": [INV, *normal(1)],
    "strokes": ["data.dataset=strokes"],
    "inv-strokes": [INV, "data.dataset=strokes"],
    "subset-256": subset(256),
    "inv-subset-256": [INV, *subset(256)],
    "subset-400-normal-0.1": [*subset(400), *normal(0.1)],
    "subset-300": subset(300),
    "subset-500": subset(500),
    "subset-1000": subset(1000),
}

READINGS: dict[str, tuple[float, float]] = {
    "pixel / 255": (0.0, 1.0),
    "pixel": (0.0, 1 / 255),
    "(pixel / 255 - 0.1307) / 0.3081": (0.1307, 0.3081),
    "(pixel / 255 - 0.5) / 0.5": (0.5, 0.5),
}


def dnnstack(*arguments: str) -> str:
    """What the command prints; the exit status must be 0."""
    command = [sys.executable, "-m", "dnnstack.cli", *arguments]
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode:
        sys.exit(f"{' '.join(arguments)}\n{result.stderr}")
    return result.stdout


def run(name: str, seed: int, work: Path, common: list[str]) -> dict[str, Any]:
    """Accuracy on both splits in percent, after a training if there was none yet."""
    folder = f"{name}-{seed}"
    kept = work / f"{folder}.json"
    if not kept.exists():
        sets = [f"name={folder}", f"seed={seed}", "train.log_every=1", *VARIATIONS[name]]
        options = [part for text in sets for part in ("--set", text)]
        runs = ["--runs-dir", str(work)]
        dnnstack("train", "--config", "mlp.yaml", *runs, *common, *options)
        data = ["--data", "mnist"] if "strokes" in name else []
        result = {}
        for split, other in (("train", []), ("test", data)):
            chosen = ["--run", folder, "--split", split, "--json"]
            answer = json.loads(dnnstack("eval", *runs, *common, *chosen, *other))
            result[split] = 100 * answer["accuracy"]
            result["checkpoint"] = answer["checkpoint"]
        kept.write_text(json.dumps(result), "utf-8")
    return dict(json.loads(kept.read_text("utf-8")))


def figure(values: list[float]) -> str:
    return f"{mean(values):.2f} ± {stdev(values) if len(values) > 1 else 0:.2f}"


def test_pictures(data_dir: Path | None) -> tuple[Any, Any]:
    """The test set as float32 pixels 0 to 255, (10000, 784), and its labels."""
    import numpy as np
    from dnnstack.datasets import data_root, load

    images = load("mnist", "test", root=data_root(data_dir, None))
    return images.images.reshape(len(images), -1).astype(np.float32), images.labels


def right(checkpoint: str, pixels: Any, labels: Any, reading: str) -> Any:
    """For each picture, whether the network of the checkpoint answers right."""
    import numpy as np
    from safetensors.numpy import load_file

    p = load_file(checkpoint)
    centre, spread = READINGS[reading]
    x = (pixels / np.float32(255) - np.float32(centre)) / np.float32(spread)
    hidden = np.maximum(x @ p["dense_1.weight"].T + p["dense_1.bias"], 0)
    scores = hidden @ p["dense_2.weight"].T + p["dense_2.bias"]
    return scores.argmax(1) == labels


def training_log(run: Path) -> list[dict[str, float]]:
    """Step, loss and accuracy of every training step of a run."""
    with (run / "metrics.csv").open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["split"] == "train"]
    return [{key: float(row[key]) for key in ("step", "loss", "accuracy")} for row in rows]


def plot(work: Path, path: Path) -> None:
    """Rates of both schedules, loss and accuracy of their runs with seed 1."""
    import matplotlib as mpl
    import numpy as np

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    t = np.arange(STEPS)
    inv, compounding = LR / (1 + DECAY * t), LR * np.cumprod(1 / (1 + DECAY * t))
    drawing, (rates, losses, accuracies) = plt.subplots(1, 3, figsize=(13, 4))
    rates.semilogy(t, inv, label="inv: lr / (1 + decay t)")
    rates.semilogy(t, compounding, label="compounding")
    half = int(np.argmax(compounding <= LR / 2))
    rates.axvline(half, color="grey", linewidth=0.8, linestyle=":")
    rates.annotate(f"half at step {half}", (half + 30, 1e-25), color="grey")
    rates.set_title("learning rate")
    for name, label in (("inv", "inv"), ("as-is", "compounding")):
        rows = training_log(work / f"{name}-1")
        for axes, key, unit in ((losses, "loss", 1), (accuracies, "accuracy", 100)):
            values = unit * np.array([row[key] for row in rows]).reshape(-1, 20).mean(1)
            axes.plot(t[19::20] + 1, values, label=label)
    losses.set_title("training loss")
    losses.set_ylim(0, 2.4)
    accuracies.set_title("training accuracy in percent")
    accuracies.set_ylim(50, 100)
    for axes in (rates, losses, accuracies):
        axes.set_xlabel("step" if axes is rates else "step, mean of 20")
        axes.grid(alpha=0.3)
        axes.legend()
    drawing.tight_layout()
    drawing.savefig(path, dpi=100)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="VARIATION", help=", ".join(VARIATIONS))
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--work", type=Path, default=Path("runs/reproduction"))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--mismatch", action="store_true", help="read the test set in other ways")
    parser.add_argument("--batches", action="store_true", help="accuracy of parts and batches")
    parser.add_argument("--plot", type=Path, help="draw this picture from as-is and inv")
    options = parser.parse_args()
    if unknown := set(options.names) - set(VARIATIONS):
        parser.error(f"no such variation: {', '.join(sorted(unknown))}")
    common = ["--data-dir", str(options.data_dir)] if options.data_dir else []
    common += ["--threads", str(options.threads)] if options.threads else []
    options.work.mkdir(parents=True, exist_ok=True)
    pixels, labels = test_pictures(options.data_dir)
    print("| variation | training set | test set |\n| --- | --- | --- |")
    for name in options.names or VARIATIONS:
        results = [run(name, seed, options.work, common) for seed in range(1, options.seeds + 1)]
        train, test = ([result[split] for result in results] for split in ("train", "test"))
        print(f"| {name} | {figure(train)} | {figure(test)} |", flush=True)
        checkpoints = [result["checkpoint"] for result in results]
        for reading in READINGS if options.mismatch else ():
            answers = [right(file, pixels, labels, reading).mean() for file in checkpoints]
            print(f"| - tested on {reading} | | {figure([100 * a for a in answers])} |")
        if options.batches:
            answers = [right(file, pixels, labels, "pixel / 255") for file in checkpoints]
            for first in (256, 2560, 5000):
                parts = [100 * answer[:first].mean() for answer in answers]
                print(f"| - first {first} of the test set | | {figure(parts)} |")
            batches = [100 * answer[: 39 * 256].reshape(39, 256).mean(1) for answer in answers]
            low, high = mean(b.min() for b in batches), mean(b.max() for b in batches)
            print(f"| - worst and best test batch | | {low:.1f}, {high:.1f} |")
            runs = [options.work / f"{name}-{seed}" for seed in range(1, options.seeds + 1)]
            best = [max(row["accuracy"] for row in training_log(run)) for run in runs]
            print(f"| - best training batch | {figure([100 * x for x in best])} | |")
    if options.plot:
        plot(options.work, options.plot)


if __name__ == "__main__":
    main()

"""What configs reach: `dnnstack train`, then `dnnstack eval` of the last step, for several seeds.

    python3 benchmarks/results.py cifar10-quick.yaml mnist-best.yaml --seeds 5 --data-dir ~/data
    python3 benchmarks/results.py cifar10-resnet20.yaml --device cuda --set run.precision=bf16

Prints a line a seed, and a row of docs/results.md a config: mean and deviation of the accuracy on
the test set after the last step, and the median of the seconds of training. Nothing is chosen on
the test set.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import mean, median, stdev
from typing import Any

from processes import TOOL


def call(*words: str) -> str:
    """The standard output of a command of the tool; ends the benchmark with its message."""
    done = subprocess.run([*TOOL, *words], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"dnnstack {' '.join(words)}\n{done.stderr}")
    return done.stdout


def run(options: argparse.Namespace, config: str, seed: int, folder: str) -> dict[str, Any]:
    """Figures of one training with its evaluation."""
    where = ["--runs-dir", folder, "--device", options.device, "--quiet"]
    if options.threads is not None:
        where += ["--threads", str(options.threads)]
    if options.data_dir is not None:
        where += ["--data-dir", str(options.data_dir)]
    chosen = [word for change in options.overrides for word in ("--set", change)]
    call("train", "--config", config, "--set", f"seed={seed}", *chosen, *where)
    latest = (Path(folder) / "latest").resolve()
    end = json.loads((latest / "log.jsonl").read_text().splitlines()[-1])
    last = latest / "checkpoints" / f"step-{end['step']}.safetensors"
    result = json.loads(call("eval", "--checkpoint", str(last), "--json", "--no-plots", *where))
    keys = ("accuracy", "correct", "count", "loss")
    return {"config": config, "seed": seed, "seconds": end["training_seconds"]} | {
        key: result[key] for key in keys
    }


def row(config: str, found: list[dict[str, Any]], device: str) -> str:
    accuracies = [100 * each["accuracy"] for each in found]
    spread = f" +- {stdev(accuracies):.2f}" if len(found) > 1 else ""
    seconds = median(each["seconds"] for each in found)
    reached = f"{mean(accuracies):.2f}%{spread}"
    return f"| `{config}` | {reached} | {len(found)} | {device}, {seconds:.0f} s |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("configs", nargs="+")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--set", dest="overrides", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--data-dir", type=Path)
    options = parser.parse_args()
    rows = []
    for config in options.configs:
        found = []
        for seed in range(options.first, options.first + options.seeds):
            with tempfile.TemporaryDirectory() as folder:
                found.append(run(options, config, seed, folder))
            last = found[-1]
            print(
                f"{config} seed {seed}: {last['correct']} of {last['count']} right, "
                f"{last['accuracy']:.2%}, loss {last['loss']:.4f}, {last['seconds']:.1f} s",
                flush=True,
            )
        rows.append(row(config, found, options.device))
    print("\n" + "\n".join(rows))


if __name__ == "__main__":
    main()

"""Writes the folder of a released version beside this file: run by that version.

    python make_released.py FOLDER

Each run stops at step 12 of 20. ``expected.json`` says what the version makes of them: evaluations,
predictions, weights, a comparison, and the end of the training that is resumed, with a digest of
its bits. ``versions`` are those of the library and the machine that computed.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from ...support.stored import cases

STROKES = """
data:
  dataset: {strokes: {train_count: 120, test_count: 30}}
  batch_size: 12
  validation: 24
layers:
  - avg_pool2d: {pool_size: 4}
"""
LAST = "  - dense: {units: 10}\n  - softmax\n"
RUN = """
seed: 7
train: {max_steps: 12, log_every: 3, validate_every_epochs: 1}
checkpoint: {every_steps: 1000, best: false}
run: {dir: runs, device: numpy, threads: 1, tune: false}
"""
SGD = "optimizer: {type: sgd, lr: 0.05, momentum: 0.9, weight_decay: 0.01}\n"
CONFIGS = cases(__file__, "configs")
STAGES = """
name: small
stages:
  - prune: {keep: {dense_1.weight: 0.5}}
    train: {max_steps: 4}
  - share: {bits: {"dense_*.weight": 3}}
    train: {max_steps: 4}
"""
TIMED = ("seconds", "images_per_second", "time", "training_seconds")
ASKED = ("shapes/test/cross/0.png", "shapes/test/ring/0.png")


def draw_shapes(folder: Path) -> None:
    """Crosses, rings and bars of 8 x 8 pixels, in several greys and places."""
    for part, count in (("train", 8), ("test", 3)):
        for kind in ("bar", "cross", "ring"):
            (folder / part / kind).mkdir(parents=True)
            for number in range(count):
                pixels = np.zeros((8, 8), np.uint8)
                top, left = number % 3, number // 3 % 3
                at = pixels[top : top + 5, left : left + 5]
                if kind == "ring":
                    at[:] = 1
                    at[1:4, 1:4] = 0
                else:
                    at[2] = 1
                    at[:, 2] |= kind == "cross"
                pixels *= 255 - 20 * number - 3 * (part == "test")
                Image.fromarray(pixels).save(folder / part / kind / f"{number}.png")


def dnnstack(*words: str) -> str:
    command = [sys.executable, "-m", "dnnstack", *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def told(*words: str) -> Any:
    return json.loads(dnnstack(*words, "--json"))


def bits(run: Path) -> dict[str, Any]:
    """The arrays of a run's last checkpoint and its records, and a digest of both."""
    from safetensors.numpy import load_file

    step = max(int(path.stem.partition("-")[2]) for path in (run / "checkpoints").glob("*.json"))
    arrays = load_file(run / "checkpoints" / f"step-{step}.safetensors")
    lines = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    log = [
        {key: value for key, value in line.items() if key not in TIMED}
        for line in lines
        if line["event"] in ("train", "validation")
    ]
    digest = hashlib.sha256(json.dumps(log).encode())
    for name, array in sorted(arrays.items()):
        digest.update(name.encode() + array.tobytes())
    return {
        "step": step,
        "log": log,
        "csv": (run / "metrics.csv").read_text(),
        "sums": {name: float(np.abs(array).sum()) for name, array in sorted(arrays.items())},
        "digest": digest.hexdigest(),
    }


def answers(name: str) -> dict[str, Any]:
    """What the commands say of a run or a file."""
    where = ("--checkpoint", name) if name.endswith(".dnnz") else ("--run", name)
    machine = ("--device", "numpy", "--threads", "1")
    evaluated = told("eval", *where, *machine, "--no-plots")
    predicted = dnnstack("predict", *where, *machine, "--json", *ASKED).splitlines()
    return {
        "eval": {key: evaluated[key] for key in ("count", "correct", "loss", "confusion_matrix")},
        "predict": [
            {key: each[key] for key in ("label", "probability", "preprocessing")}
            for each in map(json.loads, predicted)
        ],
        "weights": told("weights", name)["arrays"],
    }


def main(target: Path) -> None:
    target.mkdir()
    os.environ["DNNSTACK_CACHE"] = str(target.parent / "cache")
    os.chdir(target)
    draw_shapes(target / "shapes")
    for name, text in CONFIGS.items():
        Path(f"{name}.yaml").write_text(f"name: {name}\n{text}{RUN}")
        dnnstack("train", "--config", f"{name}.yaml")
    Path("stages.yaml").write_text(STAGES)
    machine = ("--device", "numpy", "--threads", "1")
    dnnstack("compress", "mlp", "--config", "stages.yaml", *machine)
    shutil.move("runs/small/mlp.dnnz", "small.dnnz")
    shutil.rmtree("runs/small")
    expected: dict[str, Any] = {
        "version": dnnstack("--version").split()[-1],
        "answers": {each: answers(each) for each in (*CONFIGS, "small.dnnz")},
        "compare": told("compare", "mlp", "batch-norm", *machine),
        "resumed": {},
    }
    shutil.copytree("runs", "kept", symlinks=True)
    for name in CONFIGS:
        run = Path("runs", name)
        words = ("--set", "train.max_steps=20", "--resume", str(run))
        dnnstack("train", "--config", f"{name}.yaml", *words)
        expected["resumed"][name] = bits(run)
        from dnnstack.training.records.formats.store import newest_checkpoint

        found = newest_checkpoint(run / "checkpoints").provenance.versions
        expected["versions"] = dict(found)
    shutil.rmtree("runs")
    Path("kept").rename("runs")
    for path in (*Path().rglob("lock"), *Path().rglob("curves.png"), *Path().rglob("latest")):
        path.unlink()
    lines = ",\n".join(f"{json.dumps(key)}: {json.dumps(each)}" for key, each in expected.items())
    Path("expected.json").write_text(f"{{\n{lines}\n}}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())

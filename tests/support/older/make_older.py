"""Writes the runs beside this file: run by the version of commit 8798903, in an empty folder.

    python make_older.py FOLDER

Each run is broken off in the middle. ``expected.json`` says what that version makes of it: the
evaluation of its checkpoint, the end of the training that is resumed from it (``end.safetensors``)
and the records of all steps. ``configs/`` holds what ``dnnstack config`` prints.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
from dnnstack.configs import packaged_configs, parse_config
from dnnstack.layers.backends.base import Backend
from dnnstack.layers.backends.reference.kernels import KERNELS, Kernel
from dnnstack.layers.backends.select import open_backend
from dnnstack.layers.ops import Conv2dBackwardFilter
from dnnstack.training import pace
from dnnstack.training.checkpoint import read_checkpoint
from dnnstack.training.evaluate import evaluate, load_part
from dnnstack.training.listener import Silent, Summary
from dnnstack.training.resume import open_resume
from dnnstack.training.trained import Trained
from dnnstack.training.trainer import train

NOWHERE = Path("/unused")
STROKES = """
seed: 7
data:
  dataset: {strokes: {train_count: 120, test_count: 30}}
  batch_size: 12
  evaluation_batch_size: 8
  validation: 24
layers:
  - avg_pool2d: {pool_size: 4}
  - conv2d: {filters: 4, kernel_size: 3}
  - relu
  - max_pool2d
  - flatten
  - dense: {units: 10}
  - softmax
optimizer: {type: sgd, lr: 0.05}
train: {max_steps: 20, log_every: 3, validate_every_epochs: 1}
checkpoint: {every_steps: 1000, best: false}
run: {dir: runs, threads: 1, tune: false}
"""
TABLE = """
seed: 1
data:
  dataset:
    table:
      inputs: [[0, 0], [0, 1], [1, 0], [1, 1]]
      targets: [0, 1, 1, 0]
  batch_size: 4
  validation: 0
layers:
  - flatten
  - dense: {units: 4, kernel_initializer: {uniform: {limit: 1}}, name: hidden}
  - tanh
  - dense: {units: 2, name: output}
  - softmax
optimizer: {type: sgd, lr: 0.5, momentum: 0.9}
train: {max_steps: 40, log_every: 3, goal: {accuracy: 1, loss: 0.5}}
checkpoint: {every_steps: 1000, best: false}
run: {dir: runs, threads: 1, tune: false}
"""
# 8 steps are an epoch: 13 lies in the middle of the second, 16 at its end.
CASES: dict[str, tuple[str, str, int, tuple[str, ...]]] = {
    "momentum": (
        "numpy",
        STROKES,
        13,
        (
            "optimizer={type: sgd, lr: 0.05, momentum: 0.9, nesterov: true, weight_decay: 0.01, "
            "clip_norm: 0.5}",
            "schedule={type: cosine, warmup: {steps: 5}}",
            "checkpoint.best=true",
            "train.patience=3",
        ),
    ),
    "adam": (
        "numpy",
        STROKES,
        13,
        (
            "optimizer={type: adamw, lr: 0.01, weight_decay: 0.01, ema: {decay: 0.8}, "
            "lookahead: {every: 4}}",
            "train.goal={accuracy: 0.99}",
        ),
    ),
    "muon": (
        "numpy",
        STROKES,
        13,
        (
            "optimizer={type: muon, lr: 0.1, rescale: true, rest: {type: adam, lr: 0.01}, "
            "ema: {decay: 0.8}}",
        ),
    ),
    "statistics": (
        "numpy",
        STROKES,
        13,
        (
            "layers.2=batch_norm",
            "layers.3={residual: {body: [{conv2d: {filters: 6, kernel_size: 3, padding: 1}}, "
            "batch_norm, gelu, dropout], shortcut: padding}}",
            "layers.4={concat: {branches: [[max_pool2d, flatten], [global_avg_pool2d]]}}",
            "optimizer={type: sgd, lr: 0.01, momentum: 0.9, ema: {decay: 0.8}}",
            "data.normalize=measured",
        ),
    ),
    "groups": (
        "numpy",
        STROKES,
        13,
        (
            "optimizer={type: adam, lr: 0.01, clip_norm: 0.5, groups: ["
            "{parameters: conv2d_1.*, freeze_after_epoch: 1.2},"
            "{kind: bias, lr_factor: 2, freeze_until_epoch: 0.3, schedule: {type: poly}}]}",
        ),
    ),
    "parts": (
        "numpy",
        STROKES,
        16,
        (
            "optimizer={type: sgd, lr: 0.05, momentum: 0.9, clip_norm: 0.5, ema: {decay: 0.8}, "
            "groups: [{parameters: conv2d_1.weight, freeze_after_epoch: 1}]}",
            "train.accumulate=4",
            "data.augment=[random_crop: {padding: 3}, random_flip, rotate: {degrees: 10}, elastic]",
            "loss={type: cross_entropy, label_smoothing: 0.1}",
        ),
    ),
    "rollback": (
        "numpy",
        STROKES,
        13,
        (
            "optimizer={type: sgd, lr: 0.05, momentum: 0.9}",
            "train.on_nan=rollback",
            "checkpoint.every_steps=5",
        ),
    ),
    "table": ("numpy", TABLE, 13, ()),
    "cpu": (
        "cpu",
        STROKES,
        13,
        (
            "layers.2=batch_norm",
            "layers.3={sequential: {layers: [relu, max_pool2d]}}",
            "optimizer={type: sgd, lr: 0.05, momentum: 0.9, weight_decay: 0.01, clip_norm: 0.5, "
            "groups: [{kind: bias, lr_factor: 2}]}",
            "data.augment=[random_crop: {padding: 3}, random_flip]",
        ),
    ),
    "cpu-adam": (
        "cpu",
        STROKES,
        13,
        (
            "optimizer={type: adamw, lr: 0.01, weight_decay: 0.01, ema: {decay: 0.8}, "
            "lookahead: {every: 4}}",
            "train.accumulate=2",
        ),
    ),
}
TIMED = ("seconds", "images_per_second", "time", "training_seconds")


class Ear(Silent):
    """Asks for a stop at a step."""

    def __init__(self, stop_at: int) -> None:
        self.stop_at, self.step = stop_at, -1

    def progressed(self, progress: Any) -> None:
        self.step = progress.step

    def stop(self) -> bool:
        return self.step >= self.stop_at


def records(run: Path) -> dict[str, Any]:
    lines = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    kept = [{key: value for key, value in line.items() if key not in TIMED} for line in lines]
    return {
        "csv": (run / "metrics.csv").read_text(),
        "log": [line for line in kept if line["event"] not in ("start", "resume", "end")],
    }


def evaluated(path: Path, backend: Backend) -> dict[str, Any]:
    trained = Trained.of(read_checkpoint(path))
    found = {}
    for part in ("train", "validation", "test"):
        if part == "validation" and not trained.config.data.validation:
            continue
        images, index = load_part(trained, part, NOWHERE)
        one = evaluate(trained, backend, images, index, part)
        found[part] = {"loss": one.loss, "confusion": one.confusion.tolist()}
    return found


def spoil() -> Any:
    """The gradient of one step is not finite while the rate is the first one."""
    kernel, calls = KERNELS[Conv2dBackwardFilter], [0]

    def bad(op: Any, *arguments: Any) -> Any:
        calls[0] += 1
        result = kernel.compute(op, *arguments)
        if calls[0] != 8:
            return result
        spoiled = [np.full_like(each, np.nan) for each in result if each is not None]
        return (*spoiled, *result[len(spoiled) :])

    KERNELS[Conv2dBackwardFilter] = Kernel(bad, kernel.function)
    return kernel


def make(name: str, target: Path) -> None:
    device, text, stop_at, overrides = CASES[name]
    backend = open_backend(device, 1, print)
    config = parse_config(f"name: {name}\n{text}", f"{name}.yaml", overrides)
    ear = Ear(stop_at)
    kernel = spoil() if name == "rollback" else None
    half = train(config, backend, NOWHERE, listener=ear, stop_requested=ear.stop)
    if kernel is not None:
        KERNELS[Conv2dBackwardFilter] = kernel
    assert (half.state, half.step) == ("interrupted", stop_at), half
    kept = target / name
    shutil.copytree(half.run, kept)
    (kept / "lock").unlink(missing_ok=True)
    told: list[str] = []
    done: Summary = train(config, backend, NOWHERE, resume=open_resume(half.run, told.append))
    assert told == [], told
    assert half.checkpoint is not None
    assert done.checkpoint is not None
    shutil.copyfile(done.checkpoint, kept / "end.safetensors")
    expected = {
        "device": device,
        "versions": dict(backend.versions()),
        "evaluate": evaluated(kept / "checkpoints" / half.checkpoint.name, backend),
        "state": done.state,
        "step": done.step,
        "records": records(done.run),
    }
    lines = ",\n".join(f"{json.dumps(key)}: {json.dumps(expected[key])}" for key in expected)
    (kept / "expected.json").write_text(f"{{\n{lines}\n}}\n")


def make_configs(folder: Path) -> None:
    folder.mkdir()
    for name in packaged_configs():
        command = [sys.executable, "-m", "dnnstack.cli", "config", "--config", name]
        shown = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        # The first line names the file's place.
        (folder / name).write_text(shown.partition("\n")[2])


if __name__ == "__main__":
    os.environ["DNNSTACK_CACHE"] = str(Path("cache").resolve())
    pace.CHUNK_SECONDS = 0.0
    where = Path(sys.argv[1]).resolve()
    for case in CASES:
        make(case, where)
    make_configs(where / "configs")

"""Trainings that are broken off and go on, and how two ends are compared."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from dnnstack.backends.base import Backend
from dnnstack.configs import RunConfig
from dnnstack.training import pace
from dnnstack.training.listener import Listener, Progress, Started, Summary
from dnnstack.training.records.formats.checkpoint import Checkpoint
from dnnstack.training.records.formats.run_log import CSV, LOG
from dnnstack.training.records.resume import open_resume
from dnnstack.training.trainer import train

Make = Callable[..., RunConfig]
NOWHERE = Path("unused")
VALIDATED = ("train.validate_every_epochs=1", "checkpoint.best=true")


class Ear(Listener):
    """Hears everything and asks for a stop at a step."""

    def __init__(self, stop_at: int | None = None) -> None:
        self.stop_at = stop_at
        self.notices: list[str] = []
        self.step = -1

    def notice(self, text: str) -> None:
        self.notices.append(text)

    def started(self, started: Started) -> None:
        self.step = started.state.step

    def progressed(self, progress: Progress) -> None:
        self.step = progress.step

    def stop(self) -> bool:
        return self.stop_at is not None and self.step >= self.stop_at


@pytest.fixture(autouse=True)
def _one_step_a_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace, "CHUNK_SECONDS", 0.0)


@pytest.fixture(params=["reference", "onednn", pytest.param("cuda", marks=pytest.mark.cuda)])
def backend(request: pytest.FixtureRequest) -> Backend:
    found: Backend = request.getfixturevalue(request.param)
    return found


def go(config: RunConfig, backend: Backend, stop_at: int | None = None) -> Summary:
    ear = Ear(stop_at)
    return train(config, backend, NOWHERE, listener=ear, stop_requested=ear.stop)


def resume(config: RunConfig, backend: Backend, path: Path, stop_at: int | None = None) -> Summary:
    ear = Ear(stop_at)
    source = open_resume(path, ear.notice)
    result = train(config, backend, NOWHERE, resume=source, listener=ear, stop_requested=ear.stop)
    assert ear.notices == []
    return result


def records(run: Path) -> tuple[str, list[dict[str, object]]]:
    """metrics.csv, and log.jsonl without times and without what a resume adds."""
    timed = ("seconds", "images_per_second", "time")
    lines = [json.loads(line) for line in (run / LOG).read_text().splitlines()]
    kept = [
        {key: value for key, value in line.items() if key not in timed}
        for line in lines
        if line["event"] in ("train", "validation")
    ]
    return (run / CSV).read_text(), kept


def assert_equal(one: Checkpoint, other: Checkpoint) -> None:
    assert set(one.arrays) == set(other.arrays)
    for name, array in one.arrays.items():
        assert array.tobytes() == other.arrays[name].tobytes(), name
    assert one.state == other.state
    assert replace(one.provenance, config="") == replace(other.provenance, config="")


RULES = {
    "plain": (),
    "momentum": ("optimizer.momentum=0.9",),
    "balanced": ("data.balance=true", "loss={type: focal, class_weights: {'3': 2, '5': 0}}"),
    "weights": ("loss={type: cross_entropy, class_weights: balanced}", *VALIDATED),
    "everything": (
        "optimizer.momentum=0.9",
        "optimizer.nesterov=true",
        "optimizer.weight_decay=0.01",
        "optimizer.clip_norm=0.5",
        "schedule={type: cosine, warmup: {steps: 5}}",
        *VALIDATED,
    ),
    "adam": ("optimizer={type: adam, lr: 0.01, weight_decay: 0.01, clip_norm: 0.5}",),
    "adamw, averages": (
        "optimizer={type: adamw, lr: 0.01, ema: {decay: 0.8}, lookahead: {every: 4}}",
        *VALIDATED,
    ),
    "muon": (
        "optimizer={type: muon, lr: 0.1, rescale: true, rest: {type: adam, lr: 0.01}, "
        "ema: {decay: 0.8}}",
        *VALIDATED,
    ),
    # Both groups change in the middle of an epoch; 13 lies in the third phase.
    "groups": (
        "optimizer={type: adam, lr: 0.01, clip_norm: 0.5, groups: ["
        "{parameters: conv2d_1.*, freeze_after_epoch: 1.2},"
        "{kind: bias, lr_factor: 2, freeze_until_epoch: 0.3, schedule: {type: poly}}]}",
    ),
    "parts": (
        "optimizer={type: sgd, lr: 0.05, momentum: 0.9, clip_norm: 0.5, ema: {decay: 0.8}, "
        "groups: [{parameters: conv2d_1.weight, freeze_after_epoch: 1}]}",
        "train.accumulate=4",
        *VALIDATED,
    ),
    "composites": (
        "layers.1={residual: {body: [{conv2d: {filters: 8, kernel_size: 3, padding: 1}}, "
        "batch_norm, relu, dropout], shortcut: padding}}",
        "layers.2={concat: {branches: [[{conv2d: {filters: 3, kernel_size: 2, stride: 2}}], "
        "[max_pool2d, {residual: {body: [tanh]}}]]}}",
        "optimizer={type: sgd, lr: 0.01, momentum: 0.9}",
        *VALIDATED,
    ),
}

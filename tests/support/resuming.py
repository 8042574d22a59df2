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

from .stored import tuples

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


def go(
    config: RunConfig,
    backend: Backend,
    run: Path | None = None,
    ear: Ear | None = None,
    stop_at: int | None = None,
) -> Summary:
    """Train from the beginning, or go on with a run."""
    ear = ear or Ear(stop_at)
    source = open_resume(run, ear.notice) if run else None
    return train(config, backend, NOWHERE, resume=source, listener=ear, stop_requested=ear.stop)


def resume(config: RunConfig, backend: Backend, path: Path, stop_at: int | None = None) -> Summary:
    ear = Ear(stop_at)
    result = go(config, backend, path, ear)
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


RULES = tuples(__file__, "rules")

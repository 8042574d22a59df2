"""Running statistics and the masks of dropout through a training: kept, resumed, shown, used."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from dnnstack.backends.base import Backend
from dnnstack.configs import RunConfig, parse_config
from dnnstack.reports.summary import summarize
from dnnstack.reports.summary_text import as_text
from dnnstack.training import pace
from dnnstack.training.listener import Listener, Progress, Started, Summary
from dnnstack.training.records.formats.checkpoint import Checkpoint, read_checkpoint
from dnnstack.training.records.resume import open_resume
from dnnstack.training.trainer import train

from ..support.stored import beside

Make = Callable[..., RunConfig]
NOWHERE = Path("unused")
NORMED = beside(__file__, "pixel_statistics_normed.yaml")
STATISTICS = {f"batch_norm_{n}.{part}" for n in (1, 2) for part in ("running_mean", "running_var")}


class Ear(Listener):
    """Asks for a stop at a step."""

    def __init__(self, stop_at: int | None) -> None:
        self.stop_at = stop_at
        self.step = -1

    def started(self, started: Started) -> None:
        self.step = started.state.step

    def progressed(self, progress: Progress) -> None:
        self.step = progress.step

    def stop(self) -> bool:
        return self.stop_at is not None and self.step >= self.stop_at


@pytest.fixture(autouse=True)
def _one_step_a_chunk(monkeypatch):
    monkeypatch.setattr(pace, "CHUNK_SECONDS", 0.0)


@pytest.fixture
def normed(tmp_path):
    def make(*overrides: str) -> RunConfig:
        where = f"run.dir={tmp_path / 'runs'}"
        return parse_config(NORMED, "normed.yaml", [where, *overrides])

    return make


def go(
    config: RunConfig, backend: Backend, stop_at: int | None = None, path: Path | None = None
) -> Summary:
    ear = Ear(stop_at)
    source = open_resume(path, ear.notice) if path is not None else None
    return train(config, backend, NOWHERE, resume=source, listener=ear, stop_requested=ear.stop)


def end_of(summary: Summary) -> Checkpoint:
    assert summary.checkpoint is not None
    return read_checkpoint(summary.checkpoint)


@pytest.mark.parametrize("split", [1, 13])
def test_a_resume_changes_no_bit(normed, backend, split):
    whole = end_of(go(normed(), backend))
    half = go(normed(), backend, stop_at=split)
    assert half.step == split
    done = end_of(go(normed(), backend, path=half.run))
    assert set(whole.arrays) == set(done.arrays)
    assert set(whole.arrays) > STATISTICS
    for name, array in whole.arrays.items():
        assert array.tobytes() == done.arrays[name].tobytes(), name


def test_both_backends_train_alike(normed, reference, onednn):
    """The masks of dropout are the same ones, or no step would be like the other's."""
    ends = [end_of(go(normed("train.max_steps=3"), b)) for b in (reference, onednn)]
    for name, value in ends[0].arrays.items():
        np.testing.assert_allclose(ends[1].arrays[name], value, rtol=1e-3, atol=1e-4, err_msg=name)


def test_the_summary_counts_statistics_apart(normed):
    summary = summarize(normed(), Path("normed.yaml"))
    rows = {row.name: row for row in summary.rows}
    assert (rows["batch_norm_1"].parameters, rows["batch_norm_1"].statistics) == (8, 8)
    assert (rows["batch_norm_2"].parameters, rows["batch_norm_2"].statistics) == (12, 24)
    assert rows["dropout_1"].parameters == rows["lrn_1"].parameters == 0
    assert summary.statistics == 32
    assert summary.training.statistics == summary.evaluation.statistics == 4 * 32
    assert summary.training.optimizer == 4 * summary.parameters
    assert "32 running statistics" in as_text(summary)
    plain = summarize(normed("layers=[flatten, dense: {units: 10}]"), Path("plain.yaml"))
    assert "statistics" not in as_text(plain)

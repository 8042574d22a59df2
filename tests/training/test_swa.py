"""Equal averages of the weights, and the statistics of batch norm that are measured for them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from dnnstack.common.errors import ConfigError
from dnnstack.configs import RunConfig
from dnnstack.passes.average import swa_decays
from dnnstack.training import pace
from dnnstack.training.listener import Summary
from dnnstack.training.plan import make_plan
from dnnstack.training.records.formats.checkpoint import Checkpoint, read_checkpoint
from dnnstack.training.records.resume import open_resume
from dnnstack.training.session import Session
from dnnstack.training.trainer import train

from ..support.resuming import NOWHERE, Ear

Make = Callable[..., RunConfig]
LAYERS = "layers=[flatten, {dense: {units: 8}}, batch_norm, relu, {dense: {units: 10}}, softmax]"
SWA = "optimizer={type: sgd, lr: 0.1, momentum: 0.9, swa: {start_step: 10, every_steps: 6}}"
PLAIN = "optimizer={type: sgd, lr: 0.1, momentum: 0.9}"
STEPS = "train.max_steps=24"


def end_of(summary: Summary) -> Checkpoint:
    assert summary.checkpoint is not None
    return read_checkpoint(summary.checkpoint)


def test_which_steps_are_averaged():
    third, half = np.float32(2 / 3), 0.5
    assert swa_decays(3, 2, 8).tolist() == [0, 0, 0, -1, half, -1, third, -1]


def test_a_stop_changes_no_bit(tiny, backend, monkeypatch):
    """Stopped within the training, and while the statistics are measured at its end."""
    held = 0 if backend.name == "numpy" else 32
    given = (LAYERS, SWA, STEPS, f"data.validation={held}", "data.augment=[random_flip]")
    whole = end_of(train(tiny(*given, "name=whole"), backend, NOWHERE))
    measured, measure = [0], Session.renew_part

    def counted(session: Session, first: int, count: int) -> None:
        measured[0] += session.step == 24
        measure(session, first, count)

    monkeypatch.setattr(Session, "renew_part", counted)
    monkeypatch.setattr(pace, "CHUNK_SECONDS", 0.0)
    config, ear, states = tiny(*given), Ear(stop_at=13), []
    summary, resume = train(config, backend, NOWHERE, listener=ear, stop_requested=ear.stop), None
    for stop in (lambda: measured[0] == 2, lambda: False):
        states.append((summary.state, summary.step))
        resume = open_resume(summary.run, ear.notice)
        summary = train(config, backend, NOWHERE, resume=resume, stop_requested=stop)
    assert states == [("interrupted", 13), ("interrupted", 24)]
    found = end_of(summary)
    assert found.arrays.keys() == whole.arrays.keys()
    for name, array in whole.arrays.items():
        assert array.tobytes() == found.arrays[name].tobytes(), name


def test_a_start_that_is_never_reached(tiny):
    late = SWA.replace("start_step: 10", "start_epoch: 3")
    with pytest.raises(ConfigError, match=r"optimizer.swa: training ends after 25 steps, before "):
        make_plan(tiny(late), 200)
    with pytest.raises(ConfigError, match="give either ema or swa, not both"):
        tiny("optimizer={type: sgd, lr: 0.1, ema: {decay: 0.9}, swa: {start_step: 3}}")

"""Equal averages of the weights, and the statistics of batch norm that are measured for them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from dnnstack.common.errors import ConfigError
from dnnstack.configs import RunConfig
from dnnstack.datasets import epoch_order
from dnnstack.passes.average import swa_decays
from dnnstack.training import pace
from dnnstack.training.assemble import load_data
from dnnstack.training.inference.evaluate import evaluate, load_part
from dnnstack.training.inference.trained import Trained
from dnnstack.training.listener import Summary
from dnnstack.training.plan import make_plan
from dnnstack.training.records.formats.checkpoint import Checkpoint, read_checkpoint
from dnnstack.training.records.formats.store import tensors_path
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


def test_the_average_is_equal_and_its_statistics_are_measured(tiny, backend):
    """Against the checkpoints of a training without; step 22 follows the last other validation."""
    plain = tiny(LAYERS, PLAIN, STEPS, "checkpoint={every_steps: 2, keep: 9}")
    folder = train(plain, backend, NOWHERE).run / "checkpoints"
    steps = [read_checkpoint(tensors_path(folder, step)).arrays for step in (10, 16, 22)]
    config = tiny(LAYERS, SWA, STEPS, "name=averaged")
    summary = train(config, backend, NOWHERE)
    found = end_of(summary)
    names = [name for name in steps[0] if "/" not in name and "running" not in name]
    mean = {name: np.mean([arrays[name] for arrays in steps], 0) for name in names}
    last = read_checkpoint(tensors_path(folder, 24)).arrays
    for name in names:
        np.testing.assert_allclose(found.arrays[f"swa/{name}"], mean[name], rtol=1e-5, atol=1e-7)
        np.testing.assert_array_equal(found.arrays[name], last[name])

    data, plan = load_data(config, "train", NOWHERE), make_plan(config, 200)
    order = epoch_order(plan.train, config.seed, 0, 16)
    x = data.images[order].reshape(len(order), -1) / 255.0
    batches = (x @ mean["dense_1.weight"].T + mean["dense_1.bias"]).reshape(-1, 16, 8)
    for name, want in (("mean", batches.mean((0, 1))), ("var", batches.var(1, ddof=1).mean(0))):
        measured = found.arrays[f"swa/batch_norm_1.running_{name}"]
        np.testing.assert_allclose(measured, want, rtol=1e-4, atol=1e-6)
    trained = Trained.of(found)
    again = evaluate(trained, backend, *load_part(trained, "validation", NOWHERE), "validation")
    assert summary.validation is not None
    assert again.correct == summary.validation.correct
    np.testing.assert_allclose(again.loss, summary.validation.loss, rtol=1e-5)


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


def test_what_ends_early_without_validation_is_measured_too(tiny, reference):
    goal = "train={max_steps: 30, log_every: 12, goal: {accuracy: 0.0}}"
    config = tiny(LAYERS, SWA.replace("10", "11"), goal, "data.validation=0")
    found = end_of(train(config, reference, NOWHERE))
    assert found.state.step == 12
    assert not found.state.validation_due
    name = "batch_norm_1.running_mean"
    assert abs(found.arrays[f"swa/{name}"] - found.arrays[name]).max() > 1e-3


def test_a_start_that_is_never_reached(tiny):
    late = SWA.replace("start_step: 10", "start_epoch: 3")
    with pytest.raises(ConfigError, match=r"optimizer.swa: training ends after 25 steps, before "):
        make_plan(tiny(late), 200)
    with pytest.raises(ConfigError, match="give either ema or swa, not both"):
        tiny("optimizer={type: sgd, lr: 0.1, ema: {decay: 0.9}, swa: {start_step: 3}}")

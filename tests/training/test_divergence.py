"""Values that are not finite: found, named, never saved; rolled back where that is asked for."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dnnstack.backends.reference.executable import ReferenceExecutable
from dnnstack.backends.reference.kernels import KERNELS, Kernel
from dnnstack.common.errors import NonFiniteError
from dnnstack.configs import RunConfig
from dnnstack.graph.ops import Conv2dBackwardFilter, MatMul
from dnnstack.training import divergence
from dnnstack.training.listener import Listener, Progress, Summary
from dnnstack.training.records.formats.state import Best, Metrics
from dnnstack.training.records.formats.store import checkpoint_steps, newest_checkpoint
from dnnstack.training.records.resume import open_resume
from dnnstack.training.session import Session
from dnnstack.training.trainer import train

from ..support.resuming import Ear

Make = Callable[..., RunConfig]
NOWHERE = Path("unused")
ROLLBACK = (
    "train.on_nan=rollback",
    "checkpoint={every_steps: 6, keep: 9, best: false}",
    "train.log_every=4",
)


def log_of(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]


def folder_of(config: RunConfig) -> Path:
    return Path(config.run.dir) / "tiny" / "checkpoints"


@pytest.fixture
def spoil(monkeypatch):
    """Make an operation of the reference give one bad value in its result at a step."""

    def call(
        kind: Any,
        value: float,
        step: int,
        layer: str,
        rate_above: float = 0.0,
        inside: str = "train",
    ) -> None:
        kernel = KERNELS[kind]
        now: dict[str, Any] = {}
        run = ReferenceExecutable._compute

        def compute(self: ReferenceExecutable, op: Any) -> None:
            section = next(name for name, graph in self.graphs.items() if op in graph.ops)
            graph = self.graphs[section]
            now["step"] = int(self._value(graph["step"])[0])
            now["section"] = section
            if "rates" in graph.results:
                now["rate"] = float(self._value(graph["rates"])[min(now["step"], 24)])
            run(self, op)

        def bad(op: Any, *arguments: Any) -> Any:
            result = kernel.compute(op, *arguments)
            due = now["section"] == inside and now["step"] == step and now["rate"] > rate_above
            if not due or op.origin[0].layer != layer:
                return result
            many = isinstance(result, tuple)
            result = result if many else (result,)
            first = np.array(result[0])
            first.reshape(-1)[0] = value
            result = (first, *result[1:])
            return result if many else result[0]

        monkeypatch.setattr(ReferenceExecutable, "_compute", compute)
        monkeypatch.setitem(KERNELS, kind, Kernel(bad, kernel.function))

    return call


@pytest.fixture(params=[True, False], ids=["looks at every chunk", "looks only where it must"])
def looks(request, monkeypatch):
    monkeypatch.setattr(divergence, "_SHARE", 1e9 if request.param else 1e-9)
    return


@pytest.mark.parametrize(("value", "step"), [(np.nan, 14), (np.inf, 14), (np.nan, 12)])
@pytest.mark.usefixtures("looks")
def test_a_bad_gradient_is_named_and_never_saved(tiny, reference, spoil, value, step):
    # Step 12 is saved at once; its loss knows nothing of the gradient.
    spoil(Conv2dBackwardFilter, value, step - 1, "conv2d_1")
    config = tiny("checkpoint={every_steps: 6, keep: 9, best: false}", "train.log_every=9")
    ear = Ear()
    with pytest.raises(NonFiniteError) as caught:
        train(config, reference, NOWHERE, listener=ear)
    text = str(caught.value)
    kind = "nan" if np.isnan(value) else "inf"
    assert text.startswith(
        f"step {step}: Conv2dBackwardFilter of layer 'conv2d_1' (backward) gave the first values "
        f"that are not finite: 1 {kind} of 100 in 'conv2d_1.weight.grad' (4, 1, 5, 5)\n"
    )
    assert "the last good checkpoint is" in text
    saved = [12, 6] if step == 14 else [6]
    assert f"step-{saved[0]}.safetensors" in text
    assert "looking for the first bad value" in ear.notices[-1]
    assert checkpoint_steps(folder_of(config)) == saved
    for array in newest_checkpoint(folder_of(config)).arrays.values():
        assert np.isfinite(array).all()
    end = log_of(folder_of(config).parent)[-1]
    assert (end["event"], end["state"]) == ("end", "failed")


@pytest.mark.usefixtures("looks")
def test_a_bad_value_of_the_forward_pass(tiny, reference, spoil):
    spoil(MatMul, np.inf, 3, "dense_1")
    with pytest.raises(NonFiniteError) as caught:
        train(tiny(), reference, NOWHERE)
    text = str(caught.value)
    assert text.startswith("step 4: MatMul of layer 'dense_1' (forward)")
    assert "1 inf of 160 in 'dense_1.product' (16, 10)" in text
    assert "no checkpoint was saved yet" in text
    assert "and start again; train.on_nan: rollback" in text


@pytest.mark.parametrize("on_nan", ["stop", "rollback"])
def test_a_stop_at_the_bad_step(tiny, reference, spoil, monkeypatch, on_nan):
    """Nobody has looked at the parameters yet when a signal wants them saved."""
    monkeypatch.setattr(divergence, "_SHARE", 1e-9)
    monkeypatch.setattr("dnnstack.training.pace.CHUNK_SECONDS", 0.0)
    spoil(Conv2dBackwardFilter, np.nan, 8, "conv2d_1", rate_above=0.03)
    seen: list[int] = []

    class Steps(Listener):
        def progressed(self, progress: Progress) -> None:
            seen.append(progress.step)

    config = tiny(*ROLLBACK, f"train.on_nan={on_nan}")

    def go() -> Summary:
        return train(config, reference, NOWHERE, listener=Steps(), stop_requested=lambda: 9 in seen)

    if on_nan == "stop":
        with pytest.raises(NonFiniteError, match="step 9: Conv2dBackwardFilter of layer"):
            go()
    else:
        done = go()
        assert (done.state, done.step) == ("interrupted", 6)
    newest = newest_checkpoint(folder_of(config))
    assert (newest.state.step, newest.state.rollbacks) == (6, int(on_nan == "rollback"))


def test_a_validation_alone_can_diverge(tiny, reference, spoil):
    # Step 2 of the section that evaluates is its third batch of 12.
    spoil(MatMul, np.nan, 2, "dense_1", inside="evaluate")
    config = tiny("checkpoint.every_steps=5")
    with pytest.raises(NonFiniteError) as caught:
        train(config, reference, NOWHERE)
    wanted = "step 10, batch 3 of the validation: MatMul of layer 'dense_1' (forward)"
    assert str(caught.value).startswith(wanted)
    assert checkpoint_steps(folder_of(config)) == [5]


def test_every_backend_names_the_layer(tiny, backend):
    config = tiny("optimizer.lr=1e30")
    with pytest.raises(NonFiniteError) as caught:
        train(config, backend, NOWHERE)
    assert str(caught.value).startswith(
        "step 2: MatMul of layer 'dense_1' (forward) gave the first"
    )
    assert "lower optimizer.lr (the rate was 1e+30 here)" in str(caught.value)
    assert checkpoint_steps(folder_of(config)) == []


def test_an_update_that_overflows(tiny, reference):
    """The loss of the step is still that of the fresh network; the weights are not finite."""
    config = tiny("optimizer.lr=1e38", "optimizer.weight_decay=1e38", "checkpoint.every_steps=1")
    with pytest.raises(NonFiniteError, match=r"step 1: SgdUpdate of layer 'conv2d_1' \(update\)"):
        train(config, reference, NOWHERE)
    assert checkpoint_steps(folder_of(config)) == []


def test_where_the_reference_stays_finite_the_device_itself_is_asked(tiny, onednn, monkeypatch):
    """A value that only the device computes so: here because the repetition is kept from it."""
    real = Session.repeat

    def harmless(self: Session, backend: Any, section: Any, at: Any, batch: int = 0) -> Any:
        for array in at.arrays.values():
            array[...] = 0.01
        return real(self, backend, section, at, batch)

    monkeypatch.setattr(Session, "repeat", harmless)
    with pytest.raises(NonFiniteError, match=r"step 2: \w+ of .* gave the first values"):
        train(tiny("optimizer.lr=1e25"), onednn, NOWHERE)


def test_what_does_not_come_again_is_reported_all_the_same(tiny, reference, monkeypatch):
    monkeypatch.setattr(divergence.Watch, "find", lambda self, stop: None)
    with pytest.raises(NonFiniteError, match=r"between step . and .: loss or parameters are not"):
        train(tiny("optimizer.lr=1e30"), reference, NOWHERE)


@pytest.mark.filterwarnings("ignore:overflow encountered in cast")
def test_a_bad_start(tiny, reference):
    layers = "layers=[flatten, {dense: {units: 10, kernel_initializer: {normal: {std: 1e38}}}}]"
    with pytest.raises(
        NonFiniteError, match=r"'dense_1\.weight' .* initialiser of layer 'dense_1'"
    ):
        train(tiny(layers), reference, NOWHERE)


@pytest.mark.usefixtures("looks")
def test_a_rollback_halves_the_rate_from_the_last_checkpoint_on(tiny, reference, spoil):
    spoil(Conv2dBackwardFilter, np.nan, 13, "conv2d_1", rate_above=0.03)
    config = tiny(*ROLLBACK, "optimizer.momentum=0.9")
    ear = Ear()
    done = train(config, reference, NOWHERE, listener=ear)
    assert (done.state, done.step) == ("finished", 25)
    assert (
        "going back to step 12 with 0.5 times the learning rate (rollback 1 of 3)"
        in (ear.notices[-1])
    )
    entries = log_of(done.run)
    steps = [entry["step"] for entry in entries if entry["event"] == "train"]
    assert steps == [4, 8, 12, 16, 20, 24, 25]
    rates = [entry["learning_rate"] for entry in entries if entry["event"] == "train"]
    np.testing.assert_allclose(rates, [0.05] * 3 + [0.025] * 4)
    (rolled,) = [entry for entry in entries if entry["event"] == "rollback"]
    assert (rolled["step"], rolled["bad_step"], rolled["rate_factor"]) == (12, 14, 0.5)
    assert (rolled["rollback"], rolled["tensor"]) == (1, "conv2d_1.weight.grad")
    states = {}
    for step in checkpoint_steps(done.run / "checkpoints"):
        path = done.run / "checkpoints" / f"step-{step}.safetensors"
        states[step] = divergence_state(path)
    assert states == {6: (1.0, 0), 12: (0.5, 1), 18: (0.5, 1), 24: (0.5, 1), 25: (0.5, 1)}


def divergence_state(path: Path) -> tuple[float, int]:
    from dnnstack.training.records.formats.checkpoint import read_checkpoint

    state = read_checkpoint(path).state
    return state.rate_factor, state.rollbacks


def test_a_resume_goes_on_with_the_lower_rate(tiny, reference, spoil):
    spoil(Conv2dBackwardFilter, np.nan, 13, "conv2d_1", rate_above=0.03)
    whole = train(tiny(*ROLLBACK), reference, NOWHERE)
    half = train(tiny(*ROLLBACK, "train.max_steps=19"), reference, NOWHERE)
    source = open_resume(half.run, print)
    done = train(tiny(*ROLLBACK), reference, NOWHERE, resume=source)
    one, two = (newest_checkpoint(run / "checkpoints") for run in (whole.run, done.run))
    assert {n: a.tobytes() for n, a in one.arrays.items()} == {
        n: a.tobytes() for n, a in two.arrays.items()
    }
    assert two.state.rate_factor == 0.5
    plain = train(tiny("optimizer.lr=0.025"), reference, NOWHERE)
    other = newest_checkpoint(plain.run / "checkpoints").arrays["dense_1.weight"]
    assert other.tobytes() != one.arrays["dense_1.weight"].tobytes()


def test_a_plateau_counts_once_though_it_is_seen_again(tiny, reference, spoil):
    """Step 23 goes back to 18, before the fall at the validation of step 20."""
    spoil(Conv2dBackwardFilter, np.nan, 23, "conv2d_1", rate_above=0.02)
    lower = "train.reduce_on_plateau={patience: 1, threshold: 0.99, factor: 0.5}"
    done = train(tiny(*ROLLBACK, lower), reference, NOWHERE)
    logged = [entry for entry in log_of(done.run) if entry["event"] == "train"]
    rates = {entry["step"]: entry["learning_rate"] for entry in logged}
    np.testing.assert_allclose([rates[step] for step in (16, 20, 24)], [0.05, 0.025, 0.0125])
    state = newest_checkpoint(done.run / "checkpoints").state
    assert (state.rate_factor, state.factor) == (0.5, 0.125)


def test_without_a_checkpoint_it_goes_back_to_the_start(tiny, reference, spoil):
    spoil(Conv2dBackwardFilter, np.nan, 3, "conv2d_1", rate_above=0.03)
    done = train(tiny(*ROLLBACK), reference, NOWHERE)
    plain = train(tiny("optimizer.lr=0.025"), reference, NOWHERE)
    one, two = (newest_checkpoint(run / "checkpoints") for run in (done.run, plain.run))
    for name, array in one.arrays.items():
        assert array.tobytes() == two.arrays[name].tobytes()
    assert (done.run / "metrics.csv").read_text() == (plain.run / "metrics.csv").read_text()


def test_three_rollbacks_are_enough(tiny, reference, spoil):
    spoil(Conv2dBackwardFilter, np.nan, 13, "conv2d_1")
    config = tiny(*ROLLBACK)
    with pytest.raises(NonFiniteError, match=r"gave up after 3 rollbacks; lower optimizer\.lr"):
        train(config, reference, NOWHERE)
    run = folder_of(config).parent

    def factors() -> list[float]:
        return [e["rate_factor"] for e in log_of(run) if e["event"] == "rollback"]

    assert factors() == [0.5, 0.25, 0.125]
    # A resume does not begin to count anew.
    source = open_resume(run, print)
    with pytest.raises(NonFiniteError, match="gave up after 3 rollbacks"):
        train(config, reference, NOWHERE, resume=source)
    assert factors() == [0.5, 0.25, 0.125]


def test_momentum_and_best_go_back_too(tiny, reference, spoil):
    """After the rollback all is as in a training that was resumed there with half the rate."""
    more = (*ROLLBACK, "optimizer.momentum=0.9")
    spoil(Conv2dBackwardFilter, np.nan, 10, "conv2d_1", rate_above=0.03)
    ear = Ear()
    rolled = train(tiny(*more), reference, NOWHERE, listener=ear)
    assert "going back to step 6" in ear.notices[-1]
    half = tiny(*more, "optimizer.lr=0.025")
    steps: list[int] = []

    class Stop(Listener):
        def saving(self, step: int, path: Path) -> None:
            steps.append(step)

    begun = train(
        tiny(*more), reference, NOWHERE, listener=Stop(), stop_requested=lambda: steps == [6]
    )
    assert begun.step == 6
    done = train(half, reference, NOWHERE, resume=open_resume(begun.run, print))
    one, two = (newest_checkpoint(run / "checkpoints") for run in (rolled.run, done.run))
    for name, array in one.arrays.items():
        assert array.tobytes() == two.arrays[name].tobytes(), name
    assert one.state.best == two.state.best


@pytest.mark.parametrize("on_nan", ["stop", "rollback"])
def test_the_best_that_is_held_is_the_last_good_one(tiny, reference, spoil, monkeypatch, on_nan):
    """It is written before a rollback goes there, or before training ends with an error."""
    spoil(Conv2dBackwardFilter, np.nan, 16, "conv2d_1", rate_above=0.03)
    right = iter([8, 16, 8])
    monkeypatch.setattr(Session, "validate", lambda *_: Metrics(1.0, next(right), 32))
    saving = "checkpoint={every_epochs: 9, keep: 1, best: true}"
    config, ear = tiny(*ROLLBACK, saving, f"train.on_nan={on_nan}"), Ear()
    if on_nan == "stop":
        with pytest.raises(NonFiniteError, match=r"checkpoint is \S+/step-10.safetensors"):
            train(config, reference, NOWHERE, listener=ear)
    else:
        done = train(config, reference, NOWHERE, listener=ear)
        assert "going back to step 10" in ear.notices[-1]
        assert done.best == Best(20, 0.5, 1.0)
    assert checkpoint_steps(folder_of(config)) == ([10] if on_nan == "stop" else [25, 20])


def test_the_best_of_a_given_up_attempt_is_forgotten(tiny, reference, spoil, monkeypatch):
    def validate(self: Session, stop_requested: Any) -> Metrics:
        return Metrics(1.0, 31 if self.rates[0] > 0.03 else 7, 32)

    monkeypatch.setattr(Session, "validate", validate)
    spoil(Conv2dBackwardFilter, np.nan, 10, "conv2d_1", rate_above=0.03)
    done = train(tiny(*ROLLBACK), reference, NOWHERE)
    assert done.best == Best(10, 7 / 32, 1.0)
    assert newest_checkpoint(done.run / "checkpoints").state.unimproved == 2

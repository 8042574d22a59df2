"""Every layer and every loss that a config can name: resumed to the bit, fused or not the same."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest
from dnnstack.backends.base import Backend
from dnnstack.configs import RunConfig
from dnnstack.layers.build import LAYERS
from dnnstack.layers.losses import LOSSES
from dnnstack.optimizers import RULES
from dnnstack.training.records.formats.state import Snapshot

from ..support.declared import least_options
from ..support.stored import beside, cases
from ..support.trainings import session_of

Make = Callable[..., RunConfig]

# On 28x28 pixels. Nothing here makes a value that is hard to tell from 0, but for dropout.
LAYERS_BEFORE = "\n" + beside(__file__, "every_kind_layers_before.yaml")
ENDS = {
    "scores": "[flatten, {dense: {units: 10}}]",
    "means": "[{concat: {branches: [[global_avg_pool1d], [global_avg_pool2d]]}}, "
    "{dense: {units: 10}}, softmax]",
    "rbf": "[flatten, {dense: {units: 84}}, scaled_tanh, rbf]",
    "units": "[flatten, {dense: {units: 10}}, heaviside]",
}
# Of a loss the end of the network, and the options beside the type.
_TRAINED = cases(__file__, "trained")
# One that needs a teacher has tests of its own.
_ALONE = [loss for loss in LOSSES if loss != "distill"]
TRAINED = {loss: _TRAINED.get(loss, ("scores", "reduction: mean")) for loss in _ALONE}


def layers(loss: str) -> str:
    """What is before the end, in one line; the perceptron has one layer of weights alone."""
    import yaml

    before = [] if loss == "perceptron" else [*yaml.safe_load(LAYERS_BEFORE), *further()]
    return str([*before, *yaml.safe_load(ENDS[TRAINED[loss][0]])]).replace("'", "")


def further() -> list[Any]:
    """The layers that are not named here, with the options that they need."""
    named = f"{LAYERS_BEFORE}{ENDS}"
    missing = [kind for kind in LAYERS if not re.search(rf"\b{kind}\b", named)]
    return [{kind: least_options(LAYERS[kind])} for kind in missing]


def config_of(tiny: Make, loss: str, *overrides: str) -> RunConfig:
    return tiny(
        f"layers={layers(loss)}".replace("True", "true"),
        f"loss={{type: {loss}, {TRAINED[loss][1]}}}",
        "optimizer={type: sgd, lr: 0.002, momentum: 0.9, weight_decay: 0.01}",
        "run.tune=false",
        *overrides,
    )


def kinds(models: Iterable[Any]) -> set[str]:
    """The types of layers, however deep."""
    found: set[str] = set()
    for model in models:
        if isinstance(model, tuple):
            found |= kinds(model)
        elif not isinstance(model, str):
            inner = (getattr(model, key, ()) for key in ("layers", "body", "shortcut", "branches"))
            found |= {model.type} | set().union(*map(kinds, inner))
    return found


def test_nothing_is_left_out(tiny):
    assert set().union(*(kinds(config_of(tiny, loss).layers) for loss in TRAINED)) == set(LAYERS)


@pytest.mark.parametrize("loss", TRAINED)
def test_a_resume_changes_no_bit(tiny, backend, loss):
    want, got, kept = resumed(config_of(tiny, loss), backend)
    assert ("batch_norm_1.running_var" in want.arrays) == (loss != "perceptron")
    for name, array in want.arrays.items():
        assert name.startswith("momentum/") or (array != kept.arrays[name]).any(), name


@pytest.mark.parametrize("rule", RULES)
def test_a_resume_changes_no_bit_of_any_optimizer(tiny, backend, rule):
    want, _, kept = resumed(config_with(tiny, rule), backend)
    for name, array in want.arrays.items():
        assert (array != kept.arrays[name]).any(), name


@pytest.mark.parametrize("rule", RULES)
def test_every_optimizer_does_the_same_on_both_backends(tiny, reference, onednn, rule):
    config = config_with(tiny, rule)
    ends = []
    for backend in (reference, onednn):
        session = session_of(config, backend)
        session.run(3)
        ends.append(session.arrays())
        session.close()
    for name, array in ends[0].items():
        size = max(np.abs(array).max(), 1e-3)
        np.testing.assert_allclose(ends[1][name], array, rtol=0, atol=2e-3 * size, err_msg=name)


def config_with(tiny: Make, rule: str) -> RunConfig:
    """A net with weights of every kind under this optimizer."""
    rest = ", rest: {type: sgd, lr: 0.01}" if rule == "muon" else ""
    # A bias before a normalisation has no gradient but roundings, which Adam makes large.
    convolution = "{conv2d: {filters: 4, kernel_size: 5, stride: 2, use_bias: false}}"
    net = f"[{convolution}, batch_norm, tanh, flatten, "
    return tiny(
        f"layers={net}{{dense: {{units: 10}}}}]",
        f"optimizer={{type: {rule}, lr: 0.01, weight_decay: 0.01{rest}}}",
        "run.tune=false",
    )


def resumed(config: RunConfig, backend: Backend) -> tuple[Snapshot, Snapshot, Snapshot]:
    """What 7 steps end with, equal to the bit to 3 and 4 with a resume between; and what 3 give."""
    whole = session_of(config, backend)
    whole.run(7)
    half = session_of(config, backend)
    half.run(3)
    kept = half.snapshot()
    half.close()
    again = session_of(config, backend)
    again.put(kept)
    again.run(4)
    want, got = whole.snapshot(), again.snapshot()
    whole.close()
    again.close()
    assert want.sums.tobytes() == got.sums.tobytes()
    for name, array in want.arrays.items():
        assert array.tobytes() == got.arrays[name].tobytes(), name
        assert np.isfinite(array).all(), name
    return want, got, kept


@pytest.mark.parametrize("loss", TRAINED)
def test_fused_or_not_it_learns_the_same(tiny, backend, loss):
    ends = []
    for fusion in ("true", "false"):
        session = session_of(config_of(tiny, loss, f"run.fusion={fusion}"), backend)
        session.run(3)
        ends.append(session.snapshot())
        session.close()
    fused, plain = ends
    np.testing.assert_allclose(fused.sums, plain.sums, rtol=1e-4)
    for name, array in fused.arrays.items():
        size = max(np.abs(array).max(), 1e-3)
        np.testing.assert_allclose(
            plain.arrays[name], array, rtol=0, atol=1e-3 * size, err_msg=name
        )


def test_fused_or_not_scores_far_apart_cost_and_teach_the_same(tiny, backend):
    """The loss is the logarithm of probabilities that no float holds, and its gradient stays."""
    ends = []
    for fusion in ("true", "false"):
        apart = "[flatten, {dense: {units: 10}}, {scale: {factor: 3000}}, softmax]"
        options = (f"run.fusion={fusion}", "optimizer={type: sgd, lr: 1e-7}")
        session = session_of(tiny(f"layers={apart}", *options), backend)
        before = session.snapshot().arrays["dense_1.weight"]
        session.run(3)
        ends.append((session.sums(), session.snapshot().arrays["dense_1.weight"] - before))
        session.close()
    (fused, learned), (plain, learned_plain) = ends
    assert fused[0] > 500 * fused[2]
    np.testing.assert_allclose(plain, fused, rtol=1e-4)
    size = np.abs(learned).max()
    np.testing.assert_allclose(learned_plain, learned, rtol=0, atol=1e-3 * size)

"""The rules against PyTorch's numbers, groups of parameters, and what the update is made of."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from dnnstack.backends.base import Array, Options
from dnnstack.backends.reference.backend import ReferenceBackend
from dnnstack.common.errors import ConfigError
from dnnstack.graph.graph import Graph, Shape, Tensor
from dnnstack.graph.ops import AdamUpdate, Average, MuonUpdate, Reshape, SgdUpdate
from dnnstack.layers.initializers import ZEROS
from dnnstack.layers.layer import Parameter
from dnnstack.optimizers.adam import Adam, Adamw
from dnnstack.optimizers.groups import Group, assign, stretches
from dnnstack.optimizers.muon import Muon
from dnnstack.optimizers.rules import Rule
from dnnstack.optimizers.sgd import Sgd
from dnnstack.training.sections import Composition, kept

from ..support import composed
from ..support.update_formulas import AdadeltaUpdate, AdagradUpdate, ByFormula

RATES = (0.1, 0.05, 0.2, 0.01)


def parameter(name: str, shape: Shape, kind: str) -> Parameter:
    tensor = Tensor(name, shape, "float32", "parameter")
    return Parameter(tensor, kind, ZEROS, 1, 1)  # type: ignore[arg-type]


WEIGHT = parameter("dense_1.weight", (2, 3), "kernel")
BIAS = parameter("dense_1.bias", (2,), "bias")
FILTER = parameter("conv2d_1.weight", (2, 2, 1, 2), "kernel")
DENSE = (WEIGHT, BIAS)


def wave(function: object, shape: Shape, shift: float, slope: float) -> Array:
    size = math.prod(shape)
    return np.array([function(slope * i + shift) for i in range(size)]).reshape(shape)  # type: ignore[operator]


def train(
    optimizer: Composition,
    parameters: Sequence[Parameter],
    tables: Mapping[str, Sequence[float]] | None = None,
    steps_per_epoch: int = 1,
) -> dict[str, Array]:
    """Values by name after the updates of all phases, with gradients that are cosines."""
    phases = stretches(optimizer.groups, steps_per_epoch, len(RATES))
    sections, given = {}, {}
    for first in phases:
        graph = Graph(f"train-{first}", 1, training=True)
        for p in parameters:
            shape = p.tensor.shape
            given[first, p] = graph.tensor(f"{p.tensor.name}.given", shape, role="input")
            graph.add(Reshape(x=given[first, p], y=graph.gradient(p.tensor)))
        step = graph.tensor("step", (1,), "int64", "state")
        graph.results["step"] = step
        graph = composed.updated(graph, optimizer, parameters, len(RATES), steps_per_epoch)(first)
        sections[graph.name] = graph
    executable = ReferenceBackend(1).compile(sections, Options("fp64"))
    for graph in sections.values():
        for name, values in {"rates": RATES, **(tables or {})}.items():
            if graph.results.get(name) in graph.tensors():
                # As float64, to compare with numbers that were never rounded.
                executable.write(graph[name], np.array(values, np.float64))
    for k, p in enumerate(parameters):
        executable.write(p.tensor, wave(math.sin, p.tensor.shape, k, 0.7))
    for average, value in composed.averages(optimizer, parameters).items():
        executable.write(average, executable.read(value))
    for t in range(len(RATES)):
        first = max(phase for phase in phases if phase <= t)
        for k, p in enumerate(parameters):
            values = wave(math.cos, p.tensor.shape, k + 2.1 * t, 1.3)
            if given[first, p] in sections[f"train-{first}"].tensors():
                executable.write(given[first, p], values)
        executable.run(f"train-{first}")
    held = (*(p.tensor for p in parameters), *kept(optimizer, parameters, ()))
    return {tensor.name: executable.read(tensor) for tensor in held}


# From PyTorch 2.13 in float64: the optimizers of torch.optim with these arguments.
TORCH: dict[str, tuple[Composition, list[float], list[float]]] = {
    "Adam(betas=(0.8, 0.95), eps=1e-3)": (
        Composition(Adam((0.8, 0.95), 1e-3)),
        [-0.0838760112, 0.5596895414, 1.0843583573, 0.9469550044, 0.2157212072, -0.4329752808],
        [0.7566275854, 1.1038857642],
    ),
    "Adam(weight_decay=0.1)": (
        Composition(Adam(weight_decay=0.1)),
        [-0.0997952789, 0.5434275148, 1.0688356758, 0.9210584308, 0.1913347637, -0.4340279276],
        [0.7278587604, 1.0898100148],
    ),
    "AdamW(betas=(0.9, 0.99), weight_decay=0.3)": (
        Composition(Adamw((0.9, 0.99), weight_decay=0.3)),
        [-0.0938025387, 0.5026094901, 0.9923334344, 0.8557882348, 0.1744343519, -0.4039398539],
        [0.6738525377, 1.0089863896],
    ),
    "AdamW with a group: lr * 2, weight_decay=0": (
        Composition(
            Adamw((0.9, 0.99), weight_decay=0.3),
            (Group(kinds=("bias",), lr_factor=2.0, weight_decay=0.0),),
        ),
        [-0.0938025387, 0.5026094901, 0.9923334344, 0.8557882348, 0.1744343519, -0.4039398539],
        [0.6689500814, 1.2547717935],
    ),
    "Adagrad()": (
        Composition(ByFormula(chosen=AdagradUpdate())),
        [-0.0036095296, 0.4750028407, 0.9495209254, 0.9680150421, 0.3574601648, -0.3808895333],
        [0.7052539807, 0.9575669544],
    ),
    "Adagrad(lr_decay=0.1, weight_decay=0.1, initial_accumulator_value=0.3, eps=1e-3)": (
        Composition(ByFormula(chosen=AdagradUpdate(0.1, 0.3, 1e-3), weight_decay=0.1)),
        [-0.012030523, 0.5328704538, 0.9457613879, 0.9255788333, 0.3584291575, -0.3753603597],
        [0.729715575, 0.9445616484],
    ),
    "Adadelta(weight_decay=0.1)": (
        Composition(ByFormula(chosen=AdadeltaUpdate(), weight_decay=0.1)),
        [0.0001731677, 0.6433061902, 0.9850547248, 0.8635184992, 0.3353698275, -0.3506959373],
        [0.8407704843, 0.9912608658],
    ),
}


@pytest.mark.parametrize("name", TORCH)
def test_these_are_pytorchs(name: str) -> None:
    optimizer, weight, bias = TORCH[name]
    found = train(optimizer, DENSE)
    np.testing.assert_allclose(found["dense_1.weight"].ravel(), weight, rtol=0, atol=1e-9)
    np.testing.assert_allclose(found["dense_1.bias"].ravel(), bias, rtol=0, atol=1e-9)


def test_muon_is_that_of_the_published_recipe() -> None:
    """The recipe's loop with three iterations, computed in PyTorch in float64."""
    rule = Muon(Sgd(), momentum=0.6, nesterov=True, iterations=3, rescale=True)
    found = train(Composition(rule), (FILTER,))
    expected = [0.0036857962, 0.3834045447, 0.6339115425, 0.6172896572]
    expected += [0.3025276, -0.2275311932, -0.6597443717, -0.7105375427]
    np.testing.assert_allclose(found["conv2d_1.weight"].ravel(), expected, rtol=0, atol=1e-9)


def test_muon_makes_the_update_orthogonal() -> None:
    """Five iterations bring every singular value of the step near 1, whatever the gradient's."""
    rule = Muon(Sgd(), momentum=0.0, nesterov=False)
    wide = parameter("conv2d_1.weight", (3, 4, 2, 2), "kernel")
    start = wave(math.sin, wide.tensor.shape, 0, 0.7)
    # A rate of 1 in the first step alone.
    found = train(Composition(rule, (Group(rates="rates.0"),)), (wide,), {"rates.0": (1, 0, 0, 0)})
    moved = (start - found["conv2d_1.weight"]).reshape(3, 16)
    # A gradient of cosines has rank 2.
    singular = np.linalg.svd(moved, compute_uv=False)
    assert ((singular[:2] > 0.6) & (singular[:2] < 1.3)).all()


def test_the_rest_under_muon_has_its_own_rule_and_rate() -> None:
    rest = Adamw((0.9, 0.99), weight_decay=0.3)
    found = train(Composition(Muon(rest, rest_factor=1.0)), (*DENSE, FILTER))
    alone = train(Composition(rest), DENSE)
    for name, values in alone.items():
        np.testing.assert_array_equal(found[name], values, name)
    assert "momentum/conv2d_1.weight" in found
    assert "adam_m/conv2d_1.weight" not in found
    twice = train(Composition(Muon(Sgd(), rest_factor=2.0)), (*DENSE, FILTER))
    group = train(Composition(Sgd(), (Group(lr_factor=2.0),)), DENSE)
    np.testing.assert_array_equal(twice["dense_1.weight"], group["dense_1.weight"])


def test_groups_are_pytorchs_parameter_groups() -> None:
    """p -= lr f (g + wd p + ...): a group is the same as its own optimizer."""
    rule = Sgd(0.9, True, weight_decay=0.1)
    groups = (Group(names=("*.bias",), lr_factor=64.0, weight_decay=0.01),)
    together = train(Composition(rule, groups), DENSE)
    alone = train(
        Composition(Sgd(0.9, True, weight_decay=0.01)), DENSE, {"rates": [64 * lr for lr in RATES]}
    )
    rest = train(Composition(rule), DENSE)
    np.testing.assert_allclose(together["dense_1.bias"], alone["dense_1.bias"], rtol=1e-12)
    np.testing.assert_array_equal(together["dense_1.weight"], rest["dense_1.weight"])


def test_a_group_with_its_own_schedule() -> None:
    own = (0.3, 0.2, 0.1, 0.0)
    optimizer = Composition(Sgd(0.9), (Group(kinds=("bias",), rates="rates.0"),))
    found = train(optimizer, DENSE, {"rates.0": own})
    alone = train(Composition(Sgd(0.9)), DENSE, {"rates": own})
    np.testing.assert_array_equal(found["dense_1.bias"], alone["dense_1.bias"])
    rest = train(Composition(Sgd(0.9)), DENSE)
    np.testing.assert_array_equal(found["dense_1.weight"], rest["dense_1.weight"])


@pytest.mark.parametrize("rule", [Sgd(0.9), Adam()], ids=["sgd", "adam"])
def test_a_frozen_parameter_stands_still(rule: Rule) -> None:
    """Trained from step 1 up to step 3: as an optimizer of its own that sees these steps alone."""
    group = Group(kinds=("bias",), freeze_until=0.5, freeze_after=1.5)
    optimizer = Composition(rule, (group,))
    assert stretches(optimizer.groups, 2, 4) == (0, 1, 3)
    found = train(optimizer, DENSE, steps_per_epoch=2)
    p, m, v = wave(math.sin, (2,), 1, 0.7), np.zeros(2), np.zeros(2)
    for n, t in enumerate((1, 2), 1):
        g = wave(math.cos, (2,), 1 + 2.1 * t, 1.3)
        if isinstance(rule, Sgd):
            m = 0.9 * m + g
            p = p - RATES[t] * m
        else:
            m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
            p = p - RATES[t] * (m / (1 - 0.9**n)) / (np.sqrt(v / (1 - 0.999**n)) + 1e-8)
    np.testing.assert_allclose(found["dense_1.bias"], p, rtol=1e-9)
    rest = train(Composition(rule), DENSE)
    np.testing.assert_array_equal(found["dense_1.weight"], rest["dense_1.weight"])


def test_what_is_frozen_for_good_has_no_state() -> None:
    optimizer = Composition(
        Sgd(0.9), (Group(kinds=("bias",), freeze_after=0.0),), averages=("ema",)
    )
    names = [tensor.name for tensor in kept(optimizer, DENSE, ())]
    assert names == ["momentum/dense_1.weight", "ema/dense_1.weight"]


def test_the_first_group_that_fits_counts() -> None:
    groups = (
        Group(names=("conv2d_*",), kinds=("kernel",), lr_factor=2.0),
        Group(kinds=("kernel",), lr_factor=3.0),
    )
    found = {a.parameter: a.lr_factor for a in assign(Sgd(), groups, (*DENSE, FILTER))}
    assert found == {FILTER: 2.0, WEIGHT: 3.0, BIAS: 1.0}


@pytest.mark.parametrize(
    ("groups", "wanted"),
    [
        (
            (Group(names=("conv2d_*", "x")),),
            r"optimizer\.groups\.0: no parameter matches conv2d_\*, x; the network has "
            r"dense_1\.weight \(kernel\), dense_1\.bias \(bias\)",
        ),
        ((Group(kinds=("scale",)),), r"groups\.0: no parameter matches kind scale"),
        (
            (Group(kinds=("bias",)), Group(names=("*.bias",))),
            r"groups\.1: earlier groups match all of its parameters; move it before them",
        ),
    ],
)
def test_an_empty_group_is_an_error(groups: tuple[Group, ...], wanted: str) -> None:
    with pytest.raises(ConfigError, match=wanted):
        kept(Composition(Sgd(), groups), DENSE, ())


def test_a_group_that_is_never_trained_is_an_error() -> None:
    optimizer = Composition(Sgd(), (Group(kinds=("bias",), freeze_until=2.0),))
    with pytest.raises(ConfigError, match=r"groups\.0\.freeze_until_epoch: epoch 2 is never"):
        stretches(optimizer.groups, 2, 4)


def test_one_operation_for_all_that_share_a_rule_and_a_schedule() -> None:
    groups = (Group(kinds=("bias",), lr_factor=64.0), Group(names=("dense*",), rates="rates.1"))
    graph = Graph("train", 1)
    for p in (*DENSE, FILTER):
        given = graph.tensor(f"{p.tensor.name}.given", p.tensor.shape, role="input")
        graph.add(Reshape(x=given, y=graph.gradient(p.tensor)))
    graph.results["step"] = graph.tensor("step", (1,), "int64", "state")
    optimizer = Composition(Muon(Adam()), groups, 1.0, ("lookahead", "ema"))
    graph = composed.updated(graph, optimizer, (*DENSE, FILTER), 4)(0)
    updates = [op for op in graph.ops if isinstance(op, (AdamUpdate, MuonUpdate, SgdUpdate))]
    assert [type(op).__name__ for op in updates] == ["AdamUpdate", "AdamUpdate", "MuonUpdate"]
    assert [op.rates.name for op in updates] == ["rates.1", "rates", "rates"]
    assert [op.lr_factor for op in updates] == [(), (64.0,), ()]
    averages = [op for op in graph.ops if isinstance(op, Average)]
    assert [(op.decays.name, op.pull) for op in averages] == [
        ("lookahead.decays", True),
        ("ema.decays", False),
    ]


def test_ema() -> None:
    """As torch.Tensor.lerp_ gives it, decay 0.9."""
    found = train(Composition(Sgd(), averages=("ema",)), (WEIGHT,), {"ema.decays": [0.9] * 4})
    p = [0.0132958831, 0.5215611607, 0.9065328925, 0.94364557, 0.456938168, -0.3659764572]
    average = [-0.0099192827, 0.6209378068, 0.9829143312, 0.8851328147, 0.3492525423]
    np.testing.assert_allclose(found["dense_1.weight"].ravel(), p, rtol=0, atol=1e-9)
    np.testing.assert_allclose(found["ema/dense_1.weight"].ravel()[:5], average, rtol=0, atol=1e-9)


def test_lookahead() -> None:
    """As the published recipe's class in PyTorch, every 3 steps of 4; the end takes the average."""
    d = 0.95**3 * (3 / 4) ** 3
    found = train(
        Composition(Sgd(), averages=("lookahead",)), (WEIGHT,), {"lookahead.decays": [-1, -1, d, 1]}
    )
    p = [0.0148687416, 0.567530428, 0.9295534844, 0.9099922654, 0.415913137, -0.3542714481]
    np.testing.assert_allclose(found["dense_1.weight"].ravel(), p, rtol=0, atol=1e-9)
    np.testing.assert_allclose(found["lookahead/dense_1.weight"].ravel(), p, rtol=0, atol=1e-9)


def test_of_many_parameters_the_likeliest_are_named() -> None:
    many = [parameter(f"residual_{n}.conv2d_{n}.weight", (1,), "kernel") for n in range(40)]
    groups = (Group(("residual_31.conv_31.*",)),)
    with pytest.raises(ConfigError) as caught:
        assign(Sgd(), groups, many)
    text = str(caught.value)
    assert "the network has residual_31.conv2d_31.weight (kernel), " in text
    assert text.count("(kernel)") == 8
    assert text.endswith(" and 32 more")

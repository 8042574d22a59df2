"""The rules against PyTorch's numbers, groups of parameters, and what the update is made of."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product

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
from dnnstack.optimizers.sgd import Sgd
from dnnstack.training.sections import Composition, kept

from ..support import composed
from ..support.frozen import changed
from ..support.update_formulas import AdadeltaUpdate, AdagradUpdate, ByFormula

RATES = (0.1, 0.05, 0.2, 0.01)


def parameter(name: str, shape: Shape, kind: str) -> Parameter:
    tensor = Tensor(name, shape, "float32", "parameter")
    return Parameter(tensor, kind, ZEROS, 1, 1)  # type: ignore[arg-type]


WEIGHT = parameter("dense_1.weight", (2, 3), "kernel")
BIAS = parameter("dense_1.bias", (2,), "bias")
FILTER = parameter("conv2d_1.weight", (2, 2, 1, 2), "kernel")
DENSE = (WEIGHT, BIAS)
STANDS_STILL = (Group(kinds=("bias",), freeze_until=0.5, freeze_after=1.5),)


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


SGD = {
    f"Sgd({momentum}, {nesterov}, {decay}, {on}, {clip})": Composition(
        Sgd(momentum, nesterov, weight_decay=decay, weight_decay_on=on),  # type: ignore[arg-type]
        clip_norm=clip,
    )
    for momentum, nesterov, decay, on, clip in product(
        (0.0, 0.9), (False, True), (0.0, 0.1), ("all", "weights"), (None, 0.7, 1e3)
    )
    if momentum or not nesterov
}
# The numbers of the others are those of PyTorch 2.13, and of the published recipe of Muon.
RULES = {
    "Adam(betas=(0.8, 0.95), eps=1e-3)": Composition(Adam((0.8, 0.95), 1e-3)),
    "Adam(weight_decay=0.1)": Composition(Adam(weight_decay=0.1)),
    "AdamW(betas=(0.9, 0.99), weight_decay=0.3)": Composition(Adamw((0.9, 0.99), weight_decay=0.3)),
    "AdamW with a group: lr * 2, weight_decay=0": Composition(
        Adamw((0.9, 0.99), weight_decay=0.3),
        (Group(kinds=("bias",), lr_factor=2.0, weight_decay=0.0),),
    ),
    "Adagrad()": Composition(ByFormula(chosen=AdagradUpdate())),
    "Adagrad(lr_decay=0.1, weight_decay=0.1, initial_accumulator_value=0.3, eps=1e-3)": (
        Composition(ByFormula(chosen=AdagradUpdate(0.1, 0.3, 1e-3), weight_decay=0.1))
    ),
    "Adadelta(weight_decay=0.1)": Composition(ByFormula(chosen=AdadeltaUpdate(), weight_decay=0.1)),
    "Muon with three iterations": Composition(
        Muon(Sgd(), momentum=0.6, nesterov=True, iterations=3, rescale=True)
    ),
    "a group: lr * 64, weight_decay=0.01": Composition(
        Sgd(0.9, True, weight_decay=0.1),
        (Group(names=("*.bias",), lr_factor=64.0, weight_decay=0.01),),
    ),
    "a group with its own schedule": Composition(
        Sgd(0.9), (Group(kinds=("bias",), rates="rates.0"),)
    ),
    "Sgd, frozen at first and at last": Composition(Sgd(0.9), STANDS_STILL),
    "Adam, frozen at first and at last": Composition(Adam(), STANDS_STILL),
    "an average, decay 0.9": Composition(Sgd(), averages=("ema",)),
    "lookahead": Composition(Sgd(), averages=("lookahead",)),
}


def test_updates_are_what_they_were() -> None:
    tables = {"rates.0": (0.3, 0.2, 0.1, 0.0), "ema.decays": [0.9] * 4}
    tables["lookahead.decays"] = [-1, -1, 0.95**3 * (3 / 4) ** 3, 1]
    chosen = (SGD | RULES).items()
    found = {name: train(each, (*DENSE, FILTER), tables, 2) for name, each in chosen}
    assert changed(__file__, found) == []


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


def test_layers_are_trained_at_rates_that_fall_towards_the_input() -> None:
    """A block counts once, what has no kernel with the layer before it, a frozen layer as well."""
    stack = [
        parameter("batch_norm_1.bias", (2,), "shift"),
        FILTER,
        parameter("batch_norm_2.weight", (2,), "scale"),
        parameter("residual_1.conv2d_2.weight", (2, 2, 1, 1), "kernel"),
        parameter("residual_1.conv2d_3.weight", (2, 2, 1, 1), "kernel"),
        replace(parameter("conv2d_4.weight", (2, 2, 1, 1), "kernel"), frozen=True),
        *DENSE,
    ]
    groups = (Group(kinds=("bias", "scale"), lr_factor=3.0),)
    found = [each.lr_factor for each in assign(Sgd(), groups, stack, 0.5)]
    assert found == [1 / 16, 1 / 8, 3 / 8, 1 / 4, 1 / 4, 1.0, 3.0]
    assert {each.lr_factor for each in assign(Sgd(), (), stack)} == {1.0}
    of_rest = assign(Muon(Sgd(), rest_factor=3.0), (), (FILTER, *DENSE, FILTER), 0.5)
    assert [each.lr_factor for each in of_rest] == [0.5, 3.0, 3.0, 0.5]


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


def test_of_many_parameters_the_likeliest_are_named() -> None:
    many = [parameter(f"residual_{n}.conv2d_{n}.weight", (1,), "kernel") for n in range(40)]
    groups = (Group(("residual_31.conv_31.*",)),)
    with pytest.raises(ConfigError) as caught:
        assign(Sgd(), groups, many)
    text = str(caught.value)
    assert "the network has residual_31.conv2d_31.weight (kernel), " in text
    assert text.count("(kernel)") == 8
    assert text.endswith(" and 32 more")

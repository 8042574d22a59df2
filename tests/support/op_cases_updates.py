"""Cases of the optimizers, of averages of the weights and of sums of gradients."""

from __future__ import annotations

from itertools import chain

import numpy as np
from dnnstack.graph import ops
from dnnstack.graph.graph import Shape, Tensor

from .op_draft import Draft, case
from .update_formulas import FORMULAS

SHAPES: list[Shape] = [(3, 2, 2, 3), (3,), (4, 5), (4,)]
FACTORS = (1.0, 64.0, 1.0, 0.5)
MIXED = (0.1, 0.0, 0.1, 0.0)
NONE = (0.0,) * 4


def several(d: Draft, name: str, shapes: list[Shape], role: str) -> tuple[Tensor, ...]:
    return tuple(d.floats(f"{name}{i}", *s, role=role) for i, s in enumerate(shapes))  # type: ignore[arg-type]


def clock(d: Draft, *rates: float, start: int = 1) -> tuple[Tensor, Tensor]:
    """Rates of every step, and the step, which is not the first."""
    table = d.given("rates", np.array(rates, np.float32), "data")
    return table, d.given("step", np.array([start], np.int64), "state")


def sgd_in_groups(d: Draft, momentum: float, nesterov: bool, decay: tuple[float, ...]) -> None:
    rates, step = clock(d, 9.0, 0.01, 0.003, 0.02)
    d.steps, d.length = 3, 100
    d.graph.add(
        ops.SgdUpdate(
            gradients=several(d, "g", SHAPES, "input"),
            rates=rates,
            step=step,
            parameters=several(d, "p", SHAPES, "parameter"),
            buffers=several(d, "v", SHAPES, "state") if momentum else (),
            weight_decay=decay,
            lr_factor=FACTORS,
            momentum=momentum,
            nesterov=nesterov,
        )
    )
    d.graph.add(ops.Advance(step=step))


for rule in ((0.0, False), (0.9, False), (0.9, True)):
    for decays in (NONE, MIXED):
        case(f"update-groups-{rule[0]}-{rule[1]}-{decays[0]}", sgd_in_groups, *rule, decays)


def adam(d: Draft, decay: tuple[float, ...], decoupled: bool, factors: tuple[float, ...]) -> None:
    """Several steps; the third parameter is updated from step 1 on alone, the others from 0."""
    rates, step = clock(d, 9.0, 0.1, 0.03, 0.2)
    d.steps, d.length = 3, 100
    squares = several(d, "v", SHAPES, "state")
    for tensor in squares:
        d.values[tensor] = np.abs(d.values[tensor])
    d.graph.add(
        ops.AdamUpdate(
            gradients=several(d, "g", SHAPES, "input"),
            rates=rates,
            step=step,
            parameters=several(d, "p", SHAPES, "parameter"),
            means=several(d, "m", SHAPES, "state"),
            squares=squares,
            weight_decay=decay,
            lr_factor=factors,
            start=(0, 0, 1, 0),
            beta1=0.8,
            beta2=0.95,
            eps=1e-3,
            decoupled=decoupled,
        )
    )
    d.graph.add(ops.Advance(step=step))


case("adam", adam, NONE, False, ())
case("adam-decay", adam, MIXED, False, FACTORS)
case("adamw", adam, MIXED, True, ())


def elementwise(d: Draft, name: str, decay: tuple[float, ...], factors: tuple[float, ...]) -> None:
    """As adam; states are 0 before the first update."""
    rates, step = clock(d, 9.0, 0.1, 0.03, 0.2)
    d.steps, d.length = 3, 100
    formula = FORMULAS[name]
    states = [several(d, family, SHAPES, "state") for family in formula.families]
    for kind in states:
        for i, tensor in enumerate(kind):
            d.values[tensor] = np.abs(d.values[tensor]) * (i != 2)
    d.graph.add(
        ops.ElementwiseUpdate(
            gradients=several(d, "g", SHAPES, "input"),
            rates=rates,
            step=step,
            parameters=several(d, "p", SHAPES, "parameter"),
            states=tuple(chain.from_iterable(states)),
            weight_decay=decay,
            lr_factor=factors,
            start=(0, 0, 1, 0),
            formula=formula,
        )
    )
    d.graph.add(ops.Advance(step=step))


for name in FORMULAS:
    case(f"{name}-alone", elementwise, name, NONE, ())
    case(f"{name}-decay", elementwise, name, MIXED, FACTORS)


def muon(d: Draft, nesterov: bool, rescale: bool, decay: float) -> None:
    """Filters that are wide, tall and square as matrices."""
    shapes: list[Shape] = [(4, 3, 3, 3), (16, 2, 2, 2), (4, 4)]
    rates, step = clock(d, 9.0, 0.1, 0.03)
    d.steps = 2
    # Errors grow with the products and with the slope of the iteration at small singular values.
    d.length = 30_000
    d.graph.add(
        ops.MuonUpdate(
            gradients=several(d, "g", shapes, "input"),
            rates=rates,
            step=step,
            parameters=several(d, "p", shapes, "parameter"),
            buffers=several(d, "v", shapes, "state"),
            weight_decay=(decay,) * 3,
            lr_factor=(1.0, 0.5, 1.0),
            momentum=0.6,
            nesterov=nesterov,
            iterations=3,
            rescale=rescale,
        )
    )
    d.graph.add(ops.Advance(step=step))


case("muon", muon, False, False, 0.0)
case("muon-nesterov-rescaled", muon, True, True, 0.0)
case("muon-decay", muon, True, False, 0.1)


def average(d: Draft, pull: bool) -> None:
    """The second of three steps leaves everything as it is."""
    step = d.given("step", np.array([0], np.int64), "state")
    values = several(d, "p", SHAPES, "parameter")
    # A value that no optimizer moves, such as a running mean.
    values = (*values, d.floats("mean", 7, role="state"))
    shapes = [tensor.shape for tensor in values]
    d.steps = 3
    rates = d.given("rates", np.full(3, 0.1, np.float32), "data")
    d.graph.add(
        ops.SgdUpdate(
            gradients=several(d, "g", SHAPES, "input"),
            rates=rates,
            step=step,
            parameters=values[:4],
            buffers=(),
            weight_decay=NONE,
        )
    )
    d.graph.add(
        ops.Average(
            decays=d.given("decays", np.array([0.9, -1.0, 0.3], np.float32), "data"),
            step=step,
            averages=several(d, "average/p", shapes, "state"),
            values=values,
            pull=pull,
        )
    )
    d.graph.add(ops.Advance(step=step))


case("average", average, False)
case("average-pull", average, True)


def mask(d: Draft) -> None:
    """Of gradients and parameters around an update; the second parameter is not masked."""
    rates, step = clock(d, 0.1, 0.1, 0.1)
    gradients, parameters = several(d, "g", SHAPES, "input"), several(d, "p", SHAPES, "parameter")
    masks = several(d, "mask/p", [SHAPES[0], *SHAPES[2:]], "state")
    for tensor in masks:
        d.values[tensor] = (d.values[tensor] > 0).astype(np.float32)
    summed = several(d, "sum", SHAPES, "state")
    d.graph.add(ops.Accumulate(gradients=gradients, step=step, sums=summed, parts=1))
    d.graph.add(ops.Mask(masks=masks, values=(summed[0], *summed[2:])))
    d.graph.add(
        ops.SgdUpdate(
            gradients=summed,
            rates=rates,
            step=step,
            parameters=parameters,
            buffers=(),
            weight_decay=MIXED,
        )
    )
    d.graph.add(ops.Mask(masks=masks, values=(parameters[0], *parameters[2:])))
    d.graph.add(ops.Advance(step=step))


case("mask", mask)


def accumulate(d: Draft, parts: int, start: int, scale: float) -> None:
    """Three parts of a batch from part ``start`` on, each with the same gradients."""
    step = d.given("part", np.array([start], np.int64), "state")
    d.steps = 3
    further = range(1, ops.Accumulate.levels(parts))
    pending = [several(d, f"sum{level}.", SHAPES, "state") for level in further]
    d.graph.add(
        ops.Accumulate(
            gradients=several(d, "g", SHAPES, "input"),
            step=step,
            sums=several(d, "sum", SHAPES, "state"),
            pending=tuple(tensor for level in pending for tensor in level),
            parts=parts,
            scale=scale,
        )
    )
    d.graph.add(ops.Advance(step=step))


case("accumulate-first", accumulate, 4, 4, 0.25)
case("accumulate-later", accumulate, 4, 1, 1.0)
case("accumulate-last", accumulate, 7, 4, 1.0)
case("accumulate-all", accumulate, 8, 5, 1.0)
case("accumulate-one", accumulate, 1, 5, 0.5)

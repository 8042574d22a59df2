"""Optimizers, averages of the weights, and sums of gradients over the parts of a batch."""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt

import numpy as np

from ...graph import ops
from ...graph.ops.updates import ParameterUpdate
from ..base import Array
from .kernels import Function, kernel
from .step import Arrays


def update(op: type[ParameterUpdate], function: str) -> Callable[[Function], Function]:
    """Enter the decorated function as the kernel of an update of each parameter by itself.

    It gets the operation, the parameter's number, its rate, the step, the parameter, its gradient
    and its state, and returns the new parameter and state.
    """

    def enter(one: Function) -> Function:
        @kernel(op, function)
        def every(
            op: ParameterUpdate, gradients: Arrays, rates: Array, step: Array, *changing: Arrays
        ) -> tuple[Arrays, ...]:
            now = int(step[0])
            parameters, *states = (family for family in changing if family)
            members = enumerate(zip(parameters, gradients, *states, strict=True))
            changed = [one(op, i, rates[now] * op.factor(i), now, *each) for i, each in members]
            found = zip(*changed, strict=True)
            return tuple(next(found) if family else () for family in changing)

        return one

    return enter


@update(ops.SgdUpdate, "subtract")
def sgd_update(
    op: ops.SgdUpdate, i: int, lr: float, now: int, p: Array, g: Array, v: Array | None = None
) -> Arrays:
    if op.weight_decay[i]:
        g = g + op.weight_decay[i] * p
    if v is None:
        return (p - lr * g,)
    v = op.momentum * v + g
    return p - lr * (g + op.momentum * v if op.nesterov else v), v


@update(ops.AdamUpdate, "sqrt")
def adam_update(
    op: ops.AdamUpdate, i: int, lr: float, now: int, p: Array, g: Array, m: Array, v: Array
) -> Arrays:
    if op.weight_decay[i] and not op.decoupled:
        g = g + op.weight_decay[i] * p
    t = now - op.start[i] + 1
    m = op.beta1 * m + (1.0 - op.beta1) * g
    v = op.beta2 * v + (1.0 - op.beta2) * g * g
    unbiased = lr / (1.0 - op.beta1**t)
    moves = unbiased * m / (np.sqrt(v) / sqrt(1.0 - op.beta2**t) + op.eps)
    if op.weight_decay[i] and op.decoupled:
        # Both in one difference: in float32 a small decay alone would change no p.
        moves = moves + lr * op.weight_decay[i] * p
    return p - moves, m, v


@kernel(ops.ElementwiseUpdate, "add")
def elementwise_update(
    op: ops.ElementwiseUpdate,
    gradients: Arrays,
    rates: Array,
    step: Array,
    parameters: Arrays,
    states: Arrays,
) -> tuple[Arrays, Arrays]:
    moved, kept = (tuple(each.copy() for each in arrays) for arrays in (parameters, states))
    for i, (p, g) in enumerate(zip(moved, gradients, strict=True)):
        lr, t = rates[int(step[0])] * op.factor(i), int(step[0]) - op.start[i] + 1
        op.formula.update(p, g, kept[i :: len(moved)], lr, op.weight_decay[i], t)
    return moved, kept


@update(ops.MuonUpdate, "matmul")
def muon_update(
    op: ops.MuonUpdate, i: int, lr: float, now: int, p: Array, g: Array, v: Array
) -> Arrays:
    v = op.momentum * v + g
    u = g + op.momentum * v if op.nesterov else v
    norm = np.linalg.norm(p)
    # A filter of zeros has no direction to keep.
    if op.rescale and norm > 0:
        p = p * (sqrt(len(p)) / norm)
    u = newton_schulz(op, u.reshape(len(u), -1)).reshape(u.shape)
    if op.weight_decay[i]:
        u = u + op.weight_decay[i] * p
    return p - lr * u, v


def newton_schulz(op: ops.MuonUpdate, u: Array) -> Array:
    """The matrix of u's singular vectors with singular values near 1; u: (rows, columns)."""
    a, b, c = op.COEFFICIENTS
    x: Array = u / (np.linalg.norm(u) + op.EPS)
    tall = len(x) > x.shape[1]
    x = x.T if tall else x
    for _ in range(op.iterations):
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.T if tall else x


@kernel(ops.Average, "add")
def average(
    op: ops.Average, decays: Array, step: Array, averages: Arrays, values: Arrays
) -> tuple[Arrays, Arrays]:
    decay = decays[int(step[0])]
    if decay < 0:
        return averages, values
    mixed = tuple(decay * a + (1 - decay) * p for a, p in zip(averages, values, strict=True))
    return mixed, mixed if op.pull else values


@kernel(ops.Mask, "multiply")
def mask(op: ops.Mask, masks: Arrays, values: Arrays) -> Arrays:
    return tuple(v * m + 0 for v, m in zip(values, masks, strict=True))


@kernel(ops.Accumulate, "add")
def accumulate(
    op: ops.Accumulate, gradients: Arrays, step: Array, sums: Arrays, pending: Arrays
) -> tuple[Arrays, Arrays]:
    count, every = len(sums), [*sums, *pending]
    waiting, ends = op.place(int(step[0]))
    for i, g in enumerate(gradients):
        total = op.scale * g
        for level in range(waiting - 1, waiting - ends - 1, -1):
            total = every[level * count + i] + total
        every[(waiting - ends) * count + i] = total
    return tuple(every[:count]), tuple(every[count:])

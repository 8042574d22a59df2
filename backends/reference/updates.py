"""Optimizers, averages of the weights, and sums of gradients over the parts of a batch."""

from __future__ import annotations

from math import sqrt

import numpy as np

from ...graph.ops import Accumulate, AdamUpdate, Average, ElementwiseUpdate, MuonUpdate
from ..base import Array
from .kernels import kernel

Arrays = tuple[Array, ...]


@kernel(AdamUpdate, "sqrt")
def adam_update(
    op: AdamUpdate,
    gradients: Arrays,
    rates: Array,
    step: Array,
    parameters: Arrays,
    means: Arrays,
    squares: Arrays,
) -> tuple[Arrays, Arrays, Arrays]:
    moved, first, second = [], [], []
    for i, (p, g, m, v) in enumerate(zip(parameters, gradients, means, squares, strict=True)):
        lr = rates[int(step[0])] * op.factor(i)
        if op.weight_decay[i] and op.decoupled:
            p = p - lr * op.weight_decay[i] * p
        elif op.weight_decay[i]:
            g = g + op.weight_decay[i] * p
        t = int(step[0]) - op.start[i] + 1
        m = op.beta1 * m + (1.0 - op.beta1) * g
        v = op.beta2 * v + (1.0 - op.beta2) * g * g
        unbiased = lr / (1.0 - op.beta1**t)
        moved.append(p - unbiased * m / (np.sqrt(v) / sqrt(1.0 - op.beta2**t) + op.eps))
        first.append(m)
        second.append(v)
    return tuple(moved), tuple(first), tuple(second)


@kernel(ElementwiseUpdate, "add")
def elementwise_update(
    op: ElementwiseUpdate,
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


@kernel(MuonUpdate, "matmul")
def muon_update(
    op: MuonUpdate,
    gradients: Arrays,
    rates: Array,
    step: Array,
    parameters: Arrays,
    buffers: Arrays,
) -> tuple[Arrays, Arrays]:
    moved, kept = [], []
    for i, (p, g, v) in enumerate(zip(parameters, gradients, buffers, strict=True)):
        lr = rates[int(step[0])] * op.factor(i)
        v = op.momentum * v + g
        u = g + op.momentum * v if op.nesterov else v
        norm = np.linalg.norm(p)
        # A filter of zeros has no direction to keep.
        if op.rescale and norm > 0:
            p = p * (sqrt(len(p)) / norm)
        if op.weight_decay[i]:
            p = p - lr * op.weight_decay[i] * p
        moved.append(p - lr * newton_schulz(op, u.reshape(len(u), -1)).reshape(u.shape))
        kept.append(v)
    return tuple(moved), tuple(kept)


def newton_schulz(op: MuonUpdate, u: Array) -> Array:
    """The matrix of u's singular vectors with singular values near 1; u: (rows, columns)."""
    a, b, c = op.COEFFICIENTS
    x: Array = u / (np.linalg.norm(u) + op.EPS)
    tall = len(x) > x.shape[1]
    x = x.T if tall else x
    for _ in range(op.iterations):
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.T if tall else x


@kernel(Average, "add")
def average(
    op: Average, decays: Array, step: Array, averages: Arrays, values: Arrays
) -> tuple[Arrays, Arrays]:
    decay = decays[int(step[0])]
    if decay < 0:
        return averages, values
    mixed = tuple(decay * a + (1 - decay) * p for a, p in zip(averages, values, strict=True))
    return mixed, mixed if op.pull else values


@kernel(Accumulate, "add")
def accumulate(op: Accumulate, gradients: Arrays, step: Array, sums: Arrays) -> Arrays:
    if int(step[0]) % op.parts == 0:
        return tuple(op.scale * g for g in gradients)
    return tuple(s + op.scale * g for s, g in zip(sums, gradients, strict=True))

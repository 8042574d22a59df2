"""Muon: the momentum over whole stretches, then each filter's own matrix products."""

from __future__ import annotations

from math import prod, sqrt

import numpy as np
from numpy.typing import NDArray

from ...graph.graph import Tensor
from ...graph.ops import MuonUpdate
from .arenas import flats, stretches
from .bind import Binder, binds
from .memory import Descriptor, Memory
from .primitive import PrimitiveDesc, reorder_desc
from .store import tensor_dims
from .updates import add, scalar


@binds(MuonUpdate)
def muon_update(b: Binder, op: MuonUpdate) -> None:
    one = scalar(b, 1.0)
    momentum = scalar(b, op.momentum)
    for members in stretches(b.store, op.parameters, op.gradients, op.buffers):
        g, v = flats(b.store, members, op.gradients, op.buffers)
        add(b, op, (v, momentum), (g, one), v)
        u = v
        if op.nesterov:
            u = b.scratch(v.descriptor)
            add(b, op, (g, one), (v, momentum), u)
        begin = b.store.spans[op.buffers[members[0]]][1]
        for i in members:
            _, start, stop = b.store.spans[op.buffers[i]]
            _step(b, op, i, u.buffer[start - begin : stop - begin])


def _step(b: Binder, op: MuonUpdate, index: int, direction: NDArray[np.uint8]) -> None:
    """p = scale p - lr (NS(u) + wd scale p); direction: the bytes of u in the layout of p."""
    parameter = op.parameters[index]
    rates, step = b.data(op.rates), b.array(op.step)
    u = Memory(b.home(parameter).descriptor, direction)
    plain = b.scratch(Descriptor.of(tensor_dims(parameter, u)))
    b.primitive(op, reorder_desc(u.descriptor, plain.descriptor), {"src": u, "dst": plain})
    _newton_schulz(b, op, plain, parameter)
    # As long as the parameter with its padding, which stays zero.
    p = b.store.flat([parameter])
    direct = b.constant(p.descriptor, 0.0)
    turned = b.scratch(u.descriptor, direct.buffer)
    b.primitive(
        op, reorder_desc(plain.descriptor, turned.descriptor), {"src": plain, "dst": turned}
    )
    values = p.array()
    keep, minus_lr, decay = scalar(b), scalar(b), op.weight_decay[index]

    def set_rate() -> None:
        lr = float(rates()[step[0]]) * op.factor(index)
        norm = sqrt(float(np.dot(values, values))) if op.rescale else 0.0
        scale = sqrt(parameter.shape[0]) / norm if norm > 0 else 1.0
        shrink = (scale - 1.0) - scale * lr * decay
        keep.array()[0], minus_lr.array()[0] = shrink if decay else scale, -lr

    b.host(op, set_rate, "dot", {"parameter": parameter.name})
    # 1 + shrink would round a small decay away.
    add(b, op, (p, keep), (direct, minus_lr), p, accumulate=1.0 if decay else None)


def _newton_schulz(b: Binder, op: MuonUpdate, u: Memory, parameter: Tensor) -> None:
    """Replace u by the matrix with its singular vectors and singular values near 1."""
    first, second, third = (scalar(b, value) for value in op.COEFFICIENTS)
    one = scalar(b, 1.0)
    rows, columns = parameter.shape[0], prod(parameter.shape[1:])
    short = min(rows, columns)
    x = u.view(Descriptor.of((rows, columns)))
    square = Descriptor.of((short, short))
    gram, power, turn = (b.scratch(square) for _ in range(3))
    moved = b.scratch(x.descriptor)
    values = x.array()

    def normalize() -> None:
        np.divide(values, sqrt(float(np.dot(values, values))) + op.EPS, out=values)

    b.host(op, normalize, "divide", {"parameter": parameter.name})
    turned = x.view(Descriptor.of((columns, rows), "ba"))
    tall = rows > columns
    for _ in range(op.iterations):
        _product(b, op, *((turned, x) if tall else (x, turned)), gram)
        _product(b, op, gram, gram, power)
        add(b, op, (gram, second), (power, third), turn)
        _product(b, op, *((x, turn) if tall else (turn, x)), moved)
        add(b, op, (x, first), (moved, one), x)


def _product(b: Binder, op: MuonUpdate, left: Memory, right: Memory, target: Memory) -> None:
    arguments = (left.descriptor, right.descriptor, None, target.descriptor, None)
    memories = {"src": left, "weights": right, "dst": target}
    b.primitive(op, PrimitiveDesc("matmul", *arguments), memories)

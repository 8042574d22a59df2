"""Optimizers, averages and sums of gradients: a few calls over whole stretches of the arenas."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from ...graph.graph import Op, Tensor
from ...graph.ops import Accumulate, AdamUpdate, Average, ElementwiseUpdate, Mask, SgdUpdate
from ...graph.ops.updates import ParameterUpdate
from .arenas import by_stretch, flats, stretches
from .bind import Binder, binds
from .constants import BINARY, ELTWISE_SQRT, FORWARD_INFERENCE
from .memory import Descriptor, Memory
from .primitive import Attributes, PrimitiveDesc

Scaled = tuple[Memory, Memory]
_PIECE = 1 << 14


def scalar(b: Binder, value: float | None = None) -> Memory:
    """A memory of one number: a constant, or without a value one that every run sets."""
    single = Descriptor.of((1,))
    return b.scratch(single) if value is None else b.constant(single, value)


def add(
    b: Binder,
    op: Op,
    left: Scaled,
    right: Scaled,
    target: Memory,
    accumulate: float | None = None,
    algorithm: int = BINARY["add"],
) -> None:
    """target = left * scale + right * scale (+ accumulate * target), one pass over memory.

    algorithm: what takes the place of the first sum.
    """
    (first, scale), (second, scale_1) = left, right
    chain = () if accumulate is None else ((accumulate,),)
    attributes = Attributes(scales=("src", "src_1"), chain=chain)
    layouts = (memory.descriptor for memory in (first, second, target))
    memories = {"src": first, "src_1": second, "dst": target}
    memories |= {"scale_src": scale, "scale_src_1": scale_1}
    details = {} if accumulate is None else {"post_op": f"sum {accumulate}"}
    b.primitive(op, PrimitiveDesc("binary", algorithm, *layouts, attributes), memories, details)


def multiply(b: Binder, op: Op, x: Memory, factor: Memory) -> None:
    """x = factor x; factor: one number."""
    layout = x.descriptor
    desc = PrimitiveDesc("binary", BINARY["mul"], layout, factor.descriptor, layout, None)
    b.primitive(op, desc, {"src": x, "src_1": factor, "dst": x})


def move(b: Binder, op: Op, p: Memory, moves: Scaled, shrink: Memory | None) -> None:
    """p += moves * scale + p * shrink, one pass over memory.

    shrink: one number, which 1 + shrink would round away; None: 0.
    """
    if shrink is None:
        return add(b, op, (p, scalar(b, 1.0)), moves, p)
    add(b, op, (p, shrink), moves, p, accumulate=1.0)


def _update_stretches(
    b: Binder, op: ParameterUpdate, *families: tuple[Tensor, ...], start: tuple[int, ...] = ()
) -> list[list[int]]:
    """Stretches of parameters with one rate and one weight decay."""

    def alike(i: int) -> tuple[float, ...]:
        return (op.weight_decay[i], op.factor(i), *start[i : i + 1])

    return list(stretches(b.store, op.parameters, op.gradients, *families, alike=alike))


@binds(SgdUpdate)
def sgd_update(b: Binder, op: SgdUpdate) -> None:
    """Over whole stretches: p += -lr wd p - lr g without momentum; with it
    v = m v + (g + wd p), then p -= lr v, or with Nesterov p += -lr wd p - lr g, p -= lr m v.
    """
    rates, step = b.data(op.rates), b.array(op.step)
    one = scalar(b, 1.0)
    found = _update_stretches(b, op, op.buffers)
    minus_lr = {op.factor(i): scalar(b) for i, *_ in found}
    minus_lr_m = {factor: scalar(b) for factor in minus_lr}
    shrinks = [scalar(b) for _ in found]
    factors: list[tuple[NDArray[np.float32], float]] = []
    for factor in minus_lr:
        factors.append((minus_lr[factor].array(), factor))
        factors.append((minus_lr_m[factor].array(), factor * op.momentum))
    for shrink, (i, *_) in zip(shrinks, found, strict=True):
        factors.append((shrink.array(), op.weight_decay[i] * op.factor(i)))

    def set_rate() -> None:
        lr = float(rates()[step[0]])
        for value, slope in factors:
            value[0] = -lr * slope

    shown = {"weight_decay": str([op.weight_decay[i] for i, *_ in found])}
    if op.lr_factor:
        shown["lr_factor"] = str([op.factor(i) for i, *_ in found])
    b.host(op, set_rate, "multiply", shown)
    for shrink, members in zip(shrinks, found, strict=True):
        factor, decay = op.factor(members[0]), op.weight_decay[members[0]]
        p, g = flats(b.store, members, op.parameters, op.gradients)
        moves = (p, (g, minus_lr[factor]), shrink if decay else None)
        if not op.momentum:
            move(b, op, *moves)
            continue
        (v,) = flats(b.store, members, op.buffers)
        if decay:
            add(b, op, (p, scalar(b, decay)), (g, one), v, accumulate=op.momentum)
        else:
            add(b, op, (v, scalar(b, op.momentum)), (g, one), v)
        if op.nesterov:
            move(b, op, *moves)
            move(b, op, p, (v, minus_lr_m[factor]), None)
        else:
            move(b, op, p, (v, minus_lr[factor]), None)


@binds(AdamUpdate)
def adam_update(b: Binder, op: AdamUpdate) -> None:
    """m and v in place, d = sqrt(v) + eps c, then p -= (lr c / (1 - b1^t)) m / d (+ lr wd p).

    c = sqrt(1 - b2^t): the quotient of the formula with both of its sides times c.
    """
    rates, step = b.data(op.rates), b.array(op.step)
    one = scalar(b, 1.0)
    keeps, takes, second = (scalar(b, n) for n in (op.beta1, 1.0 - op.beta1, 1.0 - op.beta2))
    found = _update_stretches(b, op, op.means, op.squares, start=op.start)
    minus_lr, eps, shrink = ([scalar(b) for _ in found] for _ in range(3))

    def set_rates() -> None:
        now = int(step[0])
        for n, (i, *_) in enumerate(found):
            lr = float(rates()[now]) * op.factor(i)
            t = now - op.start[i] + 1
            c = sqrt(1.0 - op.beta2**t)
            minus_lr[n].array()[0] = -lr * c / (1.0 - op.beta1**t)
            eps[n].array()[0] = op.eps * c
            shrink[n].array()[0] = -lr * op.weight_decay[i]

    shown = {"weight_decay": str([op.weight_decay[i] for i, *_ in found])}
    b.host(op, set_rates, "power", shown)
    for n, members in enumerate(found):
        p, g, m, v = flats(b.store, members, op.parameters, op.gradients, op.means, op.squares)
        scratch = b.scratch(p.descriptor)
        decay = op.weight_decay[members[0]]
        if decay and not op.decoupled:
            add(b, op, (p, scalar(b, decay)), (g, one), scratch)
            g = scratch
        add(b, op, (m, keeps), (g, takes), m)
        add(b, op, (g, second), (g, one), v, accumulate=op.beta2, algorithm=BINARY["mul"])
        root = (FORWARD_INFERENCE, ELTWISE_SQRT, v.descriptor, scratch.descriptor, 0.0, 0.0, None)
        b.primitive(op, PrimitiveDesc("eltwise_forward", *root), {"src": v, "dst": scratch})
        add(b, op, (scratch, one), (eps[n], one), scratch)
        parts, divide = ((m, minus_lr[n]), (scratch, one)), BINARY["div"]
        if decay and op.decoupled:
            add(b, op, *parts, scratch, algorithm=divide)
            move(b, op, p, (scratch, one), shrink[n])
        else:
            add(b, op, *parts, p, accumulate=1.0, algorithm=divide)


@binds(ElementwiseUpdate)
def elementwise_update(b: Binder, op: ElementwiseUpdate) -> None:
    """By NumPy over whole stretches, in pieces that stay in the cache."""
    rates, step = b.data(op.rates), b.array(op.step)
    families = op.families().values()
    found = _update_stretches(b, op, *families, start=op.start)
    pieces = []
    for members in found:
        whole = flats(b.store, members, op.parameters, op.gradients, *families)
        values = [memory.array() for memory in whole]
        for at in range(0, len(values[0]), _PIECE):
            pieces.append((members[0], [each[at : at + _PIECE] for each in values]))

    def run() -> None:
        now, rate = int(step[0]), rates()
        for i, (p, g, *states) in pieces:
            lr, t = rate[now] * op.factor(i), now - op.start[i] + 1
            op.formula.update(p, g, states, lr, op.weight_decay[i], t)

    shown = {name: str(value) for name, value in vars(op.formula).items()}
    shown["weight_decay"] = str([op.weight_decay[i] for i, *_ in found])
    b.host(op, run, "add", shown)


@binds(Average)
def average(b: Binder, op: Average) -> None:
    """One addition per stretch, omitted if the step's decay is negative."""
    decays, step = b.data(op.decays), b.array(op.step)
    keep, new = scalar(b), scalar(b)
    due = [False]

    def set_decay() -> None:
        decay = decays()[step[0]]
        due[0] = bool(decay >= 0)
        keep.array()[0], new.array()[0] = decay, 1 - decay

    b.host(op, set_decay, "subtract")
    first = len(b.steps)
    for members in stretches(b.store, op.values, op.averages):
        a, p = flats(b.store, members, op.averages, op.values)
        add(b, op, (a, keep), (p, new), a)
        if op.pull:
            b.host(op, partial(np.copyto, p.array(), a.array()), "copyto")
    _only_if(b, first, due)


def _only_if(b: Binder, first: int, due: list[bool]) -> None:
    """Let the calls from number ``first`` on be made only where ``due`` says so."""

    def guarded(function: Callable[..., int | None]) -> Callable[..., int | None]:
        return lambda *arguments: function(*arguments) if due[0] else None

    for i, entry in enumerate(b.steps[first:], first):
        b.steps[i] = replace(entry, function=guarded(entry.function))


@binds(Mask)
def mask(b: Binder, op: Mask) -> None:
    """Over whole stretches; a product alone would leave -0.0."""
    found = [[m.array() for m in each] for each in by_stretch(b.store, op.values, op.masks)]

    def run() -> None:
        for values, masks in found:
            np.multiply(values, masks, out=values)
            np.add(values, 0.0, out=values)

    b.host(op, run, "multiply")


@binds(Accumulate)
def accumulate(b: Binder, op: Accumulate) -> None:
    step = b.array(op.step)
    families = (op.gradients, *op.slots())
    found = [[m.array() for m in each] for each in by_stretch(b.store, *families)]
    scratch = b.scratch_array((max(g.size for g, *_ in found),))
    scale = np.float32(op.scale)

    def run() -> None:
        waiting, ends = op.place(int(step[0]))
        for g, *slots in found:
            target = slots[waiting - ends]
            if not ends:
                np.multiply(g, scale, out=target)
                continue
            total = np.multiply(g, scale, out=scratch[: g.size])
            for level in range(waiting - 1, waiting - ends, -1):
                np.add(slots[level], total, out=total)
            np.add(target, total, out=target)

    b.host(op, run, "add", {"scale": f"{op.scale:g}"})

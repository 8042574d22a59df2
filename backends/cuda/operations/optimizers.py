"""Optimizers, averages, sums of gradients: one launch for all tensors of an operation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ....graph.graph import Tensor
from ....graph.ops import Accumulate, AdamUpdate, Average, ElementwiseUpdate
from ..binding.bind import Binder, binds
from ..binding.store import Buffer
from ..libraries.kernels import THREADS, f32, i32

# Elements that a block works on: four a thread.
PIECE = 4 * THREADS
FILE = "optimizers.cu"
_RULE = [("size", "i4"), ("factor", "f4"), ("decay", "f4"), ("start", "i4")]
_ADAM = np.dtype([(name, "u8") for name in ("p", "g", "m", "v", "copy")] + _RULE)
_MEAN = np.dtype([("a", "u8"), ("p", "u8"), ("copy", "u8"), ("size", "i4"), ("unused", "i4")])
_SUM = np.dtype([("g", "u8"), ("s", "u8"), ("size", "i4"), ("unused", "i4")])


def table(b: Binder, kind: np.dtype[Any], rows: Sequence[tuple[Any, ...]]) -> Any:
    """An array of structures on the device."""
    return b.keep(b.cupy.asarray(np.array(list(rows), kind).view("u1")))


def pieces(b: Binder, sizes: Sequence[int]) -> tuple[Any, list[int]]:
    """(tensor, first element) of every block, on the device, and how many blocks a tensor has."""
    places = [(i, first) for i, size in enumerate(sizes) for first in range(0, size, PIECE)]
    blocks = [-(-size // PIECE) for size in sizes]
    return b.keep(b.cupy.asarray(np.asarray(places, "int32").reshape(-1))), blocks


def like(b: Binder, tensor: Tensor, model: Buffer) -> int:
    """Address of a tensor in the layout of another."""
    return b.want(tensor, model.layout).pointer


@binds(AdamUpdate)
def adam_update(b: Binder, op: AdamUpdate) -> None:
    homes = [b.home(p) for p in op.parameters]
    rows = [
        (
            *(home.pointer, like(b, op.gradients[i], home)),
            *(b.home(op.means[i]).pointer, b.home(op.squares[i]).pointer),
            *(b.store.bf16_pointer(op.parameters[i]), home.layout.size),
            *(op.factor(i), op.weight_decay[i], op.start[i]),
        )
        for i, home in enumerate(homes)
    ]
    where, blocks = pieces(b, [home.layout.size for home in homes])
    arguments = (
        *(table(b, _ADAM, rows), where, b.data(op.rates), b.home(op.step).array),
        *(np.float64(op.beta1), np.float64(op.beta2), f32(op.eps), i32(op.decoupled)),
    )
    shown = {"parameters": len(homes), "beta1": op.beta1, "beta2": op.beta2}
    b.kernel(op, (FILE, "adam_update"), (sum(blocks),), arguments, shown)


def segment(states: int) -> np.dtype[Any]:
    """Segment of elementwise_update.cu, whose array of addresses is never empty."""
    addresses = [(name, "u8") for name in ("p", "g", "copy")]
    return np.dtype([*addresses, ("states", "u8", (max(states, 1),)), *_RULE])


@binds(ElementwiseUpdate)
def elementwise_update(b: Binder, op: ElementwiseUpdate) -> None:
    homes, families = [b.home(p) for p in op.parameters], op.families().values()
    rates, step = b.data(op.rates), b.home(op.step).array
    rows = [
        (
            *(home.pointer, like(b, op.gradients[i], home)),
            b.store.bf16_pointer(op.parameters[i]),
            ([b.home(family[i]).pointer for family in families] or [0]),
            *(home.layout.size, op.factor(i), op.weight_decay[i], op.start[i]),
        )
        for i, home in enumerate(homes)
    ]
    where, blocks = pieces(b, [home.layout.size for home in homes])
    arguments = (table(b, segment(len(families)), rows), where, rates, step)
    b.kernel(
        op,
        ("elementwise_update.cu", "elementwise_update"),
        (sum(blocks),),
        arguments,
        {"parameters": len(homes)},
        defines=(("STATES", len(families)),),
        formula=op.formula,
    )


@binds(Average)
def average(b: Binder, op: Average) -> None:
    homes = [b.home(value) for value in op.values]
    rows = [
        (like(b, a, home), home.pointer, b.store.bf16_pointer(value), home.layout.size, 0)
        for a, value, home in zip(op.averages, op.values, homes, strict=True)
    ]
    where, blocks = pieces(b, [home.layout.size for home in homes])
    decays, step = b.data(op.decays), b.home(op.step).array
    arguments = (table(b, _MEAN, rows), where, decays, step, i32(op.pull))
    shown = {"tensors": len(homes), "pull": op.pull}
    b.kernel(op, (FILE, "average"), (sum(blocks),), arguments, shown)


@binds(Accumulate)
def accumulate(b: Binder, op: Accumulate) -> None:
    homes = [b.home(total) for total in op.sums]
    rows = [
        (like(b, gradient, home), home.pointer, home.layout.size, 0)
        for gradient, home in zip(op.gradients, homes, strict=True)
    ]
    where, blocks = pieces(b, [home.layout.size for home in homes])
    step = b.home(op.step).array
    arguments = (table(b, _SUM, rows), where, step, i32(op.parts), f32(op.scale))
    shown = {"tensors": len(homes), "parts": op.parts}
    b.kernel(op, (FILE, "accumulate"), (sum(blocks),), arguments, shown)

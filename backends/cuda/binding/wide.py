"""Rows of channels that a thread can take eight at a time, and the activation that does."""

from __future__ import annotations

from math import prod
from typing import Any

from ....graph.graph import Op
from ....graph.ops import ACTIVATIONS
from ..libraries.kernels import f32
from ..libraries.layout import Layout
from .bind import Binder
from .buffer import Buffer

EIGHT = 8
# Indices of eights are 32 bits.
MOST_EIGHTS = 1 << 30


def inner(layout: Layout) -> int:
    """How many neighbours in memory share a channel: pixels for NCHW pictures, else 1."""
    planes = len(layout.shape) == 4 and not layout.nhwc
    return prod(layout.shape[2:]) if planes else 1


def row(layout: Layout) -> tuple[int, int]:
    """Channels that count and are stored; a flattened picture's padding is its row's end."""
    axis = min(1, len(layout.shape) - 1)
    return layout.shape[axis], layout.stored[axis]


def kind_of(activation: str | None) -> int:
    """The number of an activation in kernels, -1 for none."""
    return -1 if activation is None else ACTIVATIONS.index(activation)


def in_eights(layout: Layout) -> bool:
    """Whether its elements can be taken eight neighbours at a time, whatever they are."""
    return layout.size % EIGHT == 0 and layout.size // EIGHT <= MOST_EIGHTS


def wide(layout: Layout) -> bool:
    """Whether channels lie beside each other in eights."""
    return inner(layout) == 1 and row(layout)[1] % EIGHT == 0 and in_eights(layout)


def activate_wide(
    b: Binder, op: Op, ends: tuple[Buffer, Any, Buffer], kind: int, alpha: float
) -> None:
    """y = f(x + bias) of ends (x, bias or None, y), which lie alike; kind -1: no f."""
    x, bias, y = ends
    eights, (columns, stored) = y.layout.size // EIGHT, row(y.layout)
    arguments = (x, bias, y, eights, columns, stored // EIGHT, f32(alpha))
    kernel = ("activation.cu", "wide_activation", y.dtype)
    b.kernel(op, kernel, eights, arguments, defines=(("KIND", kind),))

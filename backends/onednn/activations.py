"""ELU and softplus in float32 by NumPy: the library's lose the digits of small results."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...graph.graph import Op
from .bind import Binder
from .memory import Descriptor, Memory

Array = NDArray[Any]
# oneDNN computes e^x - 1 and log(1 + e^x) as they stand. Of an ELU of -1e-3 seven of the 24 bits
# are lost, and a softplus of -24 is 0.
INEXACT = ("elu", "softplus")
# So many numbers at a time, with what lies between, stay in a core's own cache.
_PIECE = 1 << 14


def inexact(kind: str | None, dtype: str) -> bool:
    """Whether an activation is computed here, and not by the library, in results of this type."""
    return kind in INEXACT and dtype == "float32"


def apply(b: Binder, op: Op, kind: str, alpha: float, source: Memory, target: Memory) -> None:
    """Append target = f(source); both in one layout, and may be the same memory."""
    x, y = source.array(), target.array()
    function = _elu if kind == "elu" else _softplus
    one, two = (b.scratch_array((_PIECE,)) for _ in range(2))
    pieces = [slice(at, min(at + _PIECE, len(x))) for at in range(0, len(x), _PIECE)]
    parts = [
        (x[piece], y[piece], one[: piece.stop - piece.start], two[: piece.stop - piece.start])
        for piece in pieces
    ]
    # A channel that only fills up a block must stay zero, and softplus of 0 is not.
    padding = padding_of(target) if kind == "softplus" else None

    def run() -> None:
        for part in parts:
            function(*part, np.float32(alpha))
        if padding is not None:
            padding.fill(0.0)

    return b.host(op, run, "tanh" if kind == "elu" else "exp, log", {"kind": kind})


def _elu(x: Array, y: Array, t: Array, rest: Array, alpha: np.float32) -> None:
    """max(x, 0) + alpha (e^x - 1 below 0), where e^x - 1 = 2 t / (1 - t) with t = tanh(x / 2)."""
    np.minimum(x, 0.0, out=t)
    np.multiply(t, 0.5, out=t)
    np.tanh(t, out=t)
    np.subtract(1.0, t, out=rest)
    np.multiply(t, 2.0 * alpha, out=t)
    np.divide(t, rest, out=t)
    np.maximum(x, 0.0, out=y)
    np.add(y, t, out=y)


def _softplus(x: Array, y: Array, e: Array, u: Array, alpha: np.float32) -> None:
    """max(x, 0) + log u + (e - (u - 1)) / u, with e = e^-|x|, u = 1 + e as rounded."""
    np.abs(x, out=e)
    np.negative(e, out=e)
    np.exp(e, out=e)
    np.add(e, 1.0, out=u)
    np.maximum(x, 0.0, out=y)
    # e becomes e - (u - 1), which is exact.
    np.subtract(e, u - 1.0, out=e)
    np.divide(e, u, out=e)
    np.log(u, out=u)
    np.add(u, e, out=u)
    np.add(y, u, out=y)


def softplus_backward(b: Binder, op: Op, x: Memory, dy: Memory, dx: Memory) -> None:
    """Append dx = dy / (1 + e^-x); all in one layout, dx may be dy's memory."""
    one, two = (b.scratch_array((_PIECE,)) for _ in range(2))
    values, given, result = x.array(), dy.array(), dx.array()

    def run() -> None:
        for at in range(0, len(values), _PIECE):
            piece = slice(at, at + _PIECE)
            v = values[piece]
            e, rest = one[: len(v)], two[: len(v)]
            np.abs(v, out=e)
            np.negative(e, out=e)
            np.exp(e, out=e)
            np.add(e, 1.0, out=rest)
            np.maximum(e, v >= 0, out=e)
            np.divide(e, rest, out=e)
            np.multiply(e, given[piece], out=result[piece])

    return b.host(op, run, "exp", {"kind": "softplus"})


def padding_of(memory: Memory) -> Array | None:
    """The channels of a blocked memory that do not count, None where there are none."""
    shape = memory.descriptor.shape
    numbers = memory.array()
    if len(shape) != 4 or len(numbers) == np.prod(shape):
        return None
    n, c, h, w = shape
    blocked: tuple[tuple[str, int], ...] = (("nChw16c", 16), ("nChw8c", 8))
    (block,) = [size for name, size in blocked if Descriptor.of(shape, name) == memory.descriptor]
    return numbers.reshape(n, -1, h * w, block)[:, -1, :, c % block :]

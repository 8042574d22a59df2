"""Activations: by NumPy in float32 where the library loses digits, else behind another call."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ...graph.graph import Op
from ...graph.ops import RAISED, Add, Conv2d, MatMul
from ..base import Array
from ..reference.pointwise import activate
from .bind import Binder
from .constants import ELTWISE, ELTWISE_NUMBERS, SCALED_TANH
from .library import library
from .memory import Descriptor, Memory
from .primitive import Attributes, Link

# oneDNN computes e^x - 1 and log(1 + e^x) as they stand. Of an ELU of -1e-3 seven of the 24 bits
# are lost, a softplus of -24 is 0, and so is a mish of -17. Of x / 6 + 1/2 the last digits near -3
# are lost, which x + 3 has.
INEXACT = ("elu", "softplus", "hardsigmoid", "hardswish", "mish")
Function = tuple[int, float, float]
# So many numbers at a time, with what lies between, stay in a core's own cache.
_PIECE = 1 << 14


# e^(a^2 / 2) (1 - Phi(a)) as a polynomial in q = (a - 2) / (a + 2), equal at the Chebyshev nodes of
# q; the highest power first. After M. M. Shepherd and J. G. Laframboise, "Chebyshev approximation
# of (1 + 2x) exp(x^2) erfc x in 0 <= x < infinity", Math. Comp. 36 (1981).
_TAIL = (
    *(2.06634704e-5, -2.08947877e-5, -1.75036213e-4, -5.31675396e-5, 6.92746195e-4, 1.22527790e-3),
    *(-1.56565895e-3, -9.30428319e-3, 1.98039878e-3, 9.00510699e-2, -2.50953108e-1, 1.68101996e-1),
)
# Beyond this many standard deviations 1 - Phi is 0 in float32.
_FAR = 16.0


def inexact(kind: str | None, dtype: str) -> bool:
    """Whether an activation is computed here, and not by the library, in results of this type.

    Without AVX-512 the library's GELU is off by seven units in the last place around 0; without
    AVX2 its sigmoid, SiLU and tanh are off by tens of units where they are close to their limits.
    """
    known = (
        kind in INEXACT
        or (kind == "gelu" and not library().has_avx512())
        or (kind in WITHOUT_AVX2 and not library().has_avx2())
    )
    return known and dtype == "float32"


def apply(b: Binder, op: Op, kind: str, alpha: float, source: Memory, target: Memory) -> None:
    """Append target = f(source); both in one layout, and may be the same memory."""
    function, count, name = _FUNCTIONS[kind]
    parts = _in_pieces(b, (source, target), count)
    # A channel that only fills up a block must stay zero; softplus and sigmoid of 0 are not.
    padding = padding_of(target) if kind in RAISED else None

    def run() -> None:
        for part in parts:
            function(*part, np.float32(alpha))
        if padding is not None:
            padding.fill(0.0)

    return b.host(op, run, name, {"kind": kind})


def _in_pieces(b: Binder, memories: Sequence[Memory], count: int) -> list[list[Array]]:
    """The memories and so many arrays to calculate in, piece by piece."""
    arrays = [memory.array() for memory in memories]
    scratch = [b.scratch_array((_PIECE,)) for _ in range(count)]
    starts = range(0, len(arrays[0]), _PIECE)
    pieces = [[array[at : at + _PIECE] for array in arrays] for at in starts]
    return [[*piece, *(each[: len(piece[0])] for each in scratch)] for piece in pieces]


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


def _decay(x: Array, e: Array) -> None:
    """e = e^-|x|."""
    np.abs(x, out=e)
    np.negative(e, out=e)
    np.exp(e, out=e)


def _softplus(x: Array, y: Array, e: Array, u: Array, alpha: np.float32) -> None:
    """max(x, 0) + log u + (e - (u - 1)) / u, with e = e^-|x|, u = 1 + e as rounded."""
    _decay(x, e)
    np.add(e, 1.0, out=u)
    np.maximum(x, 0.0, out=y)
    # e becomes e - (u - 1), which is exact.
    np.subtract(e, u - 1.0, out=e)
    np.divide(e, u, out=e)
    np.log(u, out=u)
    np.add(u, e, out=u)
    np.add(y, u, out=y)


def _gelu(x: Array, y: Array, a: Array, q: Array, tail: Array, alpha: np.float32) -> None:
    """max(x, 0) - a (1 - Phi(a)) with a = |x|."""
    np.abs(x, out=a)
    np.minimum(a, _FAR, out=a)
    np.subtract(a, 2.0, out=q)
    np.add(a, 2.0, out=tail)
    np.divide(q, tail, out=q)
    tail.fill(_TAIL[0])
    for coefficient in _TAIL[1:]:
        np.multiply(tail, q, out=tail)
        np.add(tail, coefficient, out=tail)
    np.multiply(a, a, out=q)
    np.multiply(q, -0.5, out=q)
    np.exp(q, out=q)
    np.multiply(tail, q, out=tail)
    np.multiply(tail, a, out=tail)
    np.maximum(x, 0.0, out=y)
    np.subtract(y, tail, out=y)


def _by_reference(kind: str) -> Callable[..., None]:
    return lambda x, y, alpha: np.copyto(y, activate(kind, x, alpha))


# With each, how many arrays it takes beside x and y, and what explain calls it.
_FUNCTIONS: dict[str, tuple[Callable[..., None], int, str]] = {
    "elu": (_elu, 2, "tanh"),
    "softplus": (_softplus, 2, "exp, log"),
    "gelu": (_gelu, 3, "exp"),
    "tanh": (_by_reference("tanh"), 0, "tanh"),
    **{kind: (_by_reference(kind), 0, "exp") for kind in ("sigmoid", "silu", "mish")},
    **{kind: (_by_reference(kind), 0, "clip") for kind in ("hardsigmoid", "hardswish")},
}
WITHOUT_AVX2 = ("sigmoid", "silu", "tanh")
# Where these are inexact their slopes are the reference's; that of the library's mish overflows.
INEXACT_SLOPES = (*WITHOUT_AVX2, "mish")


def softplus_backward(b: Binder, op: Op, x: Memory, dy: Memory, dx: Memory) -> None:
    """Append dx = dy / (1 + e^-x); all in one layout, dx may be dy's memory."""
    parts = _in_pieces(b, (x, dy, dx), 2)

    def run() -> None:
        for v, given, result, e, rest in parts:
            _decay(v, e)
            np.add(e, 1.0, out=rest)
            np.maximum(e, v >= 0, out=e)
            np.divide(e, rest, out=e)
            np.multiply(e, given, out=result)

    return b.host(op, run, "exp", {"kind": "softplus"})


def padding_of(memory: Memory) -> Array | None:
    """The channels of a blocked memory that do not count, None if there are none."""
    shape = memory.descriptor.shape
    numbers = memory.array()
    if len(shape) != 4 or len(numbers) == np.prod(shape):
        return None
    n, c, h, w = shape
    blocked: tuple[tuple[str, int], ...] = (("nChw16c", 16), ("nChw8c", 8))
    (block,) = [size for name, size in blocked if Descriptor.of(shape, name) == memory.descriptor]
    return numbers.reshape(n, -1, h * w, block)[:, -1, :, c % block :]


def eltwise(kind: str, alpha: float) -> Function:
    """oneDNN's algorithm, alpha and beta of an activation."""
    return ELTWISE[kind], *ELTWISE_NUMBERS.get(kind, (alpha, 0.0))


def links(op: MatMul | Conv2d | Add, dtype: str) -> tuple[Link, ...]:
    """The post-operations that are the activation; ``activate_behind`` does the rest.

    dtype: of the results.
    """
    if op.activation is None or inexact(op.activation, dtype):
        return ()
    if op.activation == "scaled_tanh":
        return SCALED_TANH
    return (eltwise(op.activation, op.activation_alpha),)


def post_ops(op: MatMul | Conv2d | Add, dtype: str) -> Attributes | None:
    """``links`` as a primitive takes them along."""
    chain = links(op, dtype)
    return Attributes(chain=chain) if chain else None


def activate_behind(b: Binder, op: MatMul | Conv2d | Add, result: Memory) -> None:
    """Append the activation that no post-operation computes well enough."""
    if op.activation is not None and inexact(op.activation, result.descriptor.dtype):
        apply(b, op, op.activation, op.activation_alpha, result, result)

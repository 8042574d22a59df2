"""Local response normalisation by cuDNN, across channels and around a pixel.

cuDNN wants float32 in planes. Across channels a kernel of ours, slower by itself, takes pictures as
they lie, which saves more in conversions.
"""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import c_void_p

from ....graph.graph import Tensor
from ....graph.ops import DivisiveNorm, DivisiveNormBackward, Lrn, LrnBackward
from ..binding.bind import Binder, binds
from ..binding.buffer import Buffer
from ..libraries.cudnn_library import ONLY_MODE
from ..libraries.kernels import THREADS, blocks_for, f32
from ..libraries.layout import Layout
from ..libraries.runtime import address_of
from .norm import channels_last

# Enough to fill the largest GPU.
LRN_BLOCKS = 2112
LocalNorm = Lrn | LrnBackward | DivisiveNorm | DivisiveNormBackward


def _shown(op: LocalNorm) -> dict[str, object]:
    return {"size": op.size, "alpha": op.alpha, "beta": op.beta, "k": op.k}


def _call(
    b: Binder,
    op: LocalNorm,
    function: str,
    tensors: Sequence[Buffer],
    pointers: Sequence[object],
    result: Tensor,
    *end: None,
) -> None:
    """A call of cuDNN: tensors behind their descriptors, pointers, the result, the end."""
    cudnn, tensor = b.stream.cudnn, b.stream.cudnn.plain(op.x.shape)
    norm, shown = cudnn.lrn(op.size, op.alpha, op.beta, op.k), {"x": op.x.shape, **_shown(op)}
    operands = [part for each in tensors for part in (tensor, each)]
    given = (norm, ONLY_MODE, cudnn.one, *operands, *pointers, cudnn.zero, tensor)
    b.cudnn(op, function, (*given, b.output(result), *end), shown, **shown)


def _as_they_lie(b: Binder, op: Lrn | LrnBackward, dtype: str) -> Layout | None:
    """The layout for the kernel of ours, or None if the library's plain layout is to be used."""
    if not b.arithmetic.fusion or not b.geometry.nhwc:
        return None
    layout = channels_last(b, op.x, dtype)
    return layout if layout.columns // 4 <= THREADS else None


def _own(b: Binder, op: Lrn | LrnBackward, name: str, layout: Layout, *ends: Buffer) -> None:
    rows, groups = layout.size // layout.columns, layout.columns // 4
    blocks = blocks_for(rows, THREADS // groups, LRN_BLOCKS)
    rule = (op.size // 2, f32(op.alpha / op.size), f32(op.beta), f32(op.k))
    kernel = ("lrn.cu", name, layout.dtype)
    b.kernel(op, kernel, (blocks,), (*ends, rows, groups, *rule), _shown(op))


@binds(Lrn)
def lrn(b: Binder, op: Lrn) -> None:
    layout = _as_they_lie(b, op, b.number(op.y))
    if layout is not None:
        return _own(b, op, "lrn_forward", layout, b.want(op.x, layout), b.output(op.y, layout))
    return _call(b, op, "cudnnLRNCrossChannelForward", [b.floats(op.x)], (), op.y)


@binds(LrnBackward)
def lrn_backward(b: Binder, op: LrnBackward) -> None:
    layout = _as_they_lie(b, op, b.number(op.dx))
    if layout is not None:
        ends = [b.want(each, layout) for each in (op.x, op.y, op.dy)]
        return _own(b, op, "lrn_backward", layout, *ends, b.output(op.dx, layout))
    x, y, dy = (b.floats(each) for each in (op.x, op.y, op.dy))
    return _call(b, op, "cudnnLRNCrossChannelBackward", [y, dy, x], (), op.dx)


@binds(DivisiveNorm)
def divisive_norm(b: Binder, op: DivisiveNorm) -> None:
    x, function = b.floats(op.x), "cudnnDivisiveNormalizationForward"
    _call(b, op, function, [x], (None, *_scratch(b, op)), op.y)


@binds(DivisiveNormBackward)
def divisive_norm_backward(b: Binder, op: DivisiveNormBackward) -> None:
    x, dy, function = b.floats(op.x), b.floats(op.dy), "cudnnDivisiveNormalizationBackward"
    # The library computes forward's output again; it is held all the same.
    b.home(op.y)
    _call(b, op, function, [x], (None, dy, *_scratch(b, op)), op.dx, None)


def _scratch(b: Binder, op: DivisiveNorm | DivisiveNormBackward) -> list[c_void_p]:
    """Two tensors that the library works in."""
    return [c_void_p(address_of(b.scratch(op.x.size, "float32"))) for _ in range(2)]

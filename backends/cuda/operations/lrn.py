"""Local response normalisation by cuDNN, across channels and around a pixel.

cuDNN wants float32 in planes. Across channels a kernel of ours, slower by itself, takes pictures as
they lie, which saves more in conversions.
"""

from __future__ import annotations

from ctypes import c_int, c_void_p
from functools import partial
from typing import Any

from ....graph.ops import DivisiveNorm, DivisiveNormBackward, Lrn, LrnBackward
from ..binding.bind import Binder, binds
from ..libraries.cudnn_library import ACROSS_CHANNELS, PRECOMPUTED_MEANS
from ..libraries.kernels import THREADS, f32, i32
from ..libraries.layout import Layout
from .norm import channels_last

# Enough to fill the largest GPU.
LRN_BLOCKS = 2112
LocalNorm = Lrn | LrnBackward | DivisiveNorm | DivisiveNormBackward


def _descriptors(b: Binder, op: LocalNorm) -> tuple[c_void_p, c_void_p]:
    """The normalisation's, and that of every tensor: plain NCHW."""
    cudnn = b.stream.cudnn
    n, c, h, w = op.x.shape
    norm = b.keep(cudnn.lrn(op.size, op.alpha, op.beta, op.k))
    tensor = b.keep(cudnn.tensor(op.x.shape, (c * h * w, h * w, w, 1)))
    return c_void_p(norm.handle), c_void_p(tensor.handle)


def _call(b: Binder, op: LocalNorm, function: str, arguments: tuple[Any, ...]) -> None:
    cudnn = b.stream.cudnn
    shown = {"x": op.x.shape, "size": op.size, "alpha": op.alpha, "beta": op.beta, "k": op.k}
    launch = partial(cudnn.call, function, c_void_p(cudnn.handle), *arguments, **shown)
    b.add(op, "cuDNN", function, launch, shown)


def _as_they_lie(b: Binder, op: Lrn | LrnBackward, dtype: str) -> Layout | None:
    """The layout for the kernel of ours, or None if the library's plain layout is to be used."""
    if not b.arithmetic.fusion or not b.geometry.nhwc:
        return None
    layout = channels_last(b, op.x, dtype)
    return layout if layout.stored[1] // 4 <= THREADS else None


def _own(b: Binder, op: Lrn | LrnBackward, name: str, layout: Layout, arrays: list[Any]) -> None:
    rows, groups = layout.size // layout.stored[1], layout.stored[1] // 4
    blocks = max(1, min(LRN_BLOCKS, -(-rows // (THREADS // groups))))
    numbers = (i32(rows), i32(groups), i32(op.size // 2))
    rule = (f32(op.alpha / op.size), f32(op.beta), f32(op.k))
    kernel = ("lrn.cu", name, layout.dtype)
    shown = {"size": op.size, "alpha": op.alpha, "beta": op.beta, "k": op.k}
    b.kernel(op, kernel, (blocks,), (*arrays, *numbers, *rule), shown)


@binds(Lrn)
def lrn(b: Binder, op: Lrn) -> None:
    layout = _as_they_lie(b, op, b.number(op.y))
    if layout is not None:
        arrays = [b.want(op.x, layout).array, b.output(op.y, layout).array]
        return _own(b, op, "lrn_forward", layout, arrays)
    norm, tensor = _descriptors(b, op)
    x, y, cudnn = b.floats(op.x), b.output(op.y), b.stream.cudnn
    arguments = (
        *(norm, c_int(ACROSS_CHANNELS), cudnn.one, tensor, c_void_p(x.pointer)),
        *(cudnn.zero, tensor, c_void_p(y.pointer)),
    )
    return _call(b, op, "cudnnLRNCrossChannelForward", arguments)


@binds(LrnBackward)
def lrn_backward(b: Binder, op: LrnBackward) -> None:
    layout = _as_they_lie(b, op, b.number(op.dx))
    if layout is not None:
        arrays = [b.want(each, layout).array for each in (op.x, op.y, op.dy)]
        arrays.append(b.output(op.dx, layout).array)
        return _own(b, op, "lrn_backward", layout, arrays)
    norm, tensor = _descriptors(b, op)
    x, y, dy = (b.floats(each) for each in (op.x, op.y, op.dy))
    dx, cudnn = b.output(op.dx), b.stream.cudnn
    operands = [part for each in (y, dy, x) for part in (tensor, c_void_p(each.pointer))]
    arguments = (
        *(norm, c_int(ACROSS_CHANNELS), cudnn.one, *operands),
        *(cudnn.zero, tensor, c_void_p(dx.pointer)),
    )
    return _call(b, op, "cudnnLRNCrossChannelBackward", arguments)


@binds(DivisiveNorm)
def divisive_norm(b: Binder, op: DivisiveNorm) -> None:
    norm, tensor = _descriptors(b, op)
    x, y, cudnn = b.floats(op.x), b.output(op.y), b.stream.cudnn
    arguments = (
        *(norm, c_int(PRECOMPUTED_MEANS), cudnn.one, tensor, c_void_p(x.pointer), c_void_p()),
        *(*_scratch(b, op), cudnn.zero, tensor, c_void_p(y.pointer)),
    )
    _call(b, op, "cudnnDivisiveNormalizationForward", arguments)


@binds(DivisiveNormBackward)
def divisive_norm_backward(b: Binder, op: DivisiveNormBackward) -> None:
    norm, tensor = _descriptors(b, op)
    x, dy = b.floats(op.x), b.floats(op.dy)
    # The library computes forward's output again; it is held all the same.
    b.home(op.y)
    dx, cudnn = b.output(op.dx), b.stream.cudnn
    arguments = (
        *(norm, c_int(PRECOMPUTED_MEANS), cudnn.one, tensor, c_void_p(x.pointer), c_void_p()),
        *(c_void_p(dy.pointer), *_scratch(b, op), cudnn.zero, tensor, c_void_p(dx.pointer)),
        c_void_p(),
    )
    _call(b, op, "cudnnDivisiveNormalizationBackward", arguments)


def _scratch(b: Binder, op: DivisiveNorm | DivisiveNormBackward) -> tuple[c_void_p, c_void_p]:
    """Two tensors that the library works in."""
    both = [b.scratch(op.x.size, "float32") for _ in range(2)]
    return c_void_p(int(both[0].data.ptr)), c_void_p(int(both[1].data.ptr))

"""Batch norm by oneDNN's primitive; its running statistics, a few numbers per channel, by NumPy.

In float32 the sums over the batch are put together from short ones: ``norm_sums.py`` says how,
``norm_runs.py`` holds them, and docs/testing.md why. Of few values NumPy computes all of it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ...graph import ops
from ...graph.graph import Tensor
from ..base import Array
from .bind import BOTH, Binder, binds
from .constants import BACKWARD, FORWARD_INFERENCE, FORWARD_TRAINING
from .convolution import candidate_layouts, wanted_layout
from .fallback import reference
from .library import library
from .memory import Descriptor, Memory
from .norm_runs import norm_flags
from .norm_sums import backward, forward
from .primitive import NoFastKernel, PrimitiveDesc, first_fast

Norm = ops.BatchNorm | ops.BatchNormInference | ops.BatchNormBackward
# The library's own knows ReLU alone.
KNOWN = (None, "relu")
# Up to so many values NumPy takes about as long, and its sums in float64 are exact. In a few runs
# of values far from zero the roundings of their means do not average out.
FEW, FEW_SUMS = 6000, "in float64, because the roundings of few sums do not average out"


def _is_few(b: Binder, op: Norm) -> bool:
    return b.dtype == "float32" and op.x.size <= FEW


def _input(b: Binder, tensor: Tensor, layout: Descriptor) -> Memory:
    if len(tensor.shape) == 4:
        return b.want(tensor, layout)
    return b.want(tensor, Descriptor.of(tensor.shape, "plain", layout.dtype)).view(layout)


def _output(b: Binder, tensor: Tensor, layout: Descriptor) -> Memory:
    if len(tensor.shape) == 4:
        return b.output(tensor, layout)
    return b.output(tensor, Descriptor.of(tensor.shape, "plain", layout.dtype)).view(layout)


def _over(b: Binder, source: Tensor, memory: Memory, target: Tensor) -> Memory | None:
    """The source's memory for the target, if it is no longer needed: it touches less memory."""
    if len(source.shape) != 4 or not b.may_overwrite(source):
        return None
    b.overwritten.add(source)
    written = memory.view(memory.descriptor)
    b.alias(target, written)
    return written


def _flags(op: Norm, shift: bool, given: bool = False) -> int:
    return norm_flags(given, op.weight is not None, shift, bool(op.activation))


def _forward_desc(
    b: Binder, op: Norm, prop: int, flags: int, first: Descriptor | None = None
) -> PrimitiveDesc:
    """Forward in the ``first`` layout or the one that x has, else in one of the favourites."""
    if op.activation not in KNOWN:
        raise NoFastKernel
    shape = op.x.shape if len(op.x.shape) == 4 else (*op.x.shape, 1, 1)
    layouts = [b.layout(shape, name) for name in (*candidate_layouts(), "nchw")]
    if len(op.x.shape) == 4:
        layouts.insert(0, b.source(op.x).descriptor if first is None else first)
    else:
        # Pictures of one pixel, in a layout whose bytes are those of the flat samples.
        layouts = [b.layout(shape, "nhwc")]
    candidates = [(prop, layout, layout, op.eps, flags, None) for layout in layouts]
    return first_fast("batch_normalization_forward", candidates, {"src": op.x.shape})


def _affine(b: Binder, op: Norm) -> dict[str, Memory]:
    """Scale and shift, as far as the operation has them."""
    shift = None if isinstance(op, ops.BatchNormBackward) else op.bias
    given = {"scale": op.weight, "shift": shift}
    return {name: b.home(tensor) for name, tensor in given.items() if tensor is not None}


def _details(op: Norm) -> dict[str, object]:
    return {"fused": op.activation} if op.activation else {}


@binds(ops.BatchNorm, dtypes=BOTH)
def batch_norm(b: Binder, op: ops.BatchNorm) -> None:
    if _is_few(b, op):
        return reference(b, op, FEW_SUMS, exact=True)
    return _with_exact_sums(b, op) if b.dtype == "float32" else by_library(b, op)


def by_library(b: Binder, op: ops.BatchNorm) -> None:
    """Bind the library's primitive as it is, in the type of the binder."""
    flags = _flags(op, op.bias is not None)
    desc = _forward_desc(b, op, FORWARD_TRAINING, flags)
    layout = desc.descriptor("src")
    channels = Descriptor.of(op.mean.shape)
    mean, variance = b.output(op.mean, channels), b.scratch(channels)
    arguments = {
        "src": _input(b, op.x, layout),
        "dst": _output(b, op.y, layout),
        "mean": mean,
        "variance": variance,
        **_affine(b, op),
    }
    workspace = b.scratch(desc.descriptor("workspace")) if op.activation else None
    if workspace is not None:
        arguments["workspace"] = workspace
    b.forwards[op.mean] = (desc, workspace)
    b.variances[op.mean] = variance
    b.primitive(op, desc, arguments, _details(op))

    means, variances = mean.array(), variance.array()
    inverse_std = b.output(op.inverse_std, channels).array()
    count = op.x.size // op.x.shape[1]
    kept, new = np.float32(1.0 - op.momentum), np.float32(op.momentum)
    unbiased = np.float32(op.momentum * count / (count - 1))
    eps = np.float32(op.eps)

    def moved() -> tuple[Array, Array]:
        return kept * running[0] + new * means, kept * running[1] + unbiased * variances

    running, leave = _leaving(b, op, variances, moved)

    def run() -> None:
        leave()
        np.divide(1.0, np.sqrt(variances + eps), out=inverse_std)

    b.host(op, run, "multiply, sqrt", {"channels": str(len(means))})


def _leaving(
    b: Binder, op: ops.BatchNorm, variance: Array, moved: Callable[[], tuple[Array, Array]]
) -> tuple[list[Array], Callable[[], None]]:
    """The running statistics, and a function that sets them to what ``moved`` says.

    For a part of a batch there are none, and the function leaves the variance for later.
    """
    if op.var is not None:
        left = b.output(op.var, Descriptor.of(op.mean.shape)).array()
        return [], lambda: np.copyto(left, variance)
    running = [b.home(t).array() for t in (op.running_mean, op.running_var) if t is not None]

    def move() -> None:
        for array, now in zip(running, moved(), strict=True):
            array[:] = now

    return running, move


def _blocked_behind(b: Binder, op: ops.BatchNorm) -> Descriptor | None:
    """Blocks of channels if a convolution behind wants them: channels last are slower here, and
    the same copy is made before as would be made behind."""
    blocked, shape = candidate_layouts()[0], op.x.shape
    convolutions = [r for r in b.graph.consumers(op.y) if isinstance(r, ops.Conv2d)]
    wanted = any(wanted_layout(r, b.choices) == blocked for r in convolutions)
    whole = shape[1] % library().lanes() == 0
    return Descriptor.of(shape, blocked) if wanted and whole else None


def _with_exact_sums(b: Binder, op: ops.BatchNorm) -> None:
    flags = _flags(op, op.bias is not None, given=True)
    desc = _forward_desc(b, op, FORWARD_INFERENCE, flags, _blocked_behind(b, op))
    layout = desc.descriptor("src")
    forward(b, op, _input(b, op.x, layout), lambda: _output(b, op.y, layout))


@binds(ops.BatchNormInference, dtypes=BOTH)
def batch_norm_inference(b: Binder, op: ops.BatchNormInference) -> None:
    flags = _flags(op, op.bias is not None, given=True)
    desc = _forward_desc(b, op, FORWARD_INFERENCE, flags)
    layout = desc.descriptor("src")
    x = _input(b, op.x, layout)
    arguments = {
        "src": x,
        "dst": _over(b, op.x, x, op.y) or _output(b, op.y, layout),
        "mean": b.home(op.running_mean),
        "variance": b.home(op.running_var),
        **_affine(b, op),
    }
    b.primitive(op, desc, arguments, _details(op))


@binds(ops.BatchNormInferenceBackward, dtypes=BOTH)
def batch_norm_inference_backward(b: Binder, op: ops.BatchNormInferenceBackward) -> None:
    """Inference of the gradient, as if its mean were 0."""
    variance = op.running_var
    like = ops.BatchNormInference(
        x=op.dy, y=op.dx, running_mean=variance, running_var=variance, eps=op.eps, weight=op.weight
    )
    desc = _forward_desc(b, like, FORWARD_INFERENCE, _flags(like, False, given=True))
    layout = desc.descriptor("src")
    dy = _input(b, op.dy, layout)
    arguments = {
        "src": dy,
        "dst": _over(b, op.dy, dy, op.dx) or _output(b, op.dx, layout),
        "mean": b.constant(Descriptor.of(variance.shape), 0.0),
        "variance": b.home(variance),
        **_affine(b, like),
    }
    b.primitive(op, desc, arguments)


@binds(ops.BatchNormBackward, dtypes=BOTH)
def batch_norm_backward(b: Binder, op: ops.BatchNormBackward) -> None:
    if _is_few(b, op):
        return reference(b, op, FEW_SUMS, exact=True)
    if b.dtype == "float32" and op.activation in KNOWN:
        return _backward_with_exact_sums(b, op)
    return backward_by_library(b, op)


def backward_by_library(b: Binder, op: ops.BatchNormBackward) -> None:
    """The gradient of ``by_library``."""
    flags = _flags(op, op.db is not None)
    known = b.forwards.get(op.mean)
    if op.activation not in KNOWN or (known is None and op.activation):
        # The mask of forward lies in its workspace alone.
        raise NoFastKernel
    hint = known[0] if known is not None else _forward_desc(b, op, FORWARD_TRAINING, flags)
    layout = hint.descriptor("src")
    backward = (BACKWARD, layout, layout, layout, op.eps, flags, hint, None)
    desc = first_fast("batch_normalization_backward", [backward], {"src": layout})
    channels = Descriptor.of(op.mean.shape)
    dy = _input(b, op.dy, layout)
    arguments = {
        "src": _input(b, op.x, layout),
        "diff_dst": dy,
        "diff_src": _over(b, op.dy, dy, op.dx) or _output(b, op.dx, layout),
        "mean": b.plain(op.mean),
        "variance": b.variances.get(op.mean) or _variance(b, op),
        **_affine(b, op),
    }
    if op.weight is not None:
        dw = op.dw
        arguments["diff_scale"] = b.scratch(channels) if dw is None else b.output(dw, channels)
    if op.db is not None:
        arguments["diff_shift"] = b.output(op.db, channels)
    if known is not None and known[1] is not None:
        arguments["workspace"] = known[1]
    b.primitive(op, desc, arguments, _details(op))


def _backward_with_exact_sums(b: Binder, op: ops.BatchNormBackward) -> None:
    known = b.normalized.get(op.mean)
    first = None if known is None else known.layout
    flags = norm_flags(given=True, scale=True, shift=True)
    desc = _forward_desc(b, op, FORWARD_INFERENCE, flags, first)
    layout = desc.descriptor("src")
    x, dy = _input(b, op.x, layout), _input(b, op.dy, layout)
    y = _input(b, op.y, layout) if op.activation and op.y is not None else None

    def target() -> Memory:
        written = None
        if y is not None and op.y is not None and known is not None and known.mask is not None:
            # The gradient that the ReLU passes is written past the caches: slow where dy lies.
            written = _over(b, op.y, y, op.dx)
        written = written or _over(b, op.dy, dy, op.dx)
        if y is None:
            # Otherwise that gradient is written before the last time that x is read.
            written = written or _over(b, op.x, x, op.dx)
        return written or _output(b, op.dx, layout)

    backward(b, op, x, dy, y, target)


def _variance(b: Binder, op: ops.BatchNormBackward) -> Memory:
    """The variance that a section without the forward operation must work out."""
    memory = b.scratch(Descriptor.of(op.mean.shape))
    variance, inverse_std = memory.array(), b.plain(op.inverse_std).array()

    def run() -> None:
        variance[:] = 1.0 / np.square(inverse_std) - op.eps

    b.host(op, run, "square")
    return memory

"""Whether oneDNN's primitive for a filter gradient is right: what is known of it, and a trial."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

import numpy as np

from ...graph.graph import Tensor
from ...graph.ops import Conv2dBackwardFilter
from ..known import Numbers, numbers, product, result
from .library import library
from .memory import ALIGNMENT, Descriptor, Memory
from .primitive import Attributes, NoFastKernel, Primitive, PrimitiveDesc, copy

Describe = Callable[[Conv2dBackwardFilter, Attributes], PrimitiveDesc]

# Channels in a vector, and output columns that jit_bf16 computes in one go.
VECTOR = 16
COLUMNS = 28
GUARD = 1 << 16
UNTOUCHED = 0xFF  # bytes of a NaN, in float32 and in bfloat16
CLOSE = 1e-3

_passed: dict[tuple[object, ...], bool] = {}


def is_right(op: Conv2dBackwardFilter, desc: PrimitiveDesc, describe: Describe) -> bool:
    """Whether a filter gradient's primitive may be used: no known fault, and a trial went well.

    ``describe(op, attributes)`` makes such a primitive descriptor again. A geometry is tried once
    in a process.
    """
    if has_known_fault(op, desc):
        return False
    arguments = ["src", "diff_dst", "diff_weights"]
    arguments += ["diff_bias"] if op.bias_grad is not None else []
    layouts = tuple(str(desc.descriptor(argument)) for argument in arguments)
    key = (desc.implementation, layouts, op.window, op.groups, library().threads())
    if key not in _passed:
        _passed[key] = passes(op, desc, describe)
    return _passed[key]


def has_known_fault(op: Conv2dBackwardFilter, desc: PrimitiveDesc) -> bool:
    """Whether oneDNN 3.2 is known to be wrong here; docs/testing.md says how that was found.

    jit_bf16 leaves values of earlier calls where a picture is narrower than the stride, or reads
    beyond the picture's memory. With channels last it does so too where rows are dilated, output
    rows longer than it computes in one go, and channels no multiple of a vector, unless they are
    so few that it has another kernel for them. The strided 1x1 kernels, of float32 too, overrun
    their scratchpad where channels are last and fewer than a vector.
    """
    kernel = desc.implementation.partition(":")[0]
    source = desc.descriptor("src")
    channels = op.x.shape[1] // op.groups
    last = source == Descriptor.of(op.x.shape, "nhwc", source.dtype)
    if kernel == "jit_bf16":
        if op.x.shape[3] < op.window.stride[1]:
            return True
        partial = channels % VECTOR != 0 and (op.groups > 1 or channels > VECTOR)
        return last and partial and op.window.dilation[0] > 1 and op.dy.shape[3] > COLUMNS
    if kernel in ("jit_1x1", "jit_bf16_1x1"):
        return last and channels < VECTOR and op.window.stride != (1, 1)
    return False


def passes(op: Conv2dBackwardFilter, desc: PrimitiveDesc, describe: Describe) -> bool:
    """Run a primitive once on numbers whose filter gradient is known, in memory full of NaN.

    What it writes, its scratchpad, and what lies around all of its memory start as NaN, which must
    neither show in the result nor be gone from around it.
    """
    attributes = Attributes(own_scratchpad=True)
    # A short batch: as many pictures as have work for every thread.
    few = min(op.x.shape[0], max(2, library().threads()))
    for short in (replace(op, x=_batch(op.x, few), dy=_batch(op.dy, few)), op):
        with suppress(NoFastKernel):
            tried = describe(short, attributes)
            if short is op or tried.implementation == desc.implementation:
                break
    else:
        # There is none that lets its scratchpad be given, so nothing can be said.
        return True
    wanted = _wanted(short)
    inputs = {"src": short.x, "diff_dst": short.dy}
    guarded = {argument: _Guarded(tried.descriptor(argument)) for argument in (*inputs, *wanted)}
    scratchpad = tried.descriptor("scratchpad")
    if scratchpad.nbytes:
        # A kernel that takes every block of channels for a full one overruns in proportion.
        guarded["scratchpad"] = _Guarded(scratchpad, scratchpad.nbytes)
    for argument, tensor in inputs.items():
        guarded[argument].store(product(numbers(tensor.shape[1:])), tensor)
    primitive = Primitive(tried, {argument: each.memory for argument, each in guarded.items()})
    status = library().execute(*primitive.call)
    library().call("stream_wait", library().stream.handle)
    primitive.close()
    if status or not all(each.is_intact() for each in guarded.values()):
        return False
    gradients = ((guarded[argument].load(), value) for argument, value in wanted.items())
    # Few sums are beyond 2^24, up to which float32 counts exactly; no comparison holds for NaN.
    return all(bool((np.abs(got - want) <= CLOSE * want).all()) for got, want in gradients)


def _batch(tensor: Tensor, count: int) -> Tensor:
    return replace(tensor, shape=(count, *tensor.shape[1:]))


def _wanted(op: Conv2dBackwardFilter) -> dict[str, Numbers]:
    """The gradients: along each axis a sum of its own, and their products."""
    channels, *lines = result("filter", op.x.shape, op.dw.shape, op.dy.shape, op.window)
    wanted = {"diff_weights": product((channels.ravel(), *lines)).ravel()}
    if op.bias_grad is not None:
        of_dy, *axes = numbers(op.dy.shape[1:])
        wanted["diff_bias"] = np.float32(op.x.shape[0]) * axes[0].sum() * axes[1].sum() * of_dy
    return wanted


class _Guarded:
    """A memory of NaN among NaN, given back too soon to count in host_memory.py."""

    def __init__(self, descriptor: Descriptor, further: int = 0) -> None:
        nbytes, guard = max(descriptor.nbytes, 4), GUARD + further
        raw = np.full(nbytes + 2 * guard + ALIGNMENT, UNTOUCHED, np.uint8)
        start = guard + -(raw.ctypes.data + guard) % ALIGNMENT
        self._around = raw[:start], raw[start + nbytes :]
        self.memory = Memory(descriptor, raw[start : start + nbytes])

    def store(self, picture: Numbers, tensor: Tensor) -> None:
        """Fill a batch with one picture."""
        source = _Guarded(Descriptor.of(tensor.shape)).memory
        source.array(tensor.shape)[...] = picture
        copy(source, self.memory)

    def load(self) -> Numbers:
        """All values in row-major order."""
        target = _Guarded(Descriptor.of(self.memory.descriptor.shape)).memory
        copy(self.memory, target)
        return target.array()

    def is_intact(self) -> bool:
        return all(bool((each == UNTOUCHED).all()) for each in self._around)

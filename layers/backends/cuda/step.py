"""The two ends of a step: gathering its batch, updating the parameters."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import groupby
from typing import Any

from ...graph import Tensor
from ...ops import Advance, ClipByNorm, GatherBatch, GlobalNorm, SgdUpdate
from .bind import Binder, binds
from .kernels import THREADS, f32, i32, i64, launcher, linear, one_block
from .runtime import cupy

PARTIAL_SUMS = 256


@binds(GatherBatch)
def gather_batch(b: Binder, op: GatherBatch) -> None:
    n, channels, height, width = op.x.shape
    order = b.data(op.order)
    x = b.output(op.x, b.layout)
    scale, shift = (b.keep(cupy().asarray(v, "float32")) for v in (op.scale, op.shift))
    arguments = (
        *(b.data(op.images), b.data(op.labels), order, b.home(op.step).array),
        *(x.array, b.output(op.target).array, scale, shift),
        *(i32(n), i32(max(order.size // n, 1)), i32(channels), i32(height * width)),
        i32(b.layout == "nhwc"),
    )
    b.kernel(op, "gather_batch", linear("gather_batch", op.x.size, arguments))


@binds(GlobalNorm)
def global_norm(b: Binder, op: GlobalNorm) -> None:
    gradients = b.store.stretch(_arena_order(b, op.gradients))
    sums = b.keep(cupy().empty(PARTIAL_SUMS, "float64"))
    arguments = (gradients, i64(gradients.size), sums)
    launch = launcher("square_sums", PARTIAL_SUMS, THREADS, arguments, THREADS * 8)
    b.kernel(op, "square_sums", launch)
    norm = b.output(op.norm).array
    b.kernel(op, "norm_of", one_block("norm_of", (sums, i32(PARTIAL_SUMS), norm)))


@binds(ClipByNorm)
def clip_by_norm(b: Binder, op: ClipByNorm) -> None:
    gradients = b.store.stretch(_arena_order(b, op.gradients))
    factor = b.keep(cupy().empty(1, "float32"))
    arguments = (b.home(op.norm).array, f32(op.max_norm), factor)
    b.kernel(op, "clip_factor", launcher("clip_factor", 1, 1, arguments))
    scale = partial(
        b.libraries.cublas.sscal, gradients.size, int(factor.data.ptr), int(gradients.data.ptr)
    )
    b.add(op, "cuBLAS", "cublasSscal", scale, {"n": gradients.size})


def _arena_order(b: Binder, tensors: Sequence[Tensor]) -> list[Tensor]:
    return sorted(tensors, key=lambda tensor: b.store.spans[tensor][1])


@binds(SgdUpdate)
def sgd_update(b: Binder, op: SgdUpdate) -> None:
    """Plain SGD is cublasSscal and cublasSaxpy; with momentum one kernel of ours."""
    rates, steps = b.data(op.rates), b.home(op.step).array
    for decay, members in update_runs(op):
        parameters = b.store.stretch([op.parameters[i] for i in members])
        gradients = b.store.stretch([op.gradients[i] for i in members])
        size = parameters.size
        if not op.momentum:
            _saxpy(b, op, decay, parameters, gradients, rates, steps)
            continue
        velocity = b.store.stretch([op.buffers[i] for i in members])
        arguments = (
            *(parameters, gradients, velocity, i64(size), rates, steps),
            *(f32(decay), f32(op.momentum), i32(op.nesterov)),
        )
        details = {"n": size, "weight_decay": decay, "momentum": op.momentum}
        b.kernel(op, "sgd_update", linear("sgd_update", size, arguments), details)


def _saxpy(b: Binder, op: SgdUpdate, decay: float, p: Any, g: Any, rates: Any, steps: Any) -> None:
    """p = (1 - lr decay) p - lr g over device arrays p and g."""
    factors = b.keep(cupy().empty(2, "float32"))
    arguments = (rates, steps, f32(decay), factors)
    b.kernel(op, "sgd_factors", launcher("sgd_factors", 1, 1, arguments))
    size, target, source = int(p.size), int(p.data.ptr), int(g.data.ptr)
    minus_rate, keep = (int(factors[i : i + 1].data.ptr) for i in (0, 1))
    cublas = b.libraries.cublas
    if decay:
        b.add(op, "cuBLAS", "cublasSscal", partial(cublas.sscal, size, keep, target), {"n": size})
    launch = partial(cublas.saxpy, size, minus_rate, source, target)
    b.add(op, "cuBLAS", "cublasSaxpy", launch, {"n": size})


def update_runs(op: SgdUpdate) -> list[tuple[float, list[int]]]:
    """Stretches of parameters with one weight decay, as they lie side by side in the arena."""
    order = sorted(range(len(op.parameters)), key=lambda i: -op.weight_decay[i])
    grouped = groupby(order, key=lambda i: op.weight_decay[i])
    return [(decay, list(members)) for decay, members in grouped]


@binds(Advance)
def advance(b: Binder, op: Advance) -> None:
    arguments = (b.home(op.step).array,)
    b.kernel(op, "advance", launcher("advance", 1, 1, arguments))

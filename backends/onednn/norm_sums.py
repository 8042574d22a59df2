"""Batch norm in float32 with sums as float64 has them; norm_runs.py makes the sums."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ...graph.ops import BatchNorm, BatchNormBackward
from ..base import Array
from .bind import Binder
from .constants import BINARY, ELTWISE_FROM_OUTPUT, FORWARD_INFERENCE, FORWARD_TRAINING
from .memory import Descriptor, Memory
from .norm_add import leave
from .norm_kept import Normalized
from .norm_runs import Norm, Runs, halves, norm_flags, normalization, sums_of
from .norm_small import Gradients, Scales, Statistics, gradients, scales, statistics
from .pieces import by_pieces, is_by_sample
from .primitive import Attributes, NoFastKernel, PrimitiveDesc, first_fast


def forward(b: Binder, op: BatchNorm, x: Memory, place: Callable[[], Memory]) -> None:
    """Append batch norm with its statistics; y is ``place()``'s memory.

    What a ReLU lets pass is noted if its gradient will be needed. Raises NoFastKernel.
    """
    runs = Runs(b, op, x.descriptor, is_by_sample(b, x))
    readers = [r for r in b.graph.consumers(op.mean) if isinstance(r, BatchNormBackward)]
    noted = any(reader.activation for reader in readers)
    gradient = Runs(b, op, x.descriptor) if readers else runs
    normalize, measure = _normalize(runs, op, noted), normalization(runs.piece)
    mask = b.scratch(normalize.descriptor("workspace")) if noted else None
    if mask is not None and not _fits(gradient, mask):
        raise NoFastKernel
    mean, variance = _measure(b, op, runs, measure, x)
    # Not by readers: what is computed again must have the same bits.
    if not b.graph.training or not leave(b, op, runs, x, mean, variance):
        given, y = _given(b, op, runs, mean, variance), place()
        if mask is not None:
            given["workspace"] = mask
        ends = {"src": x.view(runs.normal), "dst": y.view(runs.normal)}
        details = {"fused": op.activation} if op.activation else {}
        b.primitive(op, normalize, {**ends, **given}, details)
    _statistics(b, op, mean.array(), variance.array(), late=bool(readers))
    if readers:
        b.normalized[op.mean] = _for_gradient(b, op, gradient, x.descriptor, mask)


def _fits(runs: Runs, mask: Memory) -> bool:
    """Whether the pieces' gradients can read what the ReLU of the whole let pass."""
    bits = sums_of(runs.piece, relu=True).descriptor("workspace")
    return runs.count * bits.nbytes == mask.descriptor.nbytes


def _measure(
    b: Binder, op: BatchNorm, runs: Runs, measure: PrimitiveDesc, x: Memory
) -> tuple[Memory, Memory]:
    """Append mean and variance; each: (channels,)."""
    channels = Descriptor.of(op.mean.shape)
    found, means, variances = runs.found()
    write = by_pieces(b, x, runs.count)
    # The last piece first: it may still be in the cache.
    for at in reversed(range(runs.count)):
        write(at)
        results = {"mean": means[at], "variance": variances[at]}
        ends = {"src": runs.of(x, at), "dst": runs.discarded(runs.piece)}
        b.primitive(op, measure, {**ends, **results})
    averages, terms = runs.averages(found, variance=True)
    runs.add(averages, terms)
    mean, variance = halves(averages, channels)
    b.alias(op.mean, mean)
    return mean, variance


def _normalize(runs: Runs, op: BatchNorm, noted: bool) -> PrimitiveDesc:
    """(x - mean) scale + shift, by channel where the layout allows it, else by run."""
    scale, shift = (not runs.even or given is not None for given in (op.weight, op.bias))
    flags = norm_flags(True, scale, shift, relu=bool(op.activation))
    prop = FORWARD_TRAINING if noted else FORWARD_INFERENCE
    return normalization(runs.normal, prop, op.eps if runs.even else 0.0, flags)


def _given(
    b: Binder, op: BatchNorm, runs: Runs, mean: Memory, variance: Memory
) -> dict[str, Memory]:
    """What ``_normalize`` takes beside x."""
    affine = {"scale": op.weight, "shift": op.bias}
    known = {key: b.home(tensor) for key, tensor in affine.items() if tensor is not None}
    if runs.even:
        return {"mean": mean, "variance": variance, **known}
    (run_mean, run_scale, run_shift), table, fill = runs.by_run(3)
    means, variances = mean.array(), variance.array()
    weight, bias = (known[key].array() if key in known else None for key in affine)

    def run() -> None:
        table[0] = means
        inverse = 1.0 / np.sqrt(variances.astype(np.float64) + op.eps)
        table[1] = inverse if weight is None else inverse * weight
        if bias is not None:
            table[2] = bias
        fill()

    b.host(op, run, "sqrt, divide", {"channels": str(len(means))})
    one = b.constant(runs.numbers, 1.0)
    return {"mean": run_mean, "variance": one, "scale": run_scale, "shift": run_shift}


def _statistics(b: Binder, op: BatchNorm, mean: Array, variance: Array, late: bool) -> None:
    """Append inverse_std and the running statistics, or what moves them later."""
    channels = Descriptor.of(op.mean.shape)
    left = None if op.var is None else b.output(op.var, channels).array()
    moved = [op.running_mean, op.running_var] if op.var is None else []
    one = Statistics(
        mean,
        variance,
        b.output(op.inverse_std, channels).array(),
        left,
        [b.home(tensor).array() for tensor in moved if tensor is not None],
        op.momentum,
        op.eps,
        op.x.size // op.x.shape[1],
    )
    name = "multiply, sqrt"
    if not late:
        return b.host(op, statistics(b, [one]), name, {"channels": str(len(mean))})
    ends = (op.inverse_std, op.var, op.running_mean, op.running_var)
    b.host_late(op, statistics, one, name, [tensor for tensor in ends if tensor is not None])


def _for_gradient(
    b: Binder, op: Norm, runs: Runs, layout: Descriptor, mask: Memory | None
) -> Normalized:
    """Append what the gradient needs of the statistics; behind forward it may come late."""
    channels = Descriptor.of(op.mean.shape)
    factors = b.scratch(Descriptor.of((2, *op.mean.shape)))
    # A copy: the tensor's memory may be another's when the gradients are written.
    kept = b.scratch_array(op.mean.shape)
    if runs.by_channel:
        scale = b.scratch(channels)
        (run_mean,), (means,), fill = runs.by_run(1)
        scaled = scale.array()
    else:
        (run_mean, scale), (means, scaled), fill = runs.by_run(2)
    one = Scales(
        b.plain(op.mean).array(),
        b.plain(op.inverse_std).array(),
        None if op.weight is None else b.home(op.weight).array(),
        runs.length,
        kept,
        means,
        scaled,
        factors.array((2, -1)),
        fill,
    )
    if isinstance(op, BatchNorm):
        b.host_late(op, scales, one, "multiply", [op.inverse_std])
    else:
        b.host(op, scales(b, [one]), "multiply", {"channels": str(len(kept))})
    return Normalized(layout, run_mean, scale, factors, kept, mask)


def backward(
    b: Binder,
    op: BatchNormBackward,
    x: Memory,
    dy: Memory,
    y: Memory | None,
    place: Callable[[], Memory],
) -> None:
    """Append dx and the sums behind it; its memory, ``place()``, may be dy's.

    With g = dy where y > 0 and d = x - mean: dw = inverse_std sum of g d, and
    dx = weight inverse_std (g - inverse_std^2 d (mean of g d) - mean of g). Raises NoFastKernel.
    """
    runs = Runs(b, op, x.descriptor)
    known = b.normalized.get(op.mean)
    noted = known.mask if known is not None and y is not None else None
    gradient = sums_of(runs.piece, relu=noted is not None)
    mask, correct = _masking(runs), _correction(runs)
    if known is None:
        known = _for_gradient(b, op, runs, x.descriptor, None)
    found, products, sums = runs.found()
    dx, one = place(), b.constant(runs.numbers, 1.0)
    statistics = {"mean": known.mean, "variance": one, "scale": one}
    # The last piece first: it may still be in the cache.
    for at in reversed(range(runs.count)):
        passed, result = runs.of(dy, at), runs.of(dx, at)
        given = {"src": runs.of(x, at), **statistics}
        if noted is not None:
            bits = gradient.descriptor("workspace")
            given["workspace"] = Memory(bits, noted.buffer[at * bits.nbytes :])
        else:
            if y is not None:
                b.primitive(
                    op, mask, {"dst": runs.of(y, at), "diff_dst": passed, "diff_src": result}
                )
                passed = result
            result = runs.discarded(runs.piece)
        results = {"diff_scale": products[at], "diff_shift": sums[at]}
        b.primitive(op, gradient, {**given, "diff_dst": passed, "diff_src": result, **results})
    totals = runs.averages(found)
    mean, (slope, offset) = _moves(b, op, runs, known, totals)
    _gradients(b, op, runs, known, totals)
    thin = [memory.view(runs.thin) for memory in (mean, slope, offset, known.scale)]
    g = dy if y is None else dx
    links = {0: thin[1], 2: thin[2], 3: thin[3]}
    rest = {f"post_op_{link}_src_1": memory for link, memory in links.items()}
    for at in range(runs.parts):
        ends = {"src": runs.part(x, at), "src_1": thin[0], "dst": runs.part(dx, at)}
        b.primitive(op, correct, {**ends, **rest, "post_op_1_src_1": runs.part(g, at)})


def _moves(
    b: Binder, op: BatchNormBackward, runs: Runs, known: Normalized, totals: tuple[Memory, Memory]
) -> tuple[Memory, tuple[Memory, Memory]]:
    """Append slope and offset; with the mean, by channel or by run as the correction takes them."""
    pair, channels = known.factors.descriptor, Descriptor.of(op.mean.shape)
    moves, multiplied = b.scratch(pair), Attributes(chain=((BINARY["mul"], pair),))
    sums = {"src": totals[0], "src_1": totals[1], "dst": moves}
    desc = PrimitiveDesc("binary", BINARY["add"], pair, pair, pair, multiplied)
    b.primitive(op, desc, {**sums, "post_op_0_src_1": known.factors})
    if runs.by_channel:
        return b.plain(op.mean), halves(moves, channels)
    (slope, offset), numbers, fill = runs.by_run(2)
    moved = moves.array((2, -1))

    def run() -> None:
        numbers[:] = moved
        fill()

    b.host(op, run, "copy", {"channels": str(numbers.shape[1])})
    return known.mean, (slope, offset)


def _gradients(
    b: Binder, op: BatchNormBackward, runs: Runs, known: Normalized, totals: tuple[Memory, Memory]
) -> None:
    """Append dw and db, if they are needed."""
    channels = Descriptor.of(op.mean.shape)
    dw = b.output(op.dw, channels).array() if op.dw is not None else None
    db = b.output(op.db, channels).array() if op.db is not None else None
    averages, terms = (memory.array((2, -1)) for memory in totals)
    one = Gradients(known.inverse_std, averages, terms, runs.number, dw, db)
    written = [tensor for tensor in (op.dw, op.db) if tensor is not None]
    b.host_late(op, gradients, one, "multiply", written)


def _masking(runs: Runs) -> PrimitiveDesc:
    """dy where y is above 0, else 0."""
    relu, layout = ELTWISE_FROM_OUTPUT["relu"], runs.piece
    forward = (FORWARD_TRAINING, relu, layout, layout, 0.0, 0.0, None)
    hint = first_fast("eltwise_forward", [forward], {})
    backward = (relu, layout, layout, layout, 0.0, 0.0, hint, None)
    return first_fast("eltwise_backward", [backward], {})


def _correction(runs: Runs) -> PrimitiveDesc:
    """((x - mean) slope + g + offset) scale."""
    wide, thin = runs.wide, runs.thin
    add, multiply = BINARY["add"], BINARY["mul"]
    links = ((multiply, thin), (add, wide), (add, thin), (multiply, thin))
    arguments = (BINARY["sub"], wide, thin, wide, Attributes(chain=links))
    return first_fast("binary", [arguments], {})

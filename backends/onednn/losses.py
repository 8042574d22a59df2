"""Losses and metrics: log-softmax by oneDNN, the rest of a few hundred numbers by NumPy."""

from __future__ import annotations

import numpy as np

from ...ops import (
    CrossEntropy,
    CrossEntropyBackward,
    MeanSquaredError,
    MeanSquaredErrorBackward,
    Metrics,
    SoftmaxCrossEntropy,
    SoftmaxCrossEntropyBackward,
)
from .bind import Binder, attempt, binds
from .constants import DIFF_DST, DIFF_SRC, DST, FORWARD_TRAINING, SOFTMAX_LOG, SRC
from .fallback import reference
from .memory import Descriptor, Memory

for _kind in (CrossEntropy, CrossEntropyBackward, MeanSquaredError, MeanSquaredErrorBackward):
    binds(_kind)(reference)


@binds(SoftmaxCrossEntropy)
def softmax_cross_entropy(b: Binder, op: SoftmaxCrossEntropy) -> None:
    source = b.plain(op.x)
    layout = source.descriptor
    forward = (FORWARD_TRAINING, SOFTMAX_LOG, layout, layout, 1, None)
    desc = attempt("softmax_forward", [lambda: forward], {"src": layout})
    if desc is None:
        return reference(b, op)
    result = b.output(op.log_p, layout)
    b.primitive(op, desc, {SRC: source, DST: result}, {"axis": 1, "algorithm": "log"})
    n, k = op.x.shape
    log_p = result.array()
    loss = b.output(op.loss, Descriptor.of((1,))).array()
    target = b.array(op.target)
    first = np.arange(n) * k
    chosen, spread = 1.0 - op.label_smoothing, op.label_smoothing / k
    mean = op.reduction == "mean"

    def run() -> None:
        count, right, every = n, log_p.take(first + target, mode="clip"), log_p
        if target.min() < 0:
            kept = target >= 0
            right, every = right[kept], log_p.reshape(n, k)[kept]
            count = max(len(right), 1)
        total = chosen * right.sum(dtype=np.float64)
        if spread:
            total += spread * every.sum(dtype=np.float64)
        loss[0] = -total / count if mean else -total

    return b.host(op, run, "take, sum")


@binds(SoftmaxCrossEntropyBackward)
def softmax_cross_entropy_backward(b: Binder, op: SoftmaxCrossEntropyBackward) -> None:
    """dx = J^T (-q / N) of log-softmax: the host writes -q / N, oneDNN multiplies."""
    log_p = b.plain(op.log_p)
    layout = log_p.descriptor
    forward = (FORWARD_TRAINING, SOFTMAX_LOG, layout, layout, 1, None)
    hint = attempt("softmax_forward", [lambda: forward], {"src": layout})
    if hint is None:
        return reference(b, op)
    backward = (SOFTMAX_LOG, layout, layout, layout, 1, hint, None)
    desc = attempt("softmax_backward", [lambda: backward], {"src": layout})
    if desc is None:
        return reference(b, op)
    n, k = op.dx.shape
    wanted = Memory(layout)
    flat = wanted.array()
    target = b.array(op.target)
    first = np.arange(n) * k
    mean = op.reduction == "mean"
    chosen, spread = 1.0 - op.label_smoothing, op.label_smoothing / k

    def run() -> None:
        masked = target < 0 if target.min() < 0 else None
        count = n if masked is None else n - int(np.count_nonzero(masked))
        weight = 1.0 / max(count, 1) if mean else 1.0
        flat.fill(-spread * weight)
        # A masked target of -1 would point at the last score of the sample before it.
        places = first + target if masked is None else (first + target)[~masked]
        flat.put(places, -(chosen + spread) * weight)
        if masked is not None:
            flat.reshape(n, k)[masked] = 0.0

    b.host(op, run, "fill, subtract")
    memories = {DST: log_p, DIFF_DST: wanted, DIFF_SRC: b.output(op.dx, layout)}
    return b.primitive(op, desc, memories, {"axis": 1, "algorithm": "log"})


@binds(Metrics)
def metrics(b: Binder, op: Metrics) -> None:
    n, k = op.scores.shape
    scores = b.plain(op.scores).array((n, k))
    loss = b.home(op.loss).array()
    target, sums = b.array(op.target), b.array(op.sums)
    mean = op.reduction == "mean"

    def run() -> None:
        count = n if target.min() >= 0 else int(np.count_nonzero(target >= 0))
        right = np.count_nonzero(scores.argmax(1) == target)
        sums[:] += (float(loss[0]) * (count if mean else 1), right, count)

    b.host(op, run, "argmax")

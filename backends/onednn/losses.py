"""Losses and metrics: a few thousand numbers at most, by NumPy."""

from __future__ import annotations

import numpy as np

from ...graph.ops import Metrics, SoftmaxCrossEntropy, SoftmaxCrossEntropyBackward
from .bind import Binder, binds
from .fallback import reference


@binds(SoftmaxCrossEntropy)
def softmax_cross_entropy(b: Binder, op: SoftmaxCrossEntropy) -> None:
    """In float64: the library's log-softmax is off by up to 4e-6, always to the same side."""
    n, k = op.x.shape
    x, target = b.plain(op.x).array((n, k)), b.array(op.target)
    log_p = b.output(op.log_p).array((n, k))
    loss = b.output(op.loss).array()
    # One column per sample: NumPy is several times as fast along long rows.
    shifted, powers = (b.scratch_array((k, n), np.float64) for _ in range(2))
    top, total, right = (b.scratch_array((n,), np.float64) for _ in range(3))
    samples = np.arange(n)
    mean = op.reduction == "mean"
    chosen, spread = _shares(op.label_smoothing, k)

    def run() -> None:
        np.copyto(shifted, x.T)
        np.maximum.reduce(shifted, 0, out=top)
        np.subtract(shifted, top, out=shifted)
        np.exp(shifted, out=powers)
        np.add.reduce(powers, 0, out=total)
        np.subtract(shifted, np.log(total, out=total), out=shifted)
        np.copyto(log_p, shifted.T, casting="same_kind")
        shifted.take(samples + n * target, out=right, mode="clip")
        count, counted, every = n, right, shifted
        if target.min() < 0:
            kept = target >= 0
            counted, every = right[kept], shifted[:, kept]
            count = max(len(counted), 1)
        lost = chosen * counted.sum()
        if spread:
            lost += spread * every.sum()
        loss[0] = -lost / count if mean else -lost

    return b.host(op, run, "exp, log")


@binds(SoftmaxCrossEntropyBackward)
def softmax_cross_entropy_backward(b: Binder, op: SoftmaxCrossEntropyBackward) -> None:
    """In float64, where e^log_p - 1 keeps its digits however sure the network is."""
    n, k = op.dx.shape
    log_p, target = b.plain(op.log_p).array(), b.array(op.target)
    dx = b.output(op.dx).array()
    wide = b.scratch_array((n * k,), np.float64)
    first = np.arange(n) * k
    mean = op.reduction == "mean"
    chosen, spread = _shares(op.label_smoothing, k)

    def run() -> None:
        masked = target < 0 if target.min() < 0 else None
        count = n if masked is None else n - int(np.count_nonzero(masked))
        np.copyto(wide, log_p)
        np.exp(wide, out=wide)
        if spread:
            np.subtract(wide, spread, out=wide)
        # A masked target of -1 would point at the last score of the sample before it.
        places = first + target if masked is None else (first + target)[~masked]
        wide[places] -= chosen
        np.multiply(wide, 1.0 / max(count, 1) if mean else 1.0, out=dx, casting="same_kind")
        if masked is not None:
            dx.reshape(n, k)[masked] = 0.0

    return b.host(op, run, "exp, subtract")


def _shares(label_smoothing: float, classes: int) -> tuple[float, float]:
    """What of a target its own class has beside what every class has."""
    return 1.0 - label_smoothing, label_smoothing / classes


@binds(Metrics)
def metrics(b: Binder, op: Metrics) -> None:
    if op.wide:
        return reference(b, op)
    n, k = op.scores.shape
    scores = b.plain(op.scores).array((n, k))
    loss = b.home(op.loss).array()
    target, sums = b.array(op.target), b.array(op.sums)
    mean = op.reduction == "mean"

    def run() -> None:
        count = n if target.min() >= 0 else int(np.count_nonzero(target >= 0))
        right = np.count_nonzero(scores.argmax(1) == target)
        sums[:] += (float(loss[0]) * (count if mean else 1), right, count)

    return b.host(op, run, "argmax")

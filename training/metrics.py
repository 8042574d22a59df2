"""What is measured of the answers to a whole set of samples, by the kind of its targets.

All sums are those of float64. N samples have K names: of classes, numbers or questions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..common.records import dataclass
from ..common.targets import METRICS, Kind, r2_of, spread_of

Floats = NDArray[np.float64]

BINS = 15
"""Of the calibration error, equally wide, from 0 to 1."""
_RATES = ("precision", "recall", "f1")
_QUANTILES = {"min": 0.0, "p25": 0.25, "median": 0.5, "p75": 0.75, "max": 1.0}
# Of a probability whose logarithm is taken: those of float32 end there.
_TINY = float(np.finfo(np.float32).tiny)


@dataclass(frozen=True)
class Measured:
    """Figures by the names of ``common.targets.METRICS``; None where one is not defined.

    ``outputs``: those of each number or question, in the order of the names; else empty.
    """

    overall: Mapping[str, float | None]
    outputs: tuple[Mapping[str, Any], ...] = ()


def measure(
    kind: Kind, targets: NDArray[Any], answers: NDArray[Any], threshold: float = 0.5
) -> Measured:
    """The figures of answers (N, K): of numbers these, else probabilities.

    targets: (N,) of classes, else (N, K). ``threshold``: an answer above it is yes.
    """
    answers = answers.astype(np.float64)
    if kind == "class":
        return _classes(targets, answers)
    targets = targets.astype(np.float64)
    if kind == "numbers":
        return _numbers(targets, answers)
    return (
        _shares(targets, answers) if kind == "distribution" else _yes(targets, answers, threshold)
    )


def _numbers(targets: Floats, answers: Floats) -> Measured:
    """r2 = 1 - SSE / SST; of several numbers, of the sums over all of them."""
    gaps = answers - targets
    squared = (gaps * gaps).sum(0)
    spread = ((targets - targets.mean(0)) ** 2).sum(0)
    outputs = tuple(
        {
            "r2": r2_of(squared[k], spread[k]),
            "rmse": float(np.sqrt(squared[k] / len(gaps))),
            "mae": float(np.abs(gaps[:, k]).mean()),
            "residuals": {
                "mean": float(gaps[:, k].mean()),
                **{key: float(np.quantile(gaps[:, k], q)) for key, q in _QUANTILES.items()},
            },
        }
        for k in range(gaps.shape[1])
    )
    overall = {
        "r2": r2_of(squared.sum(), spread.sum()),
        "rmse": float(np.sqrt((gaps * gaps).mean())),
        "mae": float(np.abs(gaps).mean()),
    }
    return Measured(overall, outputs)


def _yes(targets: Floats, answers: Floats, threshold: float) -> Measured:
    """The rates of each question, and their means; of ``roc_auc`` over those that have both."""
    yes, said = targets > 0.5, answers > threshold
    outputs: list[dict[str, Any]] = []
    for k in range(yes.shape[1]):
        pairs = (yes & said, ~yes & said, yes & ~said, ~yes & ~said)
        tp, fp, fn, tn = (int(np.count_nonzero(each[:, k])) for each in pairs)
        shares = dict(zip(_RATES, rates(tp, tp + fn, tp + fp), strict=True))
        counts = {"yes": tp + fn, "tp": tp, "fp": fp, "fn": fn, "tn": tn}
        auc = roc_auc(yes[:, k], answers[:, k])
        outputs.append({**counts, "accuracy": (tp + tn) / len(yes), **shares, "roc_auc": auc})
    overall = {}
    for name in METRICS["yes_no"]:
        known = [each[name] for each in outputs if each[name] is not None]
        overall[name] = float(np.mean(known)) if known else None
    return Measured(overall, tuple(outputs))


def _shares(targets: Floats, answers: Floats) -> Measured:
    """accuracy: the largest answer is the largest share; kl_divergence: the mean of
    sum t log(t / p)."""
    logs = np.log(np.maximum(answers, _TINY))
    crossed = float(-(targets * logs).sum(1).mean())
    own = np.log(targets, out=np.zeros_like(targets), where=targets > 0)
    entropy = float(-(targets * own).sum(1).mean())
    right = answers.argmax(1) == targets.argmax(1)
    named = {"cross_entropy": crossed, "kl_divergence": crossed - entropy}
    return Measured({"accuracy": float(right.mean()), **named})


def _classes(labels: NDArray[Any], answers: Floats) -> Measured:
    """precision, recall and f1 are those of ``macro``."""
    count, said = answers.shape[1], answers.argmax(1)
    confusion = np.bincount(labels * count + said, minlength=count * count).reshape(count, count)
    calibration = Calibration()
    calibration.add(answers.max(1), said == labels)
    return Measured(class_figures(confusion, calibration.error))


def class_figures(confusion: NDArray[np.int64], calibration: float | None) -> dict[str, Any]:
    """The figures of classes. confusion: (K, K), rows are the true classes."""
    named = dict(zip(_RATES, macro(confusion), strict=True))
    accuracy = int(np.trace(confusion)) / int(confusion.sum())
    return {"accuracy": accuracy, **named, "calibration_error": calibration}


def macro(confusion: NDArray[np.int64]) -> tuple[float, float, float]:
    """The means of precision, recall and F1 over the classes that have samples or answers."""
    each = zip(np.diag(confusion), confusion.sum(1), confusion.sum(0), strict=True)
    kept = [rates(int(tp), int(own), int(given)) for tp, own, given in each if own + given]
    precision, recall, f1 = (sum(column) / len(kept) for column in zip(*kept, strict=True))
    return precision, recall, f1


def rates(right: int, own: int, given: int) -> tuple[float, float, float]:
    """Precision, recall and F1 of ``right`` answers to ``own`` samples, of those ``given``.

    A share of nothing is 0, as with ``zero_division=0`` of scikit-learn.
    """
    return right / max(given, 1), right / max(own, 1), 2 * right / max(own + given, 1)


def roc_auc(yes: NDArray[np.bool_], answers: Floats) -> float | None:
    """The share of pairs (yes, no) where yes has the greater answer; equal ones count 1/2.

    yes, answers: (N,). None without a pair.
    """
    there = int(np.count_nonzero(yes))
    pairs = there * (len(yes) - there)
    if not pairs:
        return None
    _, place, counts = np.unique(answers, return_inverse=True, return_counts=True)
    # Twice the mean rank of equal answers is a whole number, so that the sum is exact.
    ranks = 2 * counts.cumsum() - counts + 1
    return float(int(ranks[place][yes].sum()) - there * (there + 1)) / (2 * pairs)


def roc_curve(yes: NDArray[np.bool_], answers: Floats) -> tuple[Floats, Floats]:
    """The rates of false and of true yes, from (0, 0) to (1, 1), as the threshold falls."""
    order = np.argsort(-answers, kind="stable")
    falls = np.append(np.flatnonzero(np.diff(answers[order])), len(order) - 1)
    true = yes[order].cumsum()[falls]
    false = falls + 1 - true
    found = (np.append(0, each) / max(int(each[-1]), 1) for each in (false, true))
    x, y = found
    return x, y


class Calibration:
    """Adds up how far the probabilities of answers are from the share of right ones."""

    def __init__(self) -> None:
        self._sums = np.zeros((2, BINS))
        self._count, self._fits = 0, True

    def add(self, top: NDArray[Any], right: NDArray[np.bool_]) -> None:
        """top: (n,) the probability of each answer; right: (n,) whether it is the true class."""
        top = top.astype(np.float64)
        self._fits = self._fits and bool(((top >= 0) & (top <= 1)).all())
        bins = np.clip(np.ceil(top * BINS).astype(np.int64) - 1, 0, BINS - 1)
        for row, values in zip(self._sums, (top, right), strict=True):
            row += np.bincount(bins, values, BINS)
        self._count += len(top)

    @property
    def error(self) -> float | None:
        """The sum over the bins of |probabilities - right| / N; None of what is no probability."""
        if not (self._fits and self._count):
            return None
        return float(np.abs(self._sums[0] - self._sums[1]).sum()) / self._count


def right_of(
    kind: Kind, targets: NDArray[Any], scores: NDArray[Any], threshold: float
) -> NDArray[np.bool_]:
    """Which answers are right: (n,), of questions (n, K); of numbers none, (n, 0).

    scores: (n, K), of questions the probabilities.
    """
    if kind == "numbers":
        return np.zeros((len(targets), 0), np.bool_)
    if kind == "yes_no":
        return np.asarray((scores > threshold) == (targets > 0.5))
    wanted = targets if targets.ndim == 1 else targets.argmax(1)
    return np.asarray(scores.argmax(1) == wanted)


def goodness(kind: Kind, targets: NDArray[Any], right: NDArray[np.bool_], answers: Any) -> Floats:
    """How much each sample adds to accuracy, the share of its right answers, or to R2: (N,)."""
    if kind == "numbers":
        # Of targets that are all equal R2 says nothing, so that errors are taken as they are.
        return -errors(kind, targets, answers) / (spread_of(targets) or 1.0)
    return np.asarray(right.reshape(len(right), -1).mean(1))


def errors(kind: Kind, targets: NDArray[Any], answers: NDArray[Any]) -> Floats:
    """Of each sample, (N,): numbers, the mean squared error; yes_no, the mean absolute one; a
    distribution, its cross-entropy."""
    targets, answers = targets.astype(np.float64), answers.astype(np.float64)
    if kind == "distribution":
        return np.asarray(-(targets * np.log(np.maximum(answers, _TINY))).sum(1))
    gaps = answers - targets
    return np.asarray((gaps * gaps if kind == "numbers" else np.abs(gaps)).mean(1))


def worst_first(found: Floats, most: int) -> Sequence[int]:
    """The places of the greatest errors; of equal ones the first."""
    order: Sequence[int] = np.argsort(-found, kind="stable")[:most].tolist()
    return order

"""What is counted of the answers to samples, over batches of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...common.records import dataclass
from ...common.targets import Kind
from ..metrics import Calibration, Measured, class_figures, errors, measure, roc_auc, worst_first

Scores = NDArray[np.floating[Any]]

_RANKS = (1, 2, 3, 5)
_WORST = 40


@dataclass(frozen=True)
class Mistake:
    """A misclassified picture. index: in its data set; answer: the class it was taken for.

    ``probability`` is that of the answer, ``true_probability`` that of the label; ``source`` is
    that of ImageSet, such as the path of a file, and may be empty.
    """

    index: int
    label: int
    answer: int
    probability: float
    true_probability: float
    source: str = ""


@dataclass(frozen=True)
class Miss:
    """A sample of numbers or questions with one of the greatest ``errors``, and its answers."""

    index: int
    error: float
    targets: tuple[float, ...]
    answers: tuple[float, ...]
    source: str = ""


class Tally:
    """Accumulates confusion, ranks and mistakes over batches; of numbers and questions, all."""

    def __init__(
        self, classes: int, kind: Kind = "class", threshold: float = 0.5, reject: int | None = None
    ) -> None:
        self._classes, self._kind, self._threshold = classes, kind, threshold
        self._reject, self._rejects = reject, [(np.zeros(0, np.bool_), np.zeros(0))]
        self._cells = np.zeros(classes * classes, np.int64)
        self._ranks = np.zeros(classes, np.int64)
        self._wrong: list[Mistake] = []
        self._calibration = Calibration()
        self._kept: list[tuple[NDArray[Any], NDArray[Any], Scores]] = []

    def add(
        self, index: NDArray[Any], targets: NDArray[Any], scores: Scores, probabilities: Scores
    ) -> None:
        """index: (n,); targets: (n,) or (n, K); scores, probabilities: (n, K), of each sample."""
        if self._kind != "class":
            self._kept.append((index, targets, probabilities))
        if self._kind in ("class", "distribution"):
            self._count(
                index, targets if targets.ndim == 1 else targets.argmax(1), scores, probabilities
            )

    def _count(
        self, index: NDArray[Any], labels: NDArray[Any], scores: Scores, probabilities: Scores
    ) -> None:
        rows = np.arange(len(labels))
        answers = scores.argmax(1)
        self._cells += np.bincount(labels * self._classes + answers, minlength=len(self._cells))
        own = scores[rows, labels][:, None]
        # Of equal scores, the first class counts as the likelier, as for the answer.
        before = np.arange(self._classes) < labels[:, None]
        ranks = ((scores > own) | ((scores == own) & before)).sum(1)
        self._ranks += np.bincount(ranks, minlength=self._classes)
        self._calibration.add(probabilities[rows, answers], answers == labels)
        if self._reject is not None:
            share = probabilities[:, self._reject].astype(np.float64)
            self._rejects.append((labels == self._reject, share))
        for row in np.flatnonzero(answers != labels).tolist():
            label, answer = int(labels[row]), int(answers[row])
            p = probabilities[row]
            self._wrong.append(
                Mistake(int(index[row]), label, answer, float(p[answer]), float(p[label]))
            )

    @property
    def confusion(self) -> NDArray[np.int64]:
        return self._cells.reshape(self._classes, self._classes)

    def top_k(self) -> dict[int, int]:
        right = np.cumsum(self._ranks).tolist()
        return {k: right[k - 1] for k in _RANKS if k < self._classes or k == 1}

    def worst(self, sources: Sequence[str] = ()) -> tuple[Mistake, ...]:
        """The mistakes with the lowest probability of the true class; sources: of the data set."""
        order = sorted(self._wrong, key=lambda m: (m.true_probability, -m.probability, m.index))
        taken = order[:_WORST]
        return tuple(replace(m, source=sources[m.index] if sources else "") for m in taken)

    def fields(self, sources: Sequence[str] = ()) -> dict[str, Any]:
        """Those of an Evaluation that say what was found."""
        found: dict[str, Any] = {
            "kind": self._kind,
            "threshold": self._threshold,
            "confusion": self.confusion,
            "top_k": self.top_k(),
            "worst": self.worst(sources),
            "bins": self._calibration.bins,
        }
        if self._reject is not None:
            others, shares = map(np.concatenate, zip(*self._rejects, strict=True))
            area = roc_auc(others, shares)
            found["rejects"] = {**rejected(self.confusion, self._reject), "roc_auc": area}
        if not self._kept:
            return found | {
                "measured": Measured(class_figures(self.confusion, self._calibration.error))
            }
        index, targets, answers = map(np.concatenate, zip(*self._kept, strict=True))
        measured = measure(self._kind, targets, answers, self._threshold)
        found |= {"measured": measured, "pairs": (targets, answers)}
        if self._kind == "distribution":
            return found
        error = errors(self._kind, targets, answers)
        rows = worst_first(error, _WORST)
        misses = [
            Miss(
                int(index[row]),
                float(error[row]),
                tuple(targets[row].tolist()),
                tuple(answers[row].tolist()),
                sources[index[row]] if sources else "",
            )
            for row in rows
        ]
        return found | {"misses": tuple(misses), "top_k": {}}


def rejected(confusion: NDArray[np.int64], reject: int) -> dict[str, float | int | None]:
    """What a class of rejects means for the others, of a confusion (K, K).

    false_alarms: samples of that class that are taken for another; misses: samples of other classes
    that are taken for none; accuracy: the share of right answers to these.
    """
    count, own = int(confusion[reject].sum()), int(confusion[reject, reject])
    known = int(confusion.sum()) - count
    right = int(np.trace(confusion)) - own
    return {
        "index": reject,
        "count": count,
        "false_alarms": count - own,
        "known": known,
        "misses": int(confusion[:, reject].sum()) - own,
        "accuracy": right / known if known else None,
    }

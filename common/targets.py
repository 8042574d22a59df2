"""What is asked of a sample: its class, numbers, questions of yes or no, or a distribution."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from .errors import DatasetError

Kind = Literal["class", "numbers", "yes_no", "distribution"]
"""The kind of the targets of a data set of M samples and K names.

class: labels (M,) int32, the number of a sample's class, one of K. The others are (M, K) float32;
numbers: any finite ones; yes_no: 0 or 1 for each of K questions, independent of each other;
distribution: the shares of K classes, which add up to 1.
"""

MEASURES: dict[Kind, str] = {
    "class": "accuracy",
    "numbers": "r2",
    "yes_no": "accuracy",
    "distribution": "accuracy",
}
"""What a validation is judged by beside the loss; the higher, the better."""

METRICS: dict[Kind, tuple[str, ...]] = {
    "class": ("accuracy", "precision", "recall", "f1", "calibration_error"),
    "numbers": ("r2", "rmse", "mae"),
    "yes_no": ("accuracy", "precision", "recall", "f1", "roc_auc"),
    "distribution": ("accuracy", "cross_entropy", "kl_divergence"),
}
"""What is measured of the answers to a whole set; see ``training.metrics``."""

EVERY_METRIC = tuple(dict.fromkeys(name for each in METRICS.values() for name in each))
LOWER_IS_BETTER = frozenset(
    ("loss", "rmse", "mae", "calibration_error", "cross_entropy", "kl_divergence")
)

_NAMED: dict[Kind, str] = {
    "class": "classes",
    "numbers": "numbers",
    "yes_no": "questions of yes or no",
    "distribution": "classes",
}
_SUM_BOUND = 1e-4


def named(kind: Kind) -> str:
    """What the names of a data set are of, in messages."""
    return _NAMED[kind]


def check_targets(
    where: str, kind: Kind, labels: NDArray[Any], names: int, sources: Sequence[str] = ()
) -> None:
    """Raise DatasetError for targets that are none of their kind, with the first wrong sample.

    sources: where each sample comes from, if that is known.
    """

    def place(row: int) -> str:
        return sources[row] if sources else f"{where}: sample {row}"

    if kind == "class":
        wrong = (labels < 0) | (labels >= names)
        said = f"but there are {names} classes, counted from 0"
        if wrong.any():
            raise DatasetError(f"{where}: a sample has the label {labels[wrong][0]}, {said}")
        return
    if labels.ndim != 2 or labels.shape[1] != names:
        raise DatasetError(
            f"{where}: targets have the shape {labels.shape}, but {names} names; give a row with "
            "one number for each"
        )
    rules = {
        "numbers": (~np.isfinite(labels), "which is no finite number"),
        "yes_no": (~np.isin(labels, (0.0, 1.0)), "but yes is 1 and no is 0"),
        "distribution": (~(labels >= 0.0), "but shares are 0 or more"),
    }
    wrong, said = rules[kind]
    if wrong.any():
        row, column = np.argwhere(wrong)[0].tolist()
        value = labels[row, column]
        raise DatasetError(f"{place(row)} has the target {value:g}, {said}")
    if kind == "distribution":
        totals = labels.sum(1, dtype=np.float64)
        off = np.flatnonzero(np.abs(totals - 1.0) > _SUM_BOUND)
        if len(off):
            raise DatasetError(
                f"{place(off[0])}: the shares add up to {totals[off[0]]:g}, not to 1; divide them "
                "by their sum"
            )


def r2_of(squared: float, spread: float) -> float:
    """R2 = 1 - squared / spread, the mean squared error and ``spread_of``, or the sums of both."""
    # Of targets that are all equal no variance can be explained.
    return float(1.0 - squared / spread) if spread else float(squared == 0.0)


def spread_of(labels: NDArray[Any]) -> float:
    """The variance of numbers (M, K) about their means, averaged over the columns.

    R2 by it is that of each column weighted by its variance.
    """
    return float(labels.astype(np.float64).var(0).mean()) if len(labels) else 0.0

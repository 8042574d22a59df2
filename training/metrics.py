"""Loss and accuracy from the sums that a step accumulates."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from numpy.typing import NDArray

from ..common.records import dataclass


@dataclass(frozen=True)
class Metrics:
    """Mean loss, right answers and samples; ``accuracy`` is their ratio, 0 to 1."""

    loss: float
    correct: int
    count: int

    @classmethod
    def from_sums(cls, sums: Sequence[float] | NDArray[Any]) -> Metrics:
        """sums: (3,) loss summed over samples, right answers, samples."""
        count = int(sums[2])
        loss = float(sums[0]) / count if count else math.nan
        return cls(loss, int(sums[1]), count)

    @property
    def accuracy(self) -> float:
        return self.correct / self.count if self.count else math.nan

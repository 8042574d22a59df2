"""Two networks on the same pictures: which is better, and whether that is chance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..training.inference.evaluate import Evaluation
from ..training.inference.intervals import mcnemar, paired, probability_text
from .answers import Answers


@dataclass(frozen=True, repr=False)
class Comparison:
    """How often which of two networks is right. ``only_first``: the second one is wrong there."""

    first: Evaluation
    second: Evaluation
    both: int
    only_first: int
    only_second: int
    neither: int

    def __repr__(self) -> str:
        first, second = self.first, self.second
        low, high = self.interval
        return (
            f"<Comparison on {first.dataset} ({first.part}), {self.count} samples: "
            f"{first.accuracy:.2%} and {second.accuracy:.2%}, difference {self.difference:+.2%} "
            f"(95%: {low:+.2%} to {high:+.2%}), p {probability_text(self.p)}>"
        )

    @classmethod
    def of(cls, first: Answers, second: Answers) -> Comparison:
        """The comparison of two networks' answers to the same pictures."""
        a, b = first.right, second.right
        counts = (int(np.count_nonzero(each)) for each in (a & b, a & ~b, ~a & b, ~a & ~b))
        return cls(first.evaluation, second.evaluation, *counts)

    @property
    def count(self) -> int:
        return self.both + self.only_first + self.only_second + self.neither

    @property
    def is_of_one(self) -> bool:
        """Whether both networks are the same checkpoint, asked in the same way."""
        first, second = (each.checkpoint.resolve() for each in (self.first, self.second))
        views = [(each.tta, each.tta_share) for each in (self.first, self.second)]
        return first == second and views[0] == views[1]

    @property
    def difference(self) -> float:
        """The accuracy of the first network minus that of the second."""
        return (self.only_first - self.only_second) / self.count

    @property
    def interval(self) -> tuple[float, float]:
        """The 95% confidence interval of the difference, see ``paired``."""
        each = (self.only_first, self.only_second, self.both + self.neither)
        return paired(np.repeat([1.0, -1.0, 0.0], each))

    @property
    def p(self) -> float:
        """The probability of a difference at least as large between equals, see ``mcnemar``."""
        return mcnemar(self.only_first, self.only_second)

    def to_json(self) -> dict[str, Any]:
        """The keys that scripts rely on."""
        networks = [
            {
                "checkpoint": str(each.checkpoint),
                "tta": each.tta,
                "tta_share": each.tta_share,
                "correct": each.correct,
                "accuracy": each.accuracy,
                "accuracy_interval": [*each.interval],
                "loss": each.loss,
            }
            for each in (self.first, self.second)
        ]
        return {
            "dataset": self.first.dataset,
            "split": self.first.part,
            "count": self.count,
            "networks": networks,
            "both": self.both,
            "only_first": self.only_first,
            "only_second": self.only_second,
            "neither": self.neither,
            "difference": self.difference,
            "difference_interval": [*self.interval],
            "mcnemar_p": self.p,
        }

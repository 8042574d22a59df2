"""Two networks on the same pictures: which is better, and whether that is chance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..common.printable import html_table
from ..common.targets import MEASURES
from ..training.inference.evaluate import Evaluation
from ..training.inference.intervals import mcnemar, normal, paired, probability_text, sign_flip
from ..training.records.formats.state import shown
from .answers import Answers


@dataclass(frozen=True, repr=False)
class Comparison:
    """How often which of two networks is right. ``only_first``: the second one is wrong there.

    Of questions every answer counts. Of numbers, ``only_first`` are the samples where the first one
    is nearer, ``both`` those where both are as near; ``gains``: by how much R2 of the first one is
    greater for each sample (N,).
    """

    first: Evaluation
    second: Evaluation
    both: int
    only_first: int
    only_second: int
    neither: int
    gains: NDArray[np.float64] | None = None

    def __repr__(self) -> str:
        first, second = self.first, self.second
        low, high = self.interval
        name, form = MEASURES[first.kind], "+.2%" if self.gains is None else "+.4f"
        of = "answers" if first.kind == "yes_no" else "samples"
        return (
            f"<Comparison on {first.dataset} ({first.part}), {self.count} {of}: "
            f"{shown(name, first.accuracy)} and {shown(name, second.accuracy)}, difference "
            f"{self.difference:{form}} (95%: {low:{form}} to {high:{form}}), "
            f"p {probability_text(self.p)}>"
        )

    @classmethod
    def of(cls, first: Answers, second: Answers) -> Comparison:
        """The comparison of two networks' answers to the same pictures."""
        if first.evaluation.kind == "numbers":
            gains = first.good - second.good
            won, lost = (int(np.count_nonzero(each > 0)) for each in (gains, -gains))
            alike = len(gains) - won - lost
            return cls(first.evaluation, second.evaluation, alike, won, lost, 0, gains)
        a, b = first.right, second.right
        both, won, lost, neither = (
            int(np.count_nonzero(each)) for each in (a & b, a & ~b, ~a & b, ~a & ~b)
        )
        return cls(first.evaluation, second.evaluation, both, won, lost, neither)

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
        """The accuracy, or R2, of the first network minus that of the second."""
        if self.gains is not None:
            return float(self.gains.mean())
        return (self.only_first - self.only_second) / self.count

    @property
    def interval(self) -> tuple[float, float]:
        """The 95% confidence interval of the difference, see ``paired`` and ``normal``."""
        if self.gains is not None:
            return normal(self.gains)
        each = (self.only_first, self.only_second, self.both + self.neither)
        return paired(np.repeat([1.0, -1.0, 0.0], each))

    @property
    def p(self) -> float:
        """The probability of a difference at least as large between equals: see ``mcnemar``, and of
        numbers ``sign_flip``."""
        if self.gains is not None:
            return sign_flip(self.gains)
        return mcnemar(self.only_first, self.only_second)

    def _repr_html_(self) -> str:
        keys = ("checkpoint", "loss", "accuracy")
        networks = (self.first, self.second)
        return html_table(repr(self), [{k: getattr(each, k) for k in keys} for each in networks])

    def to_json(self) -> dict[str, Any]:
        """The keys that scripts rely on."""
        networks = [
            {
                "checkpoint": str(each.checkpoint),
                "tta": each.tta,
                "tta_share": each.tta_share,
                **each.right_json(),
            }
            for each in (self.first, self.second)
        ]
        return {
            "dataset": self.first.dataset,
            "kind": self.first.kind,
            "split": self.first.part,
            "count": self.count,
            "networks": networks,
            "both": self.both,
            "only_first": self.only_first,
            "only_second": self.only_second,
            "neither": self.neither,
            "difference": self.difference,
            "difference_interval": [*self.interval],
            "mcnemar_p" if self.gains is None else "sign_flip_p": self.p,
        }

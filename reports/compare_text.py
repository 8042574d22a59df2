"""The comparison of two networks as text."""

from __future__ import annotations

from ..common.printable import paragraph
from ..common.text import samples_of
from ..many.comparison import Comparison
from ..training.inference.intervals import probability_text
from .ensemble_text import figures_of, heads_of, name_of
from .tables import WIDTH, fitted

# What is commonly called significant.
_LEVEL = 0.05
# The column that a narrow terminal has no room for.
_LOSS = 3


def as_text(result: Comparison, width: int = WIDTH) -> str:
    """Both accuracies, the pictures that only one network gets right, and McNemar's test; of
    numbers, R2, the pictures where one network is nearer, and the sign-flip test."""
    same = result.is_of_one
    shown = (result.first,) if same else (result.first, result.second)
    rows = [
        ("network", *heads_of(result.first)),
        *((name_of(each), *figures_of(each)) for each in shown),
    ]
    numbers = result.gains is not None
    unit, scale, digits = ("R2", 1, 4) if numbers else ("points of accuracy", 100, 2)
    low, high = (scale * end for end in result.interval)
    sure = "chance alone rarely does that" if result.p < _LEVEL else "chance alone may do that"
    dataset = result.first.dataset
    of = "answers" if result.first.kind == "yes_no" else samples_of(result.first.size)
    lines = [
        f"on {dataset}, split {result.first.part}: {result.count} {of}",
        "",
        *fitted(rows, "<>", min(width, WIDTH), (_LOSS,)),
        "",
    ]
    if same:
        return paragraph(
            [*lines, "both are the same checkpoint, so there is no difference to test"]
        )
    if numbers:
        lines += [
            f"the first is nearer  {result.only_first}",
            f"the second is nearer {result.only_second}",
            f"both as near         {result.both}",
        ]
    else:
        lines += [
            f"both right           {result.both}",
            f"only the first       {result.only_first}",
            f"only the second      {result.only_second}",
            f"both wrong           {result.neither}",
        ]
    test = "sign-flip test" if numbers else "McNemar's test"
    lines += [
        "",
        f"difference           {scale * result.difference:+.{digits}f} {unit}",
        f"                     {low:+.{digits}f} to {high:+.{digits}f}  (95% confidence interval)",
        f"{test:<21}p {probability_text(result.p)}: {sure}",
    ]
    return paragraph(lines)

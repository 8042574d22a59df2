"""The comparison of two networks as text."""

from __future__ import annotations

from ..common.printable import paragraph
from ..common.text import samples_of
from ..many.comparison import Comparison
from ..training.inference.intervals import probability_text
from .ensemble_text import figures_of, name_of
from .evaluate_text import WIDTH
from .tables import fitted

# What is commonly called significant.
_LEVEL = 0.05
# The column that a narrow terminal has no room for.
_LOSS = 3


def as_text(result: Comparison, width: int = WIDTH) -> str:
    """Both accuracies, the pictures that only one network gets right, and McNemar's test."""
    same = result.is_of_one
    shown = (result.first,) if same else (result.first, result.second)
    rows = [
        ("network", "accuracy", "95% interval", "loss"),
        *((name_of(each), *figures_of(each)) for each in shown),
    ]
    low, high = (100 * end for end in result.interval)
    sure = "chance alone rarely does that" if result.p < _LEVEL else "chance alone may do that"
    dataset = result.first.dataset
    lines = [
        f"on {dataset}, split {result.first.part}: {result.count} {samples_of(dataset)}",
        "",
        *fitted(rows, "<>", min(width, WIDTH), (_LOSS,)),
        "",
    ]
    if same:
        return paragraph(
            [*lines, "both are the same checkpoint, so there is no difference to test"]
        )
    lines += [
        f"both right           {result.both}",
        f"only the first       {result.only_first}",
        f"only the second      {result.only_second}",
        f"both wrong           {result.neither}",
        "",
        f"difference           {100 * result.difference:+.2f} points of accuracy",
        f"                     {low:+.2f} to {high:+.2f}  (95% confidence interval)",
        f"McNemar's test       p {probability_text(result.p)}: {sure}",
    ]
    return paragraph(lines)

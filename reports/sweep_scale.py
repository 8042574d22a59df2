"""An axis of parallel coordinates: where the values of a key or an objective stand on it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ..configs.search import Dimension
from ..configs.write import flow
from ..many.journal import Trial
from .sweep_text import value_text

# Steps that all have a text, and the least distance of a text from the ends of the axis.
_FEW, _APART = 8, 0.06
UNSET = -0.1
"""Where a trial stands that does not have the key: below the axis."""


class Scale:
    """One axis: where a value stands between 0 and 1."""

    def __init__(
        self,
        name: str,
        low: float,
        high: float,
        log: bool,
        words: Sequence[str],
        steps: int = 0,
    ) -> None:
        self.name, self.words, self.log, self.steps = name, list(words), log, steps
        self.low, self.high = (math.log(low), math.log(high)) if log else (low, high)

    @classmethod
    def of_key(cls, each: Dimension) -> Scale:
        words = [_short(value) for value in each.values]
        steps = (
            0 if words or not each.step or each.log else round((each.high - each.low) / each.step)
        )
        return cls(each.key, each.low, each.high, each.log, words, steps)

    @classmethod
    def of_numbers(cls, name: str, values: Sequence[float]) -> Scale:
        return cls(name, min(values), max(values), False, ())

    def place(self, value: Any) -> float:
        """Below the axis for a key that a trial does not have."""
        if value is None and not (self.words and "null" in self.words):
            return UNSET
        if self.words:
            at = self.words.index(_short(value))
            return 0.5 if len(self.words) == 1 else at / (len(self.words) - 1)
        number = math.log(value) if self.log else float(value)
        return (number - self.low) / (self.high - self.low) if self.high > self.low else 0.5

    def ticks(self) -> list[tuple[float, str]]:
        """Where the axis has a text, and which: its ends, and round values between them."""
        if self.words:
            return [(self.place_of(i), word) for i, word in enumerate(self.words)]
        if self.high == self.low:
            return [(0.5, self._end(0.0))]
        if 0 < self.steps <= _FEW:
            # Only values that a trial can have.
            shares = sorted({round(s * self.steps) / self.steps for s in (0, 0.25, 0.5, 0.75, 1)})
            return [(share, self._end(share)) for share in shares]
        inner = [(self.place(value), self._text(value)) for value in self._round_values()]
        inner = [each for each in inner if _APART < each[0] < 1.0 - _APART]
        return [(0.0, self._end(0.0)), *inner, (1.0, self._end(1.0))]

    def _round_values(self) -> list[float]:
        from matplotlib.ticker import MaxNLocator

        if not self.log:
            found = MaxNLocator(4, steps=[1, 2, 2.5, 5, 10]).tick_values(self.low, self.high)
            if self.steps:
                step = (self.high - self.low) / self.steps
                found = [self.low + round((value - self.low) / step) * step for value in found]
            return [float(value) for value in found]
        low, high = (end / math.log(10.0) for end in (self.low, self.high))
        decades = range(math.floor(low), math.ceil(high) + 1)
        factors = (1, 2, 5) if high - low < 2 else (1,)
        return [factor * 10.0**decade for decade in decades for factor in factors]

    def place_of(self, index: int) -> float:
        return 0.5 if len(self.words) == 1 else index / (len(self.words) - 1)

    def some_unset(self, trials: Sequence[Trial]) -> bool:
        """Whether a trial does not have this key."""
        own = [trial for trial in trials if self.name in trial.params]
        return 0 < len(own) < len(trials)

    def _end(self, share: float) -> str:
        """The text of a value that is no round one: as it is, or as it was reached."""
        value = self.low + share * (self.high - self.low)
        if not self.log and self.name in ("accuracy", "loss", "seconds"):
            return value_text(self.name, value)
        return f"{math.exp(value):.4g}" if self.log else f"{value:.4g}"

    def _text(self, value: float) -> str:
        return f"{100 * value:.4g}%" if self.name == "accuracy" else f"{value:.4g}"


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else flow(value)

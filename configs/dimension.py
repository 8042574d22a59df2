"""A key of a search, and what it may be."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import field
from decimal import Decimal
from typing import Any

from ..common.options import is_number, is_whole
from ..common.records import dataclass
from ..common.typed_json import Finite, Name
from .write import flow

MOST_STEPS = 10_000


@dataclass(frozen=True)
class Dimension:
    """A key and what it may be: the numbers from ``low`` to ``high``, or ``values``.

    ``whole``: whole numbers only; ``step``: 0 for any number between. ``when``: other keys with the
    values that they must have for this key to be set.
    """

    key: Name
    low: Finite = 0.0
    high: Finite = 0.0
    log: bool = False
    step: Finite = 0.0
    whole: bool = False
    values: tuple[Any, ...] = ()
    when: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)

    def grid(self) -> list[Any]:
        """Every value once, of a range with a step."""
        if self.values:
            places = enumerate(self.values)
            return [v for i, v in places if not any(_same(v, w) for w in self.values[:i])]
        count = int((self.high - self.low) / self.step + 1e-9) + 1
        found = [self.low + self.step * place for place in range(count)]
        return [round(value) for value in found] if self.whole else found

    def ends(self) -> list[Any]:
        """Values that must fit the config: all of a list, both ends of a range."""
        if self.values:
            return list(self.values)
        found = [self.low, self.high]
        return [round(value) for value in found] if self.whole else found

    def check(self) -> None:
        """Raise ValueError for what no file of a search says, but a record of one may."""
        span, step = self.high - self.low, 0.0 if self.whole else self.step
        ranged = 0 <= self.step <= span < math.inf and span > 0
        ranged &= not step or (not self.log and span / step <= MOST_STEPS)
        if not (self.values or ranged) or (self.log and self.low <= 0):
            raise ValueError(f"'{self.key}' has values that no key of a search has")

    def takes(self, value: Any) -> bool:
        """Whether a trial can have this value."""
        if self.values:
            return repr(value) in map(repr, self.values)
        if not (is_whole if self.whole else is_number)(value) or not self.low <= value <= self.high:
            return False
        steps: float = (value - self.low) / self.step if self.step else 0.0
        return abs(steps - round(steps)) < 1e-8

    def holds(self, chosen: Mapping[str, Any]) -> bool:
        """Whether the key is set, given the values of those before it."""
        return all(
            key in chosen and any(_same(chosen[key], value) for value in values)
            for key, values in self.when.items()
        )

    def never(self, value: Any) -> str:
        """Why the key never has this value, so that ``when`` asks for it in vain; else ""."""
        if self.values:
            if any(_same(each, value) for each in self.values):
                return ""
            return f"it is searched among {', '.join(map(flow, self.values))}"
        if not is_number(value) or not self.low <= value <= self.high:
            return f"it is searched from {self.low:g} to {self.high:g}"
        if not self.step:
            return "a range without a step hardly ever has exactly this number"
        if last_of(self.low, value, self.step) != value:
            return f"it is searched from {self.low:g} to {self.high:g} in steps of {self.step:g}"
        return ""


def last_of(low: float, high: float, step: float) -> float:
    """The last of low, low + step, ... up to high, as these numbers are written."""
    first, distance = (Decimal(str(number)) for number in (low, step))
    last = first + (Decimal(str(high)) - first) // distance * distance
    return float(last)


def _same(left: Any, right: Any) -> bool:
    """Whether two values of a config are the same: 1 and 1.0 are, 1 and true are not."""
    if is_number(left) and is_number(right):
        # Steps of 0.1 from 0 have 0.30000000000000004.
        return math.isclose(left, right, rel_tol=1e-9, abs_tol=1e-12)
    return type(left) is type(right) and bool(left == right)

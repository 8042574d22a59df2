"""Candidates of a search whose times are known."""

from __future__ import annotations

from collections.abc import Callable, Sequence


class Timed:
    """Those of these seconds; right: whether they compute what they should."""

    sums = False

    def __init__(self, *times: float, right: bool = True) -> None:
        self.times, self.right, self.plan = times, right, 0

    def plans(self) -> int:
        return len(self.times)

    count = plans

    def order(self) -> Sequence[int]:
        return range(self.plans())

    def build(self, index: int) -> bool:
        return True

    def preparations(self) -> Sequence[Callable[[], object]]:
        return ()

    def name(self, index: int) -> str:
        return str(index)

    choice = name

    def seconds(self, index: int, *_: int) -> float:
        return self.times[index]

    def verified(self, index: int, *_: int) -> bool:
        return self.right

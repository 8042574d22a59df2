"""Candidates of a search whose times are known."""

from __future__ import annotations

from collections.abc import Callable, Sequence


class Timed:
    """Those of these seconds; right: whether they compute what they should; sums: whether they
    leave those of a batch norm."""

    def __init__(self, *times: float, right: bool = True, sums: bool = False) -> None:
        self.times, self.right, self.sums, self.plan = times, right, sums, 0

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

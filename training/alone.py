"""A training by this process alone; ``ranks/leader.py`` has what leads several."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from .session import Session
from .share import ALONE, Share

T = TypeVar("T")


class Company(Protocol):
    """With whom this process trains. Each function returns what the work returns."""

    @property
    def share(self) -> Share: ...

    def do(self, work: Callable[[], T]) -> T:
        """Do what every process does."""

    def load(self, work: Callable[[], T]) -> T:
        """Read what every process reads."""

    def compiled(self, make: Callable[[type[Session]], Session]) -> Session:
        """Make the session, of the class that the processes need."""


class Alone:
    """No other process."""

    share = ALONE

    def do(self, work: Callable[[], T]) -> T:
        return work()

    def load(self, work: Callable[[], T]) -> T:
        return work()

    def compiled(self, make: Callable[[type[Session]], Session]) -> Session:
        return make(Session)

"""A training by this process alone; ``ranks/leader.py`` has what leads several."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from ..common.errors import ConfigError
from ..configs import RunConfig
from .session import Session
from .share import ALONE, Share

T = TypeVar("T")


class Company(Protocol):
    """With whom this process trains. Each function returns what the work returns."""

    @property
    def share(self) -> Share: ...

    def check(self, config: RunConfig) -> None:
        """Raise ConfigError for a config that these processes do not train."""

    def do(self, work: Callable[[], T]) -> T:
        """Do what every process does."""

    def load(self, work: Callable[[], T]) -> T:
        """Read what every process reads."""

    def compiled(self, make: Callable[[type[Session]], Session]) -> Session:
        """Make the session, of the class that the processes need."""


class Alone:
    """No other process."""

    share = ALONE

    def check(self, config: RunConfig) -> None:
        check_synchronous(config)

    def do(self, work: Callable[[], T]) -> T:
        return work()

    def load(self, work: Callable[[], T]) -> T:
        return work()

    def compiled(self, make: Callable[[type[Session]], Session]) -> Session:
        return make(Session)


def check_synchronous(config: RunConfig) -> None:
    """Raise ConfigError for a config that is to be trained asynchronously."""
    if config.is_asynchronous:
        raise ConfigError(
            "parallel.mode: async needs several processes that are started for it; use "
            "dnnstack train --ranks 5 --async, or mode: sync"
        )

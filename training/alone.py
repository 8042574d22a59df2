"""A training by this process alone; ``ranks/leader.py`` has what leads several."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from ..common.errors import ConfigError
from ..configs import RunConfig
from .session import Session
from .share import ALONE, RankShare

T = TypeVar("T")


class Company:
    """With whom this process trains: here with nobody. Each function returns what the work does."""

    share: RankShare = ALONE

    def check(self, config: RunConfig) -> None:
        """Raise ConfigError for a config that these processes do not train."""
        if config.is_asynchronous:
            raise ConfigError(
                "parallel.mode: async needs several processes that are started for it; use "
                "dnnstack train --ranks 5 --async, or mode: sync"
            )

    def do(self, work: Callable[[], T]) -> T:
        """Do what every process does."""
        return work()

    def load(self, work: Callable[[], T]) -> T:
        """Read what every process reads."""
        return work()

    def compiled(self, make: Callable[[type[Session]], Session]) -> Session:
        """Make the session, of the class that the processes need."""
        return make(Session)

"""Messages between two ranks, either of which may end meanwhile."""

from __future__ import annotations

import os
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .team import Team
from .watchdog import condition

# Looks without a pause, then seconds of sleep, so that a core is left to those that compute.
_SPIN, _SLEEP = 50, 5e-5
# Seconds between two looks at whether the other is still there.
_LOOK = 0.2


class Lost(Exception):
    """The other rank has ended, or has not answered for the deadline of ranks."""

    def __init__(self, rank: int) -> None:
        super().__init__(f"rank {rank} is lost")
        self.rank = rank


class Post:
    """Sends and receives contiguous arrays; both raise Lost."""

    def __init__(self, team: Team) -> None:
        self._team = team
        self._parent = os.getppid()

    def send(self, rank: int, tag: int, array: NDArray[Any]) -> None:
        try:
            request = self._team.world.Isend(np.ascontiguousarray(array).reshape(-1), rank, tag)
        except self._team.error as error:
            raise Lost(rank) from error
        self._finish(request, rank)

    def receive(self, rank: int, tag: int, array: NDArray[Any], patient: bool = False) -> None:
        """``patient``: however long the other is busy with something else."""
        self._finish(self.expect(rank, tag, array), rank, patient)

    def expect(self, rank: int, tag: int, array: NDArray[Any]) -> Any:
        """A message that may be ``ready`` later."""
        return self._team.world.Irecv(array.reshape(-1), rank, tag)

    def ready(self, request: Any, rank: int) -> bool:
        try:
            return bool(request.Test())
        except self._team.error as error:
            raise Lost(rank) from error

    def forget(self, request: Any) -> None:
        """Expect a message no longer."""
        request.Cancel()
        request.Wait()

    def is_gone(self, rank: int) -> bool:
        """Whether the process of a rank of this machine has ended."""
        team = self._team
        if team.hosts[rank] != team.hosts[team.rank]:
            return False
        return condition(team.pids[rank]) == "ended"

    def _finish(self, request: Any, rank: int, patient: bool = False) -> None:
        looks, began = 0, time.monotonic()
        last = began
        while not self.ready(request, rank):
            looks += 1
            if looks > _SPIN:
                time.sleep(_SLEEP)
            if looks % 64 == 0 and (now := time.monotonic()) - last > _LOOK:
                last = now
                if os.getppid() != self._parent:
                    # Who watches over this process was ended with all others.
                    os._exit(1)
                if self.is_gone(rank) or (not patient and now - began > self._team.deadline):
                    raise Lost(rank)

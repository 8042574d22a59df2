"""How much of the cores other programs take: the threads of a call wait for the slowest of them."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

_STAT = Path("/proc/stat")
_IDLE = (3, 4)
"""The columns idle and iowait; guest time, the last two, is part of user time already."""
_SHORTEST = 0.1
"""Seconds below which counts in hundredths of a second say nothing."""
_STRETCH, _SHARE = 5.0, 0.2
"""Seconds, and cores: a program that is busy for less slows nothing down much."""


class Others:
    """The cores of this process, watched from now on."""

    def __init__(self) -> None:
        self._cores = _cores()
        self._busy, self._time = self._read(), time.monotonic()

    def cores(self) -> float | None:
        """How many cores, on the mean, other programs have kept busy; None where nobody knows."""
        now, seconds = self._read(), self.seconds()
        if now is None or self._busy is None or seconds < _SHORTEST:
            return None
        return max(0.0, (now - self._busy) / seconds)

    def advice(self, threads: int, margin: float = 0.5) -> str:
        """What to do where ``threads`` are more than the cores that are free, else empty.

        By more than the ``margin``, in cores.
        """
        taken, cores = self.cores(), len(self._cores)
        if taken is None or threads < 2 or threads + taken < cores + margin:
            return ""
        free = max(1, min(threads - 1, int(cores - taken + 0.25)))
        return (
            f"other programs keep {taken:.1f} of {cores} cores busy, and {threads} threads that "
            f"wait for each other are slow then; --threads {free} may be faster"
        )

    def seconds(self) -> float:
        """Since when they are watched."""
        return time.monotonic() - self._time

    def remark(self) -> str:
        """What the load means for times that were measured meanwhile; empty where it is small."""
        taken = self.cores()
        if taken is None or taken < 0.2:
            return ""
        return (
            f"other programs kept {taken:.1f} of {len(self._cores)} cores busy meanwhile: "
            "the times and limits are not those of a quiet machine"
        )

    def _read(self) -> float | None:
        """Seconds of work of the cores, less those of this process."""
        with suppress(OSError, ValueError, IndexError):
            ticks = 0
            for line in _STAT.read_text(encoding="ascii").splitlines():
                name, *columns = line.split()
                if name in self._cores:
                    counts = [int(column) for column in columns[:8]]
                    ticks += sum(n for at, n in enumerate(counts) if at not in _IDLE)
            own = os.times()
            return ticks / os.sysconf("SC_CLK_TCK") - own.user - own.system
        return None


class Watch:
    """``advice`` once more, by what other programs take in one of the stretches of a training."""

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._others = Others()

    def __call__(self) -> str:
        """Empty but at the end of a stretch in which they took too much."""
        if self._others.seconds() < _STRETCH:
            return ""
        # Beside these threads the others get no more than their share of the cores.
        text = self._others.advice(self._threads, _SHARE)
        self._others = Others()
        return text


def _cores() -> frozenset[str]:
    return frozenset(f"cpu{core}" for core in os.sched_getaffinity(0))

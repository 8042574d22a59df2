"""How busy other programs keep the cores; threads of a call wait for the slowest of them."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

_STAT = Path("/proc/stat")
_IDLE = (3, 4)
"""The columns idle and iowait; guest time, the last two, is part of user time already."""
_SHORTEST = 0.1
"""Seconds below which counters in hundredths of a second are too coarse."""
_MOMENT = 0.25
_STRETCH, _SHARE = 5.0, 0.2
"""Seconds, and cores: a load below these slows nothing down much."""


class Others:
    """The load of other programs on the cores of this process, from now on."""

    def __init__(self) -> None:
        self._cores = _cores()
        self._busy, self._time = self._read(), time.monotonic()

    def cores(self) -> float | None:
        """The mean number of cores that other programs kept busy; None if unknown."""
        now, seconds = self._read(), self.seconds()
        if now is None or self._busy is None or seconds < _SHORTEST:
            return None
        return max(0.0, (now - self._busy) / seconds)

    def advice(self, threads: int, margin: float = 0.5) -> str:
        """What to do if ``threads`` exceeds the number of free cores, else "".

        It must exceed it by more than ``margin``.
        """
        taken, cores = self.cores(), len(self._cores)
        if taken is None or threads < 2 or threads + taken < cores + margin:
            return ""
        free = max(1, min(threads - 1, int(cores - taken + 0.25)))
        return (
            f"other programs keep {taken:.1f} of {cores} cores busy, which slows down {threads} "
            f"threads that wait for each other; --threads {free} may be faster"
        )

    def crowd(self, threads: int) -> bool:
        """Whether other programs kept cores busy that ``threads`` threads of ours needed."""
        taken = self.cores()
        if taken is None or taken < _SHARE:
            return False
        return threads + taken >= len(self._cores) + _SHARE

    def seconds(self) -> float:
        """Seconds since the start of the measurement."""
        return time.monotonic() - self._time

    def remark(self) -> str:
        """A warning about times measured under this load; "" if the load is small."""
        taken = self.cores()
        if taken is None or taken < 0.2:
            return ""
        return (
            f"other programs kept {taken:.1f} of {len(self._cores)} cores busy during the "
            "measurement: the times and limits are not those of a quiet machine"
        )

    def _read(self) -> float | None:
        """Busy seconds of the cores, without those of this process."""
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
    """Repeats ``advice`` during a training, for the load over one interval after another."""

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._others = Others()

    def __call__(self) -> str:
        """The advice at the end of an interval with too much load, else ""."""
        if self._others.seconds() < _STRETCH:
            return ""
        # These threads compete with the other programs, which get only their share of the cores.
        text = self._others.advice(self._threads, _SHARE)
        self._others = Others()
        return text


def crowded(threads: int) -> bool:
    """Whether, for a moment from now on, other programs ``crowd`` out that many threads."""
    others = Others()
    time.sleep(_MOMENT)
    return others.crowd(threads)


def _cores() -> frozenset[str]:
    return frozenset(f"cpu{core}" for core in os.sched_getaffinity(0))

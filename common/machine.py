"""What this machine has."""

from __future__ import annotations

import os
from pathlib import Path


def main_memory() -> int:
    """Bytes of main memory."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def available_threads() -> int:
    """The number of cores that this process may use, by its affinity and its cgroup's CPU quota."""
    cores = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    return max(1, min(cores, _quota() or cores))


def _quota() -> int | None:
    """Whole cores of the cgroup's quota (version 2, then 1), rounded up; None without one."""
    groups = Path("/sys/fs/cgroup")
    for names in (("cpu.max",), ("cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us")):
        try:
            texts = " ".join((groups / name).read_text("ascii") for name in names)
            limit, period = texts.split()
        except (OSError, ValueError):
            continue
        usable = limit.isdigit() and period.isdigit() and int(period)
        return -(-int(limit) // int(period)) if usable else None
    return None

"""What this machine has."""

from __future__ import annotations

import os
import platform
from pathlib import Path

from . import limits

CPUINFO = Path("/proc/cpuinfo")
_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")


def fields(path: Path) -> dict[str, str]:
    """The values of a file with lines ``name: value``; of several of a name, the first."""
    try:
        lines = path.read_text("utf-8", "replace").splitlines()
    except OSError:
        return {}
    parts = (line.partition(":") for line in reversed(lines))
    return {name.strip(): value.strip() for name, _, value in parts}


def processor() -> str:
    """The processor's name with family and model; its architecture if the name is unknown.

    Virtual machines give different processors the same name, such as AMD EPYC.
    """
    known = fields(CPUINFO)
    name = known.get("model name") or platform.processor() or platform.machine()
    numbers = [known[each] for each in ("cpu family", "model") if each in known]
    return f"{name} ({'-'.join(numbers)})" if numbers else name


def caches() -> str:
    """KiB of data cache for each core, level by level, such as 32+512+16384; or "unknown".

    Of a cache that cores share, an equal part.
    """
    try:
        found = [_share(folder) for folder in sorted(_CACHES.glob("index*"))]
    except (OSError, ValueError):
        return "unknown"
    return "+".join(str(size) for size in found if size) or "unknown"


def _share(folder: Path) -> int:
    """KiB of one cache for each core; 0 for instructions. Raises OSError, ValueError."""
    kind, size, sharing = (
        (folder / name).read_text("ascii").strip() for name in ("type", "size", "shared_cpu_list")
    )
    if kind == "Instruction":
        return 0
    ranges = [part.partition("-") for part in sharing.split(",")]
    cores = sum(int(last or first) - int(first) + 1 for first, _, last in ranges)
    return int(size.removesuffix("K")) // cores


def main_memory() -> int:
    """Bytes of main memory that this process may use at most: the machine's, or a group's limit."""
    return min(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), limits.memory()[0])


def available_threads() -> int:
    """The number of cores that this process may use, by affinity and quota."""
    cores = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    return max(1, min(cores, limits.processors()))

"""What the system reports about processor and memory."""

from __future__ import annotations

import platform
from pathlib import Path

_CPUINFO = Path("/proc/cpuinfo")
_MEMINFO = Path("/proc/meminfo")
# The ones that matter for matrix products, the widest last.
_SETS = ("sse4_2", "avx", "fma", "avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_bf16")


def processor() -> str:
    """The processor's name, or its architecture if the name is unknown."""
    return _fields(_CPUINFO).get("model name") or platform.processor() or platform.machine()


def instruction_sets() -> list[str]:
    """The relevant vector instruction sets, as far as the system lists them."""
    flags = _fields(_CPUINFO).get("flags", "").split()
    return [name for name in _SETS if name in flags]


def memory() -> tuple[int, int] | None:
    """Total and available bytes; None if the system does not report them."""
    try:
        known = _fields(_MEMINFO)
        total, free = (int(known[name].split()[0]) for name in ("MemTotal", "MemAvailable"))
        return total << 10, free << 10
    except (KeyError, ValueError, IndexError):
        return None


def _fields(path: Path) -> dict[str, str]:
    """The values of a file with lines ``name: value``; of several of a name, the first."""
    try:
        lines = path.read_text("utf-8", "replace").splitlines()
    except OSError:
        return {}
    parts = (line.partition(":") for line in reversed(lines))
    return {name.strip(): value.strip() for name, _, value in parts}

"""What the system reports about the processor's instructions and memory."""

from __future__ import annotations

from pathlib import Path

from ..common import limits
from ..common.machine import CPUINFO, fields

_MEMINFO = Path("/proc/meminfo")
# The ones that matter for matrix products, the widest last.
_SETS = ("sse4_2", "avx", "fma", "avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_bf16")


def instruction_sets() -> list[str]:
    """The relevant vector instruction sets, as far as the system lists them."""
    flags = fields(CPUINFO).get("flags", "").split()
    return [name for name in _SETS if name in flags]


def memory() -> tuple[int, int] | None:
    """Total and available bytes, within limits; None if the system does not report them."""
    try:
        known = fields(_MEMINFO)
        total, free = (int(known[name].split()[0]) for name in ("MemTotal", "MemAvailable"))
        most, left = limits.memory()
        return min(total << 10, most), min(free << 10, left)
    except (KeyError, ValueError, IndexError):
        return None

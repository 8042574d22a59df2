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
    return _field("model name") or platform.processor() or platform.machine()


def instruction_sets() -> list[str]:
    """The relevant vector instruction sets, as far as the system lists them."""
    flags = set(_field("flags").split())
    return [name for name in _SETS if name in flags]


def memory() -> tuple[int, int] | None:
    """Total and available bytes; None if the system does not report them."""
    amounts = {}
    for line in _lines(_MEMINFO):
        name, _, rest = line.partition(":")
        amounts[name] = rest.split()
    try:
        return int(amounts["MemTotal"][0]) << 10, int(amounts["MemAvailable"][0]) << 10
    except (KeyError, ValueError, IndexError):
        return None


def _field(name: str) -> str:
    """The value for the first processor."""
    for line in _lines(_CPUINFO):
        key, _, value = line.partition(":")
        if key.strip() == name:
            return value.strip()
    return ""


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text("utf-8", "replace").splitlines()
    except OSError:
        return []

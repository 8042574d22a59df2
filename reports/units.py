"""Human-readable numbers."""

from __future__ import annotations

from collections.abc import Sequence


def quantity(value: float, unit: str = "") -> str:
    """A number with three digits and a prefix: 36.9 M, or 36.9 MFLOP with this unit."""
    return f"{_scaled(value, 1000, ('', 'k', 'M', 'G', 'T'))}{unit}".rstrip()


def bytes_text(count: float) -> str:
    """Bytes in three digits with a binary unit: ``392 MiB``."""
    return _scaled(count, 1024, ("B", "KiB", "MiB", "GiB", "TiB"))


def time_text(seconds: float | None) -> str:
    """Nano-, micro- or milliseconds; "" where they are not known."""
    if seconds is None:
        return ""
    if 0 < abs(seconds) < 9.95e-8:
        return f"{seconds * 1e9:.0f} ns"
    return f"{seconds * 1e6:.1f} us" if abs(seconds) < 1e-3 else f"{seconds * 1e3:.2f} ms"


def _scaled(value: float, step: int, units: Sequence[str]) -> str:
    unit = 0
    while value >= 999.5 and unit < len(units) - 1:
        value, unit = value / step, unit + 1
    return f"{value:.{digits(value) if unit else 0}f} {units[unit]}"


def span_text(interval: Sequence[float]) -> str:
    """An interval of shares: ``97.10% to 98.42%``."""
    return f"{interval[0]:.2%} to {interval[1]:.2%}"


def digits(value: float) -> int:
    """The number of decimals with which a number from 1 to 999 has three digits."""
    return 0 if value >= 99.95 else 1 if value >= 9.995 else 2

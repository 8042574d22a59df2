"""Human-readable numbers."""

from __future__ import annotations


def quantity(value: float) -> str:
    """A number with three digits and a prefix: 36.9 M."""
    for prefix in ("", "k", "M", "G", "T"):
        if value < 999.5 or prefix == "T":
            digits = 0 if not prefix else 2 if value < 9.995 else 1 if value < 99.95 else 0
            return f"{value:.{digits}f} {prefix}".rstrip()
        value /= 1000
    raise AssertionError("unreachable")


def bytes_text(count: float) -> str:
    """Bytes in three digits with a binary unit: ``392 MiB``."""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if count < 999.5 or unit == "TiB":
            digits = 0 if unit == "B" or count >= 99.95 else 1 if count >= 9.995 else 2
            return f"{count:.{digits}f} {unit}"
        count /= 1024
    raise AssertionError("unreachable")


def shape_text(shape: tuple[int, ...]) -> str:
    """``20x24x24``."""
    return "x".join(map(str, shape))

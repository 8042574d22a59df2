"""A roofline as SVG: how fast each operation computes, below the limits of the machine."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any
from xml.etree.ElementTree import Element, fromstring

from ..backends.base import Limits
from . import fonts, style
from .plots import drawn
from .units import quantity, time_text

# A label, FLOP, the least bytes moved, and seconds.
Point = tuple[str, float, float, float]
_INK, _BLUE = style.named(style.INK), style.named(style.mixed(style.BLUE, 0.4))


def roofline(points: Sequence[Point], limits: Limits, title: str) -> Element:
    """GFLOP/s over FLOP per byte, both logarithmic, of the points that took the most time.

    The area of a point is its time; one without FLOP or bytes has no place. The roof is
    min(peak, bytes/s x FLOP/byte) (Williams, Waterman and Patterson 2009).
    """
    shown = sorted((p for p in points if all(p[1:])), key=lambda p: -p[3])[:30]
    across = [flops / nbytes for _, flops, nbytes, _ in shown]
    ridge = limits.gflops / limits.gbytes
    low, high = min([ridge / 8, *across]) / 2, max([ridge * 8, *across]) * 2

    def figure() -> Any:
        from matplotlib.figure import Figure

        drawing = Figure(figsize=(11.0, 5.6), dpi=110, layout="constrained")
        axes = drawing.subplots()
        roof = f"limits: {limits.gflops:.0f} GFLOP/s, {limits.gbytes:.1f} GB/s"
        ends = [low * limits.gbytes, limits.gflops, limits.gflops]
        axes.loglog([low, ridge, high], ends, color=_INK, label=roof)
        for number, ((label, flops, _, seconds), x) in enumerate(zip(shown, across, strict=True)):
            text = f"{number + 1}  {label}: {time_text(seconds)}, "
            text = fonts.written(text + quantity(flops / seconds, "FLOP/s")).replace("$", r"\$")
            y, size = flops / seconds / 1e9, 4 + 14 * (seconds / shown[0][3]) ** 0.5
            axes.plot(x, y, "o", ms=size, color=_BLUE, mec=_INK, alpha=0.7, label=text)
            # Numbers of neighbours stand on different sides.
            side: Any = {"xytext": ((size / 2 + 6) * (-1) ** number, -3), "ha": "center"}
            axes.annotate(str(number + 1), (x, y), textcoords="offset points", fontsize=8, **side)
        axes.set(xlabel="FLOP per byte", ylabel="GFLOP/s", xlim=(low, high))
        drawing.legend(loc="outside right upper", frameon=False, fontsize=8, markerscale=0.4)
        drawing.suptitle(fonts.written(title), x=0.01, ha="left", parse_math=False)
        return drawing

    return fromstring(re.sub(rb' xmlns(:xlink)?="[^"]*"|xlink:', b"", drawn(figure, "svg")))

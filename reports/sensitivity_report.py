"""How sensitive the parameters of a network are: text, data and a picture."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..common.files import atomic_write, read_regular
from ..common.printable import paragraph, printable
from ..common.text import cut
from ..training.compressed.sensitivity import Point, PrunedPoint, Sensitivity
from . import style
from .plots import percent, save
from .tables import NAME, table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DATA, PICTURE = "sensitivity.json", "sensitivity.png"
# What the text says of the curves: the least that costs no more than this much accuracy.
LOST = 0.005
_LEGEND = 24
_LONGEST = 1 << 24
_HEADS = ("parameter", "weights", "least kept", "error", "fewest bits", "error")


def as_text(found: Sensitivity) -> str:
    """For each parameter the least share and the fewest bits that lose at most ``LOST``."""
    rows: list[Sequence[object]] = [_HEADS]
    for name, curves in found.parameters.items():
        share, bits = least(curves.kept, found), least(curves.bits, found)
        kept = ("all", "-") if share is None else (f"{share.at:.0%}", _error(share))
        few = ("-", "-") if bits is None else (f"{bits.at:.0f}", _error(bits))
        rows.append((cut(printable(name), NAME), f"{curves.size:,}", *kept, *few))
    lines = [
        f"{1 - found.accuracy:.2%} error on {found.count:,} validation samples; with one parameter "
        f"changed and nothing trained, at most {100 * LOST:g} points more:",
        "",
        *table(rows, "<>"),
    ]
    return paragraph(lines)


def least(points: Sequence[Point], found: Sensitivity) -> Point | None:
    """The last point before the first that loses more than ``LOST``."""
    last = None
    for point in points:
        if point.accuracy < found.accuracy - LOST:
            break
        last = point
    return last


def write(found: Sensitivity, folder: Path) -> list[Path]:
    """Write both files into the folder. Raises OSError."""
    data = json.dumps(found.to_json(), indent=1) + "\n"
    atomic_write(folder / DATA, data.encode())
    return [folder / DATA, draw(found, folder)]


def draw(found: Sensitivity, folder: Path) -> Path:
    """Draw the curves into the folder. Raises OSError, ImportError."""
    return save(folder / PICTURE, lambda: figure_of(found))


def read(folder: Path) -> Sensitivity:
    """What ``write`` wrote into the folder. Raises OSError; ValueError if it is damaged."""
    return Sensitivity.from_json(read_regular(folder / DATA, _LONGEST))


def figure_of(found: Sensitivity) -> Figure:
    """Accuracy against the kept share, and against bits, a line for each parameter."""
    import matplotlib
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11.0, 4.8), dpi=110, layout="constrained")
    kept, bits = figure.subplots(1, 2)
    colours = matplotlib.colormaps["turbo"]
    count = len(found.parameters)
    for rank, (name, curves) in enumerate(found.parameters.items()):
        colour = colours(0.05 + 0.9 * rank / max(count - 1, 1))
        label = cut(printable(name), NAME) if count <= _LEGEND or rank % 2 == 0 else None
        whole = [PrunedPoint(1.0, found.accuracy, found.loss), *curves.kept]
        _line(kept, whole, colour, label)
        _line(bits, curves.bits, colour, label)
    kept.set_xscale("log")
    kept.xaxis.set_major_formatter(lambda value, _: f"{100 * value:g}%")
    kept.invert_xaxis()
    kept.set_xlabel("share of the weights that is kept")
    kept.set_ylabel("accuracy on validation")
    bits.invert_xaxis()
    bits.set_xlabel("bits of a weight")
    for axes in (kept, bits):
        axes.yaxis.set_major_formatter(percent)
        axes.axhline(found.accuracy, color=style.named(style.GREY), linewidth=0.8, linestyle=":")
    kept.legend(loc="lower left", frameon=False, fontsize=8, ncols=1 + count // 12)
    return figure


def _line(axes: Axes, points: Sequence[Point], colour: object, label: str | None) -> None:
    across, up = [point.at for point in points], [point.accuracy for point in points]
    axes.plot(across, up, color=colour, linewidth=1.4, marker="o", markersize=3, label=label)


def _error(point: Point) -> str:
    return f"{1 - point.accuracy:.2%}"

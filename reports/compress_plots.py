"""A compression as pictures: ``weights.png`` and ``mask.png``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..common.printable import printable
from ..common.text import cut
from . import fonts, style
from .contact_sheet import means, write_png
from .plots import save, wanted
from .tables import NAME

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from PIL.Image import Image as PilImage

WEIGHTS, MASK = "weights.png", "mask.png"
Arrays = Mapping[str, NDArray[np.float32]]
# Parameters with a histogram, the largest ones, and values that are drawn as marks.
_MOST, _MARKS = 6, 256
_BINS = 100
# Of the words above a histogram, in heights of it.
_ABOVE = 1.03
# The longest side of the mask in pixels, and the shortest, to which it is enlarged.
_LONGEST, _SHORTEST = 1600, 500
_MARGIN, _TEXT = 16, 15


def draw_plots(before: Arrays, after: Arrays, folder: Path) -> list[Path]:
    """Write both pictures into the folder, the second only if a matrix has zeros.

    ``before``, ``after``: parameters by name. Raises OSError or DatasetError.
    """
    written = []
    shown = _largest(before, after)
    if shown:
        chosen = {name: (before[name], after[name]) for name in shown}
        written.append(save(folder / WEIGHTS, lambda: weights_figure(chosen)))
    return written + draw_mask(after, folder)


def draw_mask(after: Arrays, folder: Path) -> list[Path]:
    """Write the picture of a matrix that has zeros, if there is one.

    Raises OSError or DatasetError.
    """
    matrices = [n for n in _largest(after, after) if after[n].ndim == 2 and not after[n].all()]
    if not matrices:
        return []
    write_png(mask_picture(matrices[0], after[matrices[0]]), wanted(folder / MASK))
    return [wanted(folder / MASK)]


def weights_figure(
    parameters: Mapping[str, tuple[NDArray[np.float32], NDArray[np.float32]]],
) -> Figure:
    """A histogram of each parameter before and after, with the values that its weights share."""
    from matplotlib.figure import Figure

    count = len(parameters)
    figure = Figure(figsize=(9.0, 2.4 * count + 0.5), dpi=110, layout="constrained")
    rows = figure.subplots(count, 1, squeeze=False)[:, 0]
    for axes, (name, (before, after)) in zip(rows, parameters.items(), strict=True):
        _histogram(axes, before, after)
        axes.set_title(cut(printable(name), NAME), loc="left", fontsize=10, parse_math=False)
    handles, labels = rows[0].get_legend_handles_labels()
    # Outside of the axes, where no bar can be behind it, as all other words are.
    figure.legend(handles, labels, loc="outside upper right", ncols=2, frameon=False, fontsize=9)
    rows[-1].set_xlabel("value")
    return figure


def _histogram(axes: Axes, before: NDArray[np.float32], after: NDArray[np.float32]) -> None:
    """Zeros are not drawn: they would be the only bar that can be seen."""
    before, kept = before[before != 0], after[after != 0]
    widest = float(max(np.abs(before).max(initial=0.0), np.abs(kept).max(initial=0.0))) or 1.0
    edges: Any = np.linspace(-widest, widest, _BINS + 1)
    axes.hist(before, edges, color=style.named(style.LINE), label="before")
    blue, share = style.named(style.BLUE), f"{kept.size / max(after.size, 1):.1%} are not 0"
    axes.hist(kept, edges, color=blue, label="after")
    place: dict[str, Any] = {"xycoords": "axes fraction", "fontsize": 9, "ha": "right"}
    values = np.unique(kept)
    shared = 0 < len(values) <= min(_MARKS, kept.size // 2)
    axes.annotate(share, (0.82 if shared else 1.0, _ABOVE), color=blue, **place)
    if shared:
        below = axes.get_xaxis_transform()
        red, label = style.named(style.RED), f"{len(values)} shared values"
        axes.plot(values, np.full(len(values), 0.03), "|", color=red, ms=9, transform=below)
        axes.annotate(label, (1.0, _ABOVE), color=red, **place)
    axes.set_yscale("log")
    axes.set_ylim(bottom=0.7)
    axes.set_ylabel("weights")


def mask_picture(name: str, values: NDArray[np.float32]) -> PilImage:
    """A pixel for a weight, dark if it is not 0; of a large matrix the mean over squares.

    values: (outputs, inputs), rows from top to bottom.
    """
    from PIL import Image, ImageDraw

    kept = values != 0
    block = -(-max(kept.shape) // _LONGEST)
    shares = means(kept, block)
    zoom = max(1, _SHORTEST // max(shares.shape))
    # The densest square is darkest: of a few weights in a thousand a mean would be nearly white.
    dark = np.sqrt(shares / max(float(shares.max()), 1e-9))[..., None]
    colours = np.array(style.PAPER) + dark * (np.array(style.BLUE) - np.array(style.PAPER))
    pixels = np.rint(colours).astype(np.uint8).repeat(zoom, 0).repeat(zoom, 1)
    text = fonts.font(_TEXT)
    outputs, inputs = values.shape
    title = fonts.drawable((name,), NAME)[0]
    said = f"{title}: {outputs} outputs, {inputs} inputs, {kept.mean():.1%} are not 0"
    top = 2 * _MARGIN + _TEXT
    width = max(pixels.shape[1], round(text.getlength(said))) + 2 * _MARGIN
    picture = Image.new("RGB", (width, top + pixels.shape[0] + _MARGIN), style.PAPER)
    picture.paste(Image.fromarray(pixels), (_MARGIN, top))
    draw = ImageDraw.Draw(picture)
    draw.text((_MARGIN, _MARGIN - 4), said, style.INK, text)
    corner = _MARGIN + pixels.shape[1], top + pixels.shape[0]
    draw.rectangle((_MARGIN - 1, top - 1, *corner), None, style.GREY)
    return picture


def _largest(before: Arrays, after: Arrays) -> list[str]:
    """Names of the largest matrices and filters, in the order of the arrays."""
    names = [name for name in after if name in before and after[name].ndim > 1]
    some = sorted(names, key=lambda name: -after[name].size)[:_MOST]
    return [name for name in names if name in some]

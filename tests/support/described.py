"""Reports and pictures as canonical text, which neither fonts, machine nor versions change.

Numbers have six digits. Nothing that is measured with a font is told: of a figure no extents, and
of a picture what was drawn, with a font whose characters are all equally wide.
"""

from __future__ import annotations

import difflib
import json
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from dnnstack.reports import fonts, plots

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure
    from PIL.Image import Image


def rounded(value: Any) -> Any:
    """Numbers with six digits, also within lists and mappings; -0 is 0."""
    if isinstance(value, Mapping):
        return {str(key): rounded(each) for key, each in value.items()}
    if isinstance(value, np.ndarray):
        return rounded(value.tolist())
    if isinstance(value, (list, tuple)):
        return [rounded(each) for each in value]
    if isinstance(value, (float, np.floating)):
        return float(f"{float(value):.6g}") + 0.0
    return value.item() if isinstance(value, np.integer) else value


def as_json(value: Any) -> str:
    """With a line for each key, in the order in which a script reads them."""
    return json.dumps(rounded(value), indent=1, ensure_ascii=False) + "\n"


def joined(*texts: str) -> str:
    """Texts one after the other, with a line between them."""
    return "----\n".join(f"{text}\n" for text in texts)


def at_widths(of: Callable[[int], str], *widths: int) -> str:
    """The texts for these widths, and where, from narrow to wide, a text takes another form."""
    texts, forms = [f"{width} columns\n{of(width)}" for width in widths], []
    for width in range(16, 130):
        text = of(width)
        counts = len(text.splitlines()), len(text.split()), text.count("…")
        form = "{} lines, {} words, {} cut".format(*counts)
        if not forms or forms[-1].partition(": ")[2] != form:
            forms.append(f"from {width}: {form}")
    return joined(*texts, "\n".join(forms))


def figure_text(draw: Callable[[], Figure]) -> str:
    """Every artist of a figure that is drawn in the style of the package."""
    lines: list[str] = []

    def described() -> Figure:
        figure = draw()
        lines.extend(_figure(figure))
        return figure

    assert plots.drawn(described).startswith(b"\x89PNG")
    return "".join(f"{line}\n" for line in lines)


def said(**values: Any) -> str:
    return " ".join(f"{key}={_value(value)}" for key, value in values.items())


def _value(value: Any) -> str:
    return json.dumps(rounded(value), ensure_ascii=False, default=str)


def _colour(colour: Any) -> Any:
    from matplotlib.colors import to_hex

    return to_hex(colour, keep_alpha=True) if colour is not None else None


def _figure(figure: Figure) -> Iterator[str]:
    from matplotlib import rcParams

    yield "figure " + said(
        inches=figure.get_size_inches(), dpi=figure.dpi, paper=_colour(figure.get_facecolor()),
        layout=type(figure.get_layout_engine()).__name__, cut=rcParams["savefig.bbox"],
    )  # fmt: skip
    for text in figure.texts:
        yield f"  {_text(text)}"
    for legend in figure.legends:
        yield from (f"  {line}" for line in _legend(legend))
    for axes in figure.axes:
        yield from (f"  {line}" for line in _axes(axes))


def _axes(axes: Axes) -> Iterator[str]:
    grid = axes.get_subplotspec()
    at = None
    if grid is not None:
        rows, columns, first, last = grid.get_geometry()
        ratios = grid.get_gridspec().get_height_ratios()
        at = [rows, columns, first, last, list(ratios) if ratios else None]
    yield "axes " + said(
        at=at, facecolor=_colour(axes.get_facecolor()), below=axes.get_axisbelow(),
        shared_x=len(axes.get_shared_x_axes().get_siblings(axes)),
    )  # fmt: skip
    for place in ("left", "center", "right"):
        if axes.get_title(place):
            yield f"  title {place} " + said(text=axes.get_title(place))
    seen = [name for name, spine in axes.spines.items() if spine.get_visible()]
    colours = {_colour(spine.get_edgecolor()) for spine in axes.spines.values()}
    yield "  spines " + said(seen=sorted(seen), colours=sorted(colours))
    for name, axis, limits in (
        ("x", axes.xaxis, axes.get_xlim()),
        ("y", axes.yaxis, axes.get_ylim()),
    ):
        yield from (f"  {line}" for line in _axis(name, axis, limits))
    own = (*axes.spines.values(), axes.xaxis, axes.yaxis, axes.patch, axes.get_legend())
    before = ""
    for artist in axes.get_children():
        if not any(artist is each for each in own):
            # What is drawn in one way, as bars are, is told once.
            how, *where = [*_artist(axes, artist)] or [before]
            yield from (f"  {line}" for line in ([] if how == before else [how]) + where)
            before = how
    legend = axes.get_legend()
    if legend is not None:
        yield from (f"  {line}" for line in _legend(legend))


def _axis(name: str, axis: Axis, limits: tuple[float, float]) -> Iterator[str]:
    low, high = sorted(limits)
    places = [float(at) for at in axis.get_majorticklocs() if low <= at <= high]
    labels = axis.get_major_formatter().format_ticks(places)
    minor = [float(at) for at in axis.get_minorticklocs() if low <= at <= high]
    small = [text for text in axis.get_minor_formatter().format_ticks(minor) if text]
    lines = [*axis.get_gridlines()][:1]
    yield f"{name} " + said(
        label=axis.get_label_text(), scale=axis.get_scale(), limits=limits,
        ticks=places, labels=labels, minor=small, label_size=axis.label.get_fontsize(),
        grid=[bool(line.get_visible()) for line in lines],
        grid_colour=[_colour(line.get_color()) for line in lines],
    )  # fmt: skip
    for text in [*axis.get_ticklabels(which="both")][:1]:
        if text.get_rotation():
            yield "  turned " + said(by=text.get_rotation(), align=text.get_ha())
        if box := text.get_bbox_patch():
            colours = [_colour(each) for each in (box.get_facecolor(), box.get_edgecolor())]
            yield "  box " + said(colours=colours, pad=box.get_boxstyle().pad)


def _legend(legend: Any) -> Iterator[str]:
    # A legend of the whole figure is beside the panels, wherever its anchor is.
    anchor = None
    if legend.axes is not None:
        box = legend.get_bbox_to_anchor().transformed(legend.axes.transAxes.inverted())
        anchor = [box.x0, box.y0, box.width, box.height]
    yield "legend " + said(
        loc=legend._loc, anchor=anchor, columns=legend._ncols,
        frame=legend.get_frame_on(), apart=legend.borderaxespad, outside=legend._outside_loc,
        fontsize=legend._fontsize, texts=[text.get_text() for text in legend.get_texts()],
        title=legend.get_title().get_text(),
    )  # fmt: skip


def _artist(axes: Axes, artist: Artist) -> Iterator[str]:
    from matplotlib.collections import Collection
    from matplotlib.lines import Line2D
    from matplotlib.patches import Rectangle
    from matplotlib.text import Text

    common = {"zorder": artist.get_zorder(), "clip": artist.get_clip_on()}
    common |= {} if artist.get_visible() else {"visible": False}
    if isinstance(artist, Text):
        if artist.get_text() and artist not in (axes.title, axes._left_title, axes._right_title):
            yield _text(artist)
        elif artist.get_text():
            yield f"title {_text(artist)}"
    elif isinstance(artist, Line2D):
        data = artist.get_transform().contains_branch_seperately(axes.transData)
        yield "line " + said(
            label=artist.get_label(), colour=_colour(artist.get_color()),
            width=artist.get_linewidth(), style=artist.get_linestyle(), marker=artist.get_marker(),
            size=artist.get_markersize(), face=_colour(artist.get_markerfacecolor()),
            alpha=artist.get_alpha(), drawn_as=artist.get_drawstyle(), of_data=list(data),
            **common,
        )  # fmt: skip
        yield f"  points {_value(artist.get_xydata())}"
    elif isinstance(artist, Rectangle):
        yield "bar " + said(
            face=_colour(artist.get_facecolor()), edge=_colour(artist.get_edgecolor()),
            width=artist.get_linewidth(), alpha=artist.get_alpha(), **common,
        )  # fmt: skip
        place = (artist.get_x(), artist.get_y(), artist.get_width(), artist.get_height())
        # Of a histogram most are empty.
        yield from [f"  place {_value(place)}"] if place[-1] else []
    elif isinstance(artist, Collection):
        yield f"{type(artist).__name__} " + said(
            label=artist.get_label(), faces=[_colour(each) for each in artist.get_facecolor()],
            edges=[_colour(each) for each in artist.get_edgecolor()],
            widths=artist.get_linewidth(), values=artist.get_array(), alpha=artist.get_alpha(),
            colours=artist.get_cmap().name, **common,
        )  # fmt: skip
        yield f"  points {_value(np.ma.filled(artist.get_offsets(), np.nan))}"
    else:
        yield f"{type(artist).__name__} " + said(label=artist.get_label(), **common)


def _text(text: Any) -> str:
    at = [*getattr(text, "xyann", text.get_position())]
    return "text " + said(
        text=text.get_text(), at=at, size=text.get_fontsize(), colour=_colour(text.get_color()),
        align=[text.get_ha(), text.get_va()], turned=text.get_rotation(),
        family=text.get_fontfamily(), math=text.get_parse_math(),
        of=str(getattr(text, "xycoords", "")) or None,
    )  # fmt: skip


@dataclass(frozen=True)
class _EvenFont:
    """Every character takes half of the size."""

    size: int

    def getlength(self, text: str) -> float:
        return len(text) * self.size / 2


class _Recorder:
    """Draws rectangles as Pillow does; tells of words, and of rectangles that have an edge."""

    def __init__(self, picture: Image, lines: list[str]) -> None:
        from PIL import ImageDraw

        self._draw, self._lines = ImageDraw.ImageDraw(picture), lines
        self._on = f"{picture.mode} {picture.size}"

    def text(self, at: Any, text: str, colour: Any, font: Any, anchor: str = "la") -> None:
        told = said(text=text, at=at, colour=colour, size=font.size, anchor=anchor)
        self._lines.append(f"{self._on}: text {told}")

    def rectangle(self, at: Any, fill: Any = None, outline: Any = None) -> None:
        if outline is not None:
            self._lines.append(f"{self._on}: rectangle {said(at=at, fill=fill, outline=outline)}")
        self._draw.rectangle(at, fill, outline)


def picture_text(draw: Callable[[], Image]) -> str:
    """What Pillow is told to draw, and what the picture is without its words."""
    from PIL import Image, ImageDraw

    lines: list[str] = []
    paste = Image.Image.paste

    def recorded(self: Image.Image, what: Any, box: Any = None, mask: Any = None) -> None:
        is_picture = isinstance(what, Image.Image)
        shown = _pixels(what) if is_picture else f"colour={what}"
        lines.append(f"{self.mode} {self.size}: paste {shown} {said(at=box)}")
        paste(self, what, box, mask)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fonts, "font", _EvenFont)
        patch.setattr(ImageDraw, "Draw", lambda picture: _Recorder(picture, lines))
        patch.setattr(Image.Image, "paste", recorded)
        picture = draw()
    lines.append(f"the picture: {_pixels(picture)}")
    return "".join(f"{line}\n" for line in lines)


def _pixels(picture: Image) -> str:
    return f"{picture.mode} {picture.size} of sum {zlib.crc32(picture.tobytes()):08x}"


def differences(found: str, stored: str, most: int = 30) -> Sequence[str]:
    """The first lines that differ, as ``diff`` shows them."""
    pair = (stored.splitlines(), found.splitlines())
    return [*difflib.unified_diff(*pair, "stored", "found", n=0, lineterm="")][:most]

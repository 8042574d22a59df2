"""A contact sheet: rows of small pictures with a title at their left, as one PNG."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..common.errors import DatasetError, UsageError, explaining
from ..common.files import atomic_write, remove_abandoned
from ..common.printable import printable
from ..configs.suggest import listed
from ..datasets import as_image
from . import fonts, style, svg

if TYPE_CHECKING:
    from PIL.Image import Image as PilImage

COLUMNS = 16
ELSEWHERE = "choose another file"
_SMALLEST_SIDE = 48
# Least size of a picture on the sheet if there is no room for a larger one; size of the sheet.
_SIDES, _MOST_PIXELS = (128, 64, 32, 16), 1 << 26
_GAP = 6
_MARGIN = 12
_TEXT = 14


def check_png(path: Path, more: tuple[str, ...] = ()) -> None:
    """Raise UsageError, before any work is done, if the file name does not end in .png or more."""
    ends = (".png", *more)
    if path.suffix.lower() not in ends:
        what = f"the picture is a {listed(end[1:].upper() for end in ends)}"
        raise UsageError(f"{path}: {what}; choose a name that ends in {listed(ends)}")


def reduction(side: int, lines: int) -> int:
    """The factor by which pictures with this longer side are reduced so that ``lines`` rows fit."""
    for largest in _SIDES:
        factor = -(-side // largest)
        zoomed = max(-(-side // factor), _SMALLEST_SIDE)
        if lines * COLUMNS * (zoomed + _GAP) ** 2 <= _MOST_PIXELS:
            break
    return factor


def reduced(pictures: NDArray[np.uint8], factor: int) -> NDArray[np.uint8]:
    """(n, C, H, W): means over squares of ``factor`` pixels, and over the rests at the edges."""
    return pictures if factor == 1 else np.rint(means(pictures, factor)).astype(np.uint8)


def means(values: NDArray[Any], factor: int) -> NDArray[np.float64]:
    """(..., H, W): means of bytes or bools over the same squares."""
    sides = values.shape[-2:]
    rows, columns = (np.arange(0, side, factor) for side in sides)
    sums = np.add.reduceat(values, rows, -2, dtype=np.uint32)
    high, wide = np.diff([*rows, sides[0]]), np.diff([*columns, sides[1]])
    found: NDArray[np.float64] = np.add.reduceat(sums, columns, -1) / (high[:, None] * wide)
    return found


def draw_sheet(title: str, rows: Sequence[tuple[str, NDArray[np.uint8]]]) -> PilImage:
    """The sheet as a picture. rows: titles with pictures (n, C, H, W) uint8, all of one size.

    Small pictures are enlarged by an integer factor; rows longer than COLUMNS are broken.
    """
    from PIL import Image, ImageDraw

    font = fonts.font(_TEXT)
    names = [name for name, _ in rows]
    left = _MARGIN + round(max(map(font.getlength, names))) + _MARGIN
    height, width = rows[0][1].shape[2:]
    zoom = max(1, -(-_SMALLEST_SIDE // max(height, width)))
    step_x, step_y = width * zoom + _GAP, height * zoom + _GAP
    lines = [max(1, -(-len(pictures) // COLUMNS)) for _, pictures in rows]
    top = _MARGIN + _TEXT + _MARGIN
    bottom = top + sum(lines) * step_y + len(rows) * _GAP + _MARGIN
    across = min(COLUMNS, max(len(pictures) for _, pictures in rows))
    right = max(left + across * step_x - _GAP, _MARGIN + round(font.getlength(title))) + _MARGIN
    sheet = Image.new("RGB", (right, bottom), style.PAPER)
    draw = ImageDraw.Draw(sheet)
    draw.text((_MARGIN, _MARGIN), title, style.INK, font)
    y = top
    for name, (_, pictures), count in zip(names, rows, lines, strict=True):
        draw.text((_MARGIN, y + (step_y - _GAP - _TEXT) // 2), name, style.INK, font)
        for at, picture in enumerate(pictures):
            down, over = divmod(at, COLUMNS)
            x, top_of = left + over * step_x, y + down * step_y
            # Pictures may be as white as the paper, or go on in the next one.
            edge = (x - 1, top_of - 1, x + width * zoom, top_of + height * zoom)
            draw.rectangle(edge, outline=style.LINE)
            sheet.paste(_picture(picture, zoom), (x, top_of))
        y += count * step_y + _GAP
    return sheet


def write_png(sheet: PilImage, path: Path) -> None:
    """Write the picture atomically, as SVG or PDF if the name ends so. Raises DatasetError."""
    buffer, form = io.BytesIO(), path.suffix.lower()
    # Nothing in the file tells the time.
    dates = dict.fromkeys(("creationDate", "modDate"))
    sheet.save(buffer, "PDF" if form == ".pdf" else "PNG", optimize=True, quality=95, **dates)
    data = buffer.getvalue()
    if form == ".svg":
        page = svg.picture(*sheet.size, printable(path.stem))
        href = f"data:image/png;base64,{base64.b64encode(data).decode()}"
        svg.add(page, "image", href=href, width=sheet.width, height=sheet.height)
        data = svg.written(page).encode()
    write(data, path)


def write(data: bytes, path: Path) -> None:
    """Write a file atomically. Raises DatasetError if it cannot be written."""
    with explaining(path, "cannot be written", ELSEWHERE, DatasetError):
        atomic_write(path, data)
        remove_abandoned(path.parent)


def _picture(pixels: NDArray[np.uint8], zoom: int) -> PilImage:
    """(C, H, W) as an RGB picture; unless C is 3, the mean over the channels, in grey."""
    grey = np.rint(pixels.mean(0)).astype(np.uint8)
    colours = pixels if len(pixels) == 3 else np.stack([grey] * 3)
    return as_image(colours.repeat(zoom, 1).repeat(zoom, 2))

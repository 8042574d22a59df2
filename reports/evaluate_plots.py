"""An evaluation as pictures: ``confusion.png``, ``reliability.png`` and ``errors.png``.

Drawn with Pillow alone, within a fraction of a second: loading a plotting library would take longer
than most evaluations.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ..datasets import ImageSet, as_image
from ..training.inference.evaluate import Evaluation
from . import fonts, style
from .contact_sheet import write_png
from .plots import wanted
from .reliability_plot import RELIABILITY, reliability_picture
from .targets_plots import draw_targets

if TYPE_CHECKING:
    from PIL.Image import Image as PilImage
    from PIL.ImageFont import FreeTypeFont, ImageFont

CONFUSION = "confusion.png"
ERRORS = "errors.png"

_RIGHT, _WRONG = style.GREEN, style.RED
_MARGIN = 20
_TITLE, _TEXT, _SMALL_TEXT = 18, 15, 12
_LONGEST_NAME = 18

# The approximate width of the matrix in pixels; the least and greatest size of a cell.
_MATRIX = 640
_SMALL, _LARGE = 6, 64
# Below this size, cells have no room for numbers, and only some classes are named.
_READABLE = 26

# The approximate width of the sheet of mistakes in pixels.
_SHEET = 1130
_PICTURE, _LARGEST_PICTURE = 112, 200


def draw_plots(result: Evaluation, images: ImageSet, folder: Path) -> list[Path]:
    """Write the pictures into the folder, creating it, but for those of which there is nothing to
    show; of numbers and questions those of ``targets_plots``.

    images: the data set that was evaluated. Raises OSError or DatasetError if that fails.
    """
    if not result.counts:
        return draw_targets(result, folder)
    folder.mkdir(parents=True, exist_ok=True)
    written = [wanted(folder / CONFUSION)]
    write_png(confusion_picture(result), written[0])
    # Samples of float32 are no pictures.
    shown = result.worst and images.images.dtype == np.uint8
    others = {
        RELIABILITY: reliability_picture(result),
        ERRORS: errors_picture(result, images) if shown else None,
    }
    for name, picture in others.items():
        if picture is not None:
            written.append(wanted(folder / name))
            write_png(picture, written[-1])
        else:
            # A file of an earlier evaluation would show what is outdated.
            with contextlib.suppress(FileNotFoundError):
                wanted(folder / name).unlink()
    return written


def confusion_picture(result: Evaluation) -> PilImage:
    """The matrix with its numbers: right answers green, mistakes red, shaded by their share."""
    from PIL import Image, ImageDraw

    text, small = fonts.font(_TEXT), fonts.font(13)
    size = len(result.classes)
    cell = min(max(_MATRIX // size, _SMALL), _LARGE)
    names = fonts.drawable(tuple(result.classes), _LONGEST_NAME)
    # If rows are narrower than a line of text, only every n-th class is named.
    every = max(1, -(-(_TEXT + 3) // cell))
    widest = max(round(text.getlength(name)) for name in names)
    upright = widest <= cell - 4
    above = _MARGIN + 64 + (_TEXT if upright else widest) + 10
    left = _MARGIN + 26 + widest + 10
    width = max(left + cell * size + _MARGIN, 520)
    picture = Image.new("RGB", (width, above + cell * size + _MARGIN), style.PAPER)
    draw = ImageDraw.Draw(picture)
    right = f"{result.accuracy:.2%} right ({result.correct} of {result.count})"
    title = f"{result.dataset}, {result.part}: {right}"
    draw.text((_MARGIN, _MARGIN - 6), title, style.INK, fonts.font(_TITLE))
    middle = left + cell * size // 2
    draw.text((middle, _MARGIN + 36), "answer of the network", style.GREY, text, anchor="mm")
    _turned(
        picture, "true class", (_MARGIN + 4, above + cell * size // 2), style.GREY, text, "centre"
    )
    shares = result.confusion / np.maximum(result.confusion.sum(1, keepdims=True), 1)
    wrong = shares - np.diag(np.diag(shares))
    most = max(float(wrong.max()), 1e-9)
    for row in range(size):
        y = above + row * cell
        if row % every == 0:
            draw.text((left - 8, y + cell // 2), names[row], style.INK, text, anchor="rm")
            x = left + row * cell + cell // 2
            if upright:
                draw.text((x, above - 8), names[row], style.INK, text, anchor="ms")
            else:
                _turned(picture, names[row], (x, above - 8), style.INK, text, "bottom")
        for column in range(size):
            x = left + column * cell
            number = int(result.confusion[row, column])
            if row == column:
                shade = 0.15 + 0.75 * float(shares[row, row]) if number else 0.0
                colour = style.mixed(_RIGHT, shade)
            else:
                # The square root makes single mistakes visible beside common ones.
                shade = float(np.sqrt(wrong[row, column] / most)) * 0.85
                colour = style.mixed(_WRONG, 0.1 + shade * 0.9 if number else 0.0)
            line = style.LINE if cell >= _READABLE else None
            draw.rectangle((x, y, x + cell, y + cell), colour, line)
            if number and cell >= _READABLE:
                ink = style.PAPER if shade > 0.62 else style.INK
                font = text if cell > 44 else small
                if font.getlength(str(number)) <= cell - 2:
                    draw.text((x + cell // 2, y + cell // 2), str(number), ink, font, anchor="mm")
    draw.rectangle((left, above, left + cell * size, above + cell * size), None, style.GREY)
    return picture


def errors_picture(result: Evaluation, images: ImageSet, title: str = "") -> PilImage:
    """The worst mistakes: the picture, its label and the answer, each with its probability."""
    from PIL import Image, ImageDraw

    text = fonts.font(_TEXT)
    wrong = result.count - result.correct
    names = fonts.drawable(tuple(result.classes), _LONGEST_NAME)
    longest = max(map(text.getlength, names))
    tile = max(_PICTURE + 28, round(longest + text.getlength("label    100.0%")) + 28)
    key = "label and answer of the network, with their probabilities; the worst first"
    least = -(-round(text.getlength(key)) // tile)
    columns = min(max(len(result.worst), least), max(_SHEET // tile, 1))
    rows = -(-len(result.worst) // columns)
    room = min(tile - 28, _LARGEST_PICTURE)
    pictures = [_fitted(images, mistake.index, room) for mistake in result.worst]
    tall = max(picture.height for picture in pictures)
    named = [mistake.source for mistake in result.worst]
    sources = [_source(source, tile - 24) for source in named]
    folders = [_folder(source, named, tile - 24) for source in named]
    high = tall + (2 + any(sources) + any(folders)) * (_TEXT + 4) + 22
    above = _MARGIN + 62
    size = 2 * _MARGIN + columns * tile, above + rows * high + _MARGIN - 14
    picture = Image.new("RGB", size, style.PAPER)
    draw = ImageDraw.Draw(picture)
    what = "worst of" if len(result.worst) < wrong else "of"
    mistakes = f"{wrong} mistakes on {result.dataset}, {result.part}"
    title = title or f"{len(result.worst)} {what} {mistakes}"
    draw.text((_MARGIN, _MARGIN - 6), title, style.INK, fonts.font(_TITLE))
    draw.text((_MARGIN, _MARGIN + 24), key, style.GREY, text)
    for position, mistake in enumerate(result.worst):
        down, across = divmod(position, columns)
        x, y = _MARGIN + across * tile, above + down * high
        picture.paste(pictures[position], (x, y))
        lines = (
            ("label", mistake.label, mistake.true_probability, _RIGHT),
            ("said", mistake.answer, mistake.probability, _WRONG),
        )
        for line, (word, label, share, colour) in enumerate(lines):
            below = y + tall + 4 + line * (_TEXT + 4)
            draw.text((x, below), f"{word}  {names[label]}", colour, text)
            draw.text((x + tile - 22, below), f"{share:.1%}", colour, text, anchor="ra")
        below = y + tall + 4 + len(lines) * (_TEXT + 4)
        for line, said in enumerate((sources[position], folders[position])):
            place = x, below + line * (_TEXT + 2)
            draw.text(place, said, style.GREY, fonts.font(_SMALL_TEXT))
    return picture


def _source(source: str, room: int) -> str:
    """The end of a path, or the beginning of anything else, in ``room`` pixels."""
    is_path = os.path.isabs(source)
    return _cut(os.path.basename(source) if is_path else source, room, is_path)


def _folder(source: str, others: Sequence[str], room: int) -> str:
    """Which folder a file is in, as far as that tells it from others of its name; "" without."""
    *above, name = parts = source.split(os.sep)
    alike = [each.split(os.sep) for each in others if each != source]
    alike = [each for each in alike if each[-1] == name]
    if not os.path.isabs(source) or not alike:
        return ""
    count = next(n for n in range(2, len(parts) + 2) if all(e[-n:] != parts[-n:] for e in alike))
    return _cut(f"in {os.sep.join(above[-(count - 1) :])}", room, True)


def _cut(text: str, room: int, is_path: bool) -> str:
    """What fits of a text: the end of a path, the beginning of anything else."""
    font, signs = fonts.font(_SMALL_TEXT), fonts.drawable_signs(text)
    shown = "".join(signs)
    while signs and font.getlength(shown) > room:
        signs = signs[1:] if is_path else signs[:-1]
        shown = "".join(["…", *signs] if is_path else [*signs, "…"])
    return shown


def _fitted(images: ImageSet, index: int, room: int) -> PilImage:
    """One picture as RGB, no side longer than ``room``; enlarged by an integer factor."""
    from PIL import Image

    picture = as_image(images.images[index]).convert("RGB")
    longest = max(picture.size)
    if longest > room:
        picture.thumbnail((room, room), Image.Resampling.BOX)
        return picture
    times = room // longest
    return picture.resize((picture.width * times, picture.height * times), Image.Resampling.NEAREST)


def _turned(
    picture: PilImage,
    words: str,
    place: tuple[int, int],
    colour: style.Colour,
    font: FreeTypeFont | ImageFont,
    anchor: str,
) -> None:
    """Vertical text; place: the middle of its lower end, or of its left edge."""
    from PIL import Image, ImageDraw

    length, height = round(font.getlength(words)) + 2, _TEXT + 6
    mask = Image.new("L", (length, height))
    ImageDraw.Draw(mask).text((0, height // 2), words, 255, font, anchor="lm")
    mask = mask.transpose(Image.Transpose.ROTATE_90)
    x, y = place
    corner = (x, y - length // 2) if anchor == "centre" else (x - height // 2, y - length)
    picture.paste(colour, (*corner, corner[0] + height, corner[1] + length), mask)

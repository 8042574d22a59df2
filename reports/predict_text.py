"""A prediction as text: the picture in block characters beside a bar chart of probabilities."""

from __future__ import annotations

import csv
import io
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..common.cells import cells, padded
from ..common.printable import paragraph
from ..common.text import cut
from ..datasets import as_image
from ..training.predict import Answer, Prediction

if TYPE_CHECKING:
    from PIL.Image import Image as PilImage

WIDTH = 80
_LABEL = 16
_GAP = "  "
# The least width of the chart; a narrower terminal breaks its lines.
_LEAST = 24
# The greatest width of a picture in characters.
_COLUMNS = 32
# Up to this number of classes, all are shown, in their own order.
_ALL = 14
_HALVES = " ▀▄█"
_EIGHTHS = " ▏▎▍▌▋▊▉█"
_ASCII = {"▀": '"', "▄": ".", "█": "#"}


def wanted(classes: int, top: int | None) -> int:
    """The number of answers in the chart: ``top`` if given, else all of up to 14, else 10."""
    return top if top is not None else classes if classes <= _ALL else 10


def headline(prediction: Prediction, name: str) -> str:
    """The likeliest class of a picture and its probability, in a line."""
    best = prediction.best
    found = f"{best.label}  {best.probability:.1%}"
    if prediction.doubt:
        found = f"not sure ({prediction.doubt}); likeliest: {found}"
    return f"{name}: {found}"


def as_text(
    prediction: Prediction,
    name: str,
    best_first: bool = False,
    plain: bool = False,
    width: int = WIDTH,
) -> str:
    """A headline, then the picture and the chart of its answers side by side.

    Answers are in the order of the classes, or ``best_first``. ``plain``: ASCII only.
    """
    left = blocks(prediction.picture.image)
    taken = max(map(len, left))
    head, *rest = _lines(prediction, name, best_first, taken, len(left), width)
    rows = [f"{row:<{taken}}" for row in left] + [" " * taken] * (len(rest) - len(left))
    beside = [f"{row}{text}".rstrip() for row, text in zip(rows, rest, strict=True)]
    text = paragraph(_stripped([head, *beside]))
    return _to_ascii(text) if plain else text


def as_colours(
    prediction: Prediction, name: str, best_first: bool = False, width: int = WIDTH
) -> list[tuple[str, bool]]:
    """The same with the picture in its colours, for a terminal that has 24 bits of them.

    Texts in order, each with whether it is ours and may hold escape sequences.
    """
    left, taken = colour_blocks(prediction.picture.image)
    head, *rest = _lines(prediction, name, best_first, taken, len(left), width)
    parts = [(paragraph([head, ""]), False)]
    for at, text in enumerate(rest):
        row = left[at] if at < len(left) else " " * taken
        parts += [(row, True), (paragraph([text.rstrip(), ""]), False)]
    return parts


def _lines(
    prediction: Prediction, name: str, best_first: bool, taken: int, height: int, width: int
) -> list[str]:
    """The headline, then what stands beside a picture that takes so many columns and lines."""
    best = prediction.best
    answers = list(prediction.top)
    if not best_first:
        answers.sort(key=lambda answer: answer.index)
    room = max(min(width, WIDTH) - taken - len(_GAP), _LEAST)
    steps = ", ".join(prediction.preprocessing).replace("_", " ") or "used as it is"
    right = [*_chart(answers, best, room), "", *textwrap.wrap(steps, room)]
    right += [""] * (height - len(right))
    return [headline(prediction, name), *(f"{_GAP}{text}" for text in right)]


def _stripped(lines: Sequence[str]) -> list[str]:
    """Without empty lines at the end, but for one."""
    kept = list(lines)
    while not kept[-1]:
        kept.pop()
    return [*kept, ""]


def csv_row(cells: Sequence[str]) -> str:
    """A line of CSV without its end."""
    line = io.StringIO()
    # Without a line terminator, the writer would not quote a path that contains a line break.
    csv.writer(line, lineterminator="\n").writerow(cells)
    return line.getvalue()[:-1]


def blocks(image: NDArray[np.uint8]) -> list[str]:
    """A picture in half blocks, two pixels per character. image: (C, H, W) uint8.

    Light pixels are drawn. All but two-tone pictures are dithered, to show grey by density.
    """
    picture = _reduced(image).convert("L")
    grey = np.asarray(picture)
    if float(np.mean((grey > 64) & (grey < 192))) < 0.15:
        dots = grey >= 112
    else:
        dots = np.asarray(picture.convert("1"))
    dots = np.pad(dots, ((0, len(dots) % 2), (0, 0)))
    codes = dots[0::2].astype(int) + 2 * dots[1::2]
    return ["".join(_HALVES[code] for code in row) for row in codes.tolist()]


def colour_blocks(image: NDArray[np.uint8]) -> tuple[list[str], int]:
    """A picture in half blocks with 24-bit colours, and its columns. image: (C, H, W) uint8."""
    pixels = np.asarray(_reduced(image).convert("RGB"))
    rows = []
    for top in range(0, len(pixels), 2):
        cells = []
        for x in range(pixels.shape[1]):
            upper = ";".join(map(str, pixels[top, x]))
            below = ""
            if top + 1 < len(pixels):
                below = f";48;2;{';'.join(map(str, pixels[top + 1, x]))}"
            cells.append(f"\x1b[38;2;{upper}{below}m▀")
        rows.append("".join(cells) + "\x1b[0m")
    return rows, pixels.shape[1]


def _reduced(image: NDArray[np.uint8]) -> PilImage:
    """The picture, scaled down if it is too wide."""
    from PIL import Image

    picture = as_image(image)
    if picture.width <= _COLUMNS:
        return picture
    height = max(round(picture.height * _COLUMNS / picture.width), 1)
    return picture.resize((_COLUMNS, height), Image.Resampling.BOX)


def _chart(answers: Sequence[Answer], best: Answer, width: int) -> list[str]:
    """A line for each answer: label, probability, bar; an arrow at the best."""
    labels = [cut(answer.label, _LABEL) for answer in answers]
    column = max(map(cells, labels))
    room = width - column - len("  100.0%  ")
    lines = []
    for label, answer in zip(labels, answers, strict=True):
        arrow = ">" if answer == best else " "
        bar = _bar(answer.probability, room)
        named = f"{arrow} {padded(label, column, '>')}"
        lines.append(f"{named} {answer.probability:6.1%} {bar}".rstrip())
    return lines


def _bar(share: float, width: int) -> str:
    eighths = round(min(max(share, 0.0), 1.0) * width * 8)
    return "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()


def _to_ascii(text: str) -> str:
    return "".join(
        sign if sign.isascii() else _ASCII.get(sign, "." if sign == "…" else "") for sign in text
    )

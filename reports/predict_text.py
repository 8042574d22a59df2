"""A prediction as text: the picture in block characters beside a bar chart of probabilities."""

from __future__ import annotations

import csv
import io
import textwrap
from collections.abc import Iterable, Sequence
from itertools import product, zip_longest
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..common.cells import cells, padded
from ..common.printable import paragraph
from ..common.text import cut
from ..datasets import as_image
from ..training.inference.predict import Answer, Prediction
from .tables import WIDTH

if TYPE_CHECKING:
    from PIL.Image import Image as PilImage

_LABEL = 16
_GAP = "  "
# The least width of a chart beside the picture, and of its bars.
_LEAST, _LEAST_BAR = 24, 4
# The greatest width of a picture in characters.
_COLUMNS = 32
# Up to this number of classes, all are shown, in their own order.
_ALL = 14
_HALVES = " ▀▄█"
_EIGHTHS = " ▏▎▍▌▋▊▉█"
_ASCII = str.maketrans("▀▄█", '".#', _EIGHTHS[1:-1])
_CUBE = np.array(
    [
        *product((0, 95, 135, 175, 215, 255), repeat=3),
        *((grey,) * 3 for grey in range(8, 248, 10)),
    ]
)
# Blue is the highest bit of their numbers.
_SIXTEEN = np.array([*product((0, 205), repeat=3), *product((92, 255), repeat=3)])[:, ::-1]


def wanted(classes: int, top: int | None) -> int:
    """The number of answers in the chart: ``top`` if given, else all of up to 14, else 10."""
    return top if top is not None else classes if classes <= _ALL else 10


def headline(prediction: Prediction, name: str) -> str:
    """The likeliest class of a picture and its probability, or all answers, in a line."""
    if prediction.open:
        return f"{name}: {prediction.said()}"
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
    drawn: bool = True,
) -> str:
    """A headline, then the picture and the chart of its answers side by side.

    On a narrow terminal the chart is below the picture. Answers are in the order of the classes, or
    ``best_first``. ``plain``: no block characters; ``drawn``: show pictures of two tones.
    """
    left = blocks(prediction.picture.image, width) if drawn else []
    taken = max(map(len, left), default=0)
    left = [f"{row:<{taken}}" for row in (_to_ascii(left) if plain else left)]
    shown = _rows(prediction, left, taken, best_first, width, plain)
    lines = [f"{row}{text}".rstrip() for row, text in shown]
    return paragraph(_stripped([headline(prediction, name), *lines]))


def as_colours(
    prediction: Prediction,
    name: str,
    best_first: bool = False,
    width: int = WIDTH,
    colours: int = 1 << 24,
) -> list[tuple[str, bool]]:
    """The same with the picture in the nearest of a terminal's 16, 256 or all ``colours``.

    Texts in order, each with whether it is ours and may hold escape sequences.
    """
    left, taken = colour_blocks(prediction.picture.image, width, colours)
    parts = [(paragraph([headline(prediction, name), ""]), False)]
    for row, text in _rows(prediction, left, taken, best_first, width, plain=False):
        parts += [(row, True), (paragraph([text.rstrip(), ""]), False)]
    return parts


def _rows(
    prediction: Prediction, left: list[str], taken: int, best_first: bool, width: int, plain: bool
) -> list[tuple[str, str]]:
    """Rows of the picture, which takes so many columns, each with what stands beside it."""
    answers = list(prediction.top)
    if not best_first:
        answers.sort(key=lambda answer: answer.index)
    steps = ", ".join(prediction.preprocessing).replace("_", " ") or "used as it is"
    room = min(width, WIDTH) - taken - len(_GAP)
    below = room < _LEAST
    room = min(width, WIDTH) if below else room
    best = None if prediction.open else prediction.best
    chart = [] if prediction.kind == "numbers" else [*_chart(answers, best, room, plain), ""]
    right = [*chart, *textwrap.wrap(steps, room)]
    if below:
        return [*((row, "") for row in left), *(("", text) for text in ("", *right))]
    left = [*left, *[" " * taken] * (len(right) - len(left))]
    return [(row, f"{_GAP}{text}") for row, text in zip_longest(left, right, fillvalue="")]


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


def blocks(image: NDArray[np.uint8], most: int = _COLUMNS) -> list[str]:
    """A picture in half blocks, two pixels per character. image: (C, H, W) uint8.

    Light pixels are drawn. There are no blocks of a picture that has more than two tones.
    """
    grey = np.asarray(_reduced(image, most).convert("L"))
    if float(np.mean((grey > 64) & (grey < 192))) >= 0.15:
        return []
    dots = grey >= 112
    dots = np.pad(dots, ((0, len(dots) % 2), (0, 0)))
    codes = dots[0::2].astype(int) + 2 * dots[1::2]
    return ["".join(_HALVES[code] for code in row) for row in codes.tolist()]


def colour_blocks(
    image: NDArray[np.uint8], most: int = _COLUMNS, colours: int = 1 << 24
) -> tuple[list[str], int]:
    """A picture in half blocks with so many colours, and its columns. image: (C, H, W) uint8."""
    pixels = np.asarray(_reduced(image, most).convert("RGB"))
    rows = []
    for top in range(0, len(pixels), 2):
        cells = []
        for x in range(pixels.shape[1]):
            code = _colour(38, pixels[top, x], colours)
            if top + 1 < len(pixels):
                code += f";{_colour(48, pixels[top + 1, x], colours)}"
            cells.append(f"\x1b[{code}m▀")
        rows.append("".join(cells) + "\x1b[0m")
    return rows, pixels.shape[1]


def _colour(ground: int, pixel: NDArray[np.uint8], colours: int) -> str:
    """The code of a colour, or of the nearest; ground: 38 before, 48 behind. pixel: (3,)."""
    if colours > 256:
        return f"{ground};2;{';'.join(map(str, pixel))}"
    palette = _CUBE if colours == 256 else _SIXTEEN
    number = int(((palette - pixel) ** 2).sum(1).argmin())
    # Of 16 colours the bright ones have codes of their own.
    bright = 52 * (number > 7)
    return f"{ground};5;{number + 16}" if colours == 256 else f"{ground - 8 + number + bright}"


def _reduced(image: NDArray[np.uint8], most: int) -> PilImage:
    """The picture, scaled down if it is wider than ``most`` or than any that is shown."""
    from PIL import Image

    picture = as_image(image)
    most = min(most, _COLUMNS)
    if picture.width <= most:
        return picture
    height = max(round(picture.height * most / picture.width), 1)
    return picture.resize((most, height), Image.Resampling.BOX)


def _chart(answers: Sequence[Answer], best: Answer | None, width: int, plain: bool) -> list[str]:
    """A line for each answer: label, probability, bar; an arrow at the best."""
    free = width - len("  100.0%  ")
    labels = [cut(answer.label, max(min(_LABEL, free - _LEAST_BAR), 1)) for answer in answers]
    column = max(map(cells, labels))
    room = max(free - column, 0)
    lines = []
    for label, answer in zip(labels, answers, strict=True):
        arrow = ">" if answer == best else " "
        bar = _bar(answer.probability, room)
        bar = _to_ascii([bar])[0] if plain else bar
        named = f"{arrow} {padded(label, column, '>')}"
        lines.append(f"{named} {answer.probability:6.1%} {bar}".rstrip())
    return lines


def _bar(share: float, width: int) -> str:
    eighths = round(share * width * 8)
    return "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()


def _to_ascii(drawn: Iterable[str]) -> list[str]:
    """Block characters as ASCII; names are not drawn, and keep every character."""
    return [row.translate(_ASCII) for row in drawn]

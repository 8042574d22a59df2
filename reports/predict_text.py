"""A prediction as text: the picture in block characters beside a bar chart of probabilities."""

from __future__ import annotations

import csv
import io
import textwrap
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ..common.printable import paragraph
from ..common.text import cut
from ..datasets import as_image
from ..training.predict import Answer, Prediction

_WIDTH = 80
_LABEL = 16
_GAP = "  "
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


def as_text(
    prediction: Prediction, name: str, best_first: bool = False, plain: bool = False
) -> str:
    """A headline, then the picture and the chart of its answers side by side, 80 columns.

    Answers are in the order of the classes, or ``best_first``. ``plain``: ASCII only.
    """
    best = prediction.best
    answers = list(prediction.top)
    if not best_first:
        answers.sort(key=lambda answer: answer.index)
    left = blocks(prediction.picture.image)
    width = max(map(len, left))
    room = _WIDTH - width - len(_GAP)
    steps = ", ".join(prediction.preprocessing).replace("_", " ") or "used as it is"
    right = [*_chart(answers, best, room), "", *textwrap.wrap(steps, room)]
    lines = [f"{name}: {best.label}  {best.probability:.1%}"]
    for i in range(max(len(left), len(right))):
        picture = left[i] if i < len(left) else ""
        text = right[i] if i < len(right) else ""
        lines.append(f"{picture:<{width}}{_GAP}{text}".rstrip())
    while not lines[-1]:
        lines.pop()
    text = paragraph([*lines, ""])
    return _to_ascii(text) if plain else text


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
    from PIL import Image

    picture = as_image(image).convert("L")
    if picture.width > _COLUMNS:
        height = max(round(picture.height * _COLUMNS / picture.width), 1)
        picture = picture.resize((_COLUMNS, height), Image.Resampling.BOX)
    grey = np.asarray(picture)
    if float(np.mean((grey > 64) & (grey < 192))) < 0.15:
        dots = grey >= 112
    else:
        dots = np.asarray(picture.convert("1"))
    dots = np.pad(dots, ((0, len(dots) % 2), (0, 0)))
    codes = dots[0::2].astype(int) + 2 * dots[1::2]
    return ["".join(_HALVES[code] for code in row) for row in codes.tolist()]


def _chart(answers: Sequence[Answer], best: Answer, width: int) -> list[str]:
    """A line for each answer: label, probability, bar; an arrow at the best."""
    labels = [cut(answer.label, _LABEL) for answer in answers]
    column = max(map(len, labels))
    room = width - column - len("  100.0%  ")
    lines = []
    for label, answer in zip(labels, answers, strict=True):
        arrow = ">" if answer == best else " "
        bar = _bar(answer.probability, room)
        lines.append(f"{arrow} {label:>{column}} {answer.probability:6.1%} {bar}".rstrip())
    return lines


def _bar(share: float, width: int) -> str:
    eighths = round(min(max(share, 0.0), 1.0) * width * 8)
    return "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()


def _to_ascii(text: str) -> str:
    return "".join(
        sign if sign.isascii() else _ASCII.get(sign, "." if sign == "…" else "") for sign in text
    )

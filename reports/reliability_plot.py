"""``reliability.png``: how often answers are right, by how probable the network calls them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..training.inference.evaluate import Evaluation
from ..training.metrics import BINS
from . import fonts, style

if TYPE_CHECKING:
    from PIL.Image import Image as PilImage

RELIABILITY = "reliability.png"
_MARGIN, _LEFT, _RIGHT, _ABOVE = 20, 84, 32, 92
_BIN, _HIGH, _COUNTS = 40, 420, 84
_TICKS = 5


def reliability_picture(result: Evaluation) -> PilImage | None:
    """A bar for each bin of the probabilities of answers: the share of these that are right, beside
    a line at their mean probability, and below, how many there are; None without probabilities."""
    from PIL import Image, ImageDraw

    if result.bins is None:
        return None
    text, small = fonts.font(15), fonts.font(11)
    wide, bottom = _BIN * BINS, _ABOVE + _HIGH
    size = _LEFT + wide + _RIGHT, bottom + 34 + _COUNTS + 34 + _MARGIN
    picture = Image.new("RGB", size, style.PAPER)
    draw = ImageDraw.Draw(picture)
    shares, right, counts = result.bins.tolist()
    total = sum(counts)
    error = sum(abs(p - own) for p, own in zip(shares, right, strict=True)) / total
    how = "" if result.temperature is None else f", temperature {result.temperature:.3f}"
    title = f"{result.dataset}, {result.part}: calibration error {error:.2%}{how}"
    draw.text((_MARGIN, _MARGIN - 6), title, style.INK, fonts.font(18))
    key = "bars: the share of right answers; lines: their mean probability"
    draw.text((_MARGIN, _MARGIN + 24), key, style.GREY, text)
    for tick in range(_TICKS + 1):
        y, x = bottom - _HIGH * tick // _TICKS, _LEFT + wide * tick // _TICKS
        draw.line((_LEFT, y, _LEFT + wide, y), style.LINE)
        share = f"{100 * tick // _TICKS}%"
        draw.text((_LEFT - 8, y), share, style.INK, text, anchor="rm")
        draw.text((x, bottom + 8), share, style.INK, text, anchor="ma")
    draw.line((_LEFT, bottom, _LEFT + wide, _ABOVE), style.PALE, 2)
    base = bottom + 34 + _COUNTS
    most = max(counts)
    for place, count in enumerate(counts):
        if not count:
            continue
        x = _LEFT + place * _BIN
        top = bottom - round(_HIGH * right[place] / count)
        mean = bottom - round(_HIGH * shares[place] / count)
        draw.rectangle((x + 4, min(top, bottom - 1), x + _BIN - 4, bottom), style.BLUE)
        draw.line((x + 1, mean, x + _BIN - 1, mean), style.RED, 3)
        # The square root makes rare answers visible beside common ones.
        tall = round((_COUNTS - 20) * (count / most) ** 0.5)
        draw.rectangle((x + 4, base - max(tall, 1), x + _BIN - 4, base), style.PALE)
        middle = x + _BIN // 2, base - max(tall, 1) - 3
        draw.text(middle, f"{count:.0f}", style.GREY, small, anchor="ms")
    draw.line((_LEFT, bottom, _LEFT + wide, bottom), style.GREY)
    draw.line((_LEFT, base, _LEFT + wide, base), style.GREY)
    draw.text((_LEFT - 8, base), "answers", style.GREY, text, anchor="rs")
    below = _LEFT + wide // 2, base + 10
    draw.text(below, "probability of the answer", style.GREY, text, anchor="ma")
    return picture

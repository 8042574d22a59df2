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


def reliability_picture(result: Evaluation) -> PilImage | None:
    """A bar for each bin of the probabilities of answers: the share of these that are right, beside
    a line at their mean probability, and below, how many there are; None without probabilities."""
    from PIL import Image, ImageDraw

    if result.bins is None:
        return None
    text, wide, bottom = fonts.font(15), _BIN * BINS, _ABOVE + _HIGH
    base = bottom + 34 + _COUNTS
    picture = Image.new("RGB", (_LEFT + wide + _RIGHT, base + 54), style.PAPER)
    draw = ImageDraw.Draw(picture)
    shares, right, counts = result.bins
    error = float(abs(shares - right).sum() / counts.sum())
    how = "" if result.temperature is None else f", temperature {result.temperature:.3f}"
    title = f"{result.dataset}, {result.part}: calibration error {error:.2%}{how}"
    draw.text((_MARGIN, _MARGIN - 6), title, style.INK, fonts.font(18))
    key = "bars: the share of right answers; lines: their mean probability"
    draw.text((_MARGIN, _MARGIN + 24), key, style.GREY, text)
    for tick in range(0, 101, 20):
        y, x = bottom - _HIGH * tick // 100, _LEFT + wide * tick // 100
        draw.line((_LEFT, y, _LEFT + wide, y), style.LINE if tick else style.GREY)
        draw.text((_LEFT - 8, y), f"{tick}%", style.INK, text, anchor="rm")
        draw.text((x, bottom + 8), f"{tick}%", style.INK, text, anchor="ma")
    draw.line((_LEFT, bottom, _LEFT + wide, _ABOVE), style.PALE, 2)
    for place, count in enumerate(counts.tolist()):
        if not count:
            continue
        x = _LEFT + place * _BIN
        top, mean = (bottom - round(_HIGH * each[place] / count) for each in (right, shares))
        # The square root makes rare answers visible beside common ones.
        high = base - round((_COUNTS - 20) * float(count / counts.max()) ** 0.5)
        draw.rectangle((x + 4, top, x + _BIN - 4, bottom), style.BLUE)
        draw.line((x + 1, mean, x + _BIN - 1, mean), style.RED, 3)
        draw.rectangle((x + 4, high, x + _BIN - 4, base), style.PALE)
        number = (x + _BIN // 2, high - 3), f"{count:.0f}"
        draw.text(*number, style.GREY, fonts.font(11), anchor="ms")
    draw.line((_LEFT, base, _LEFT + wide, base), style.GREY)
    draw.text((_LEFT - 8, base), "answers", style.GREY, text, anchor="rs")
    below = _LEFT + wide // 2, base + 10
    draw.text(below, "probability of the answer", style.GREY, text, anchor="ma")
    return picture

"""``series``: generated sequences that look like the beats of an electrocardiogram.

A beat is a sum of waves, which differ by class; their times, widths and heights vary, and a drift
and noise are added. Only sums and products are computed, element by element, so the bits are the
same on every processor.
"""

from __future__ import annotations

import numpy as np

from ..common.random import Key, uniform, words
from ..common.records import dataclass
from .decoded import Arrays
from .image_set import DatasetInfo
from .strokes import Strokes

LENGTH = 128
# In millivolts, what the byte 0 stands for, and a step.
_LOW, _STEP = -1.0, 3.0 / 255
# Of each wave the time after the main one and half the width, in lengths of the sequence, and the
# height in millivolts.
_START = ((-0.22, 0.07, 0.15), (-0.045, 0.025, -0.12), (0.0, 0.035, 1.0), (0.05, 0.03, -0.25))
_END, _NONE = (0.27, 0.13, 0.3), (0.0, 1.0, 0.0)
_WAVES = {
    "normal": (*_START, _END, _NONE),
    "elevated": (*_START, _END, (0.13, 0.13, 0.18)),
    "ventricular": ((0.0, 0.09, 0.9), (0.12, 0.09, -0.3), (0.3, 0.14, -0.3), *[_NONE] * 3),
}
_TIME, _WIDTH, _HEIGHT, _DRIFT, _NOISE = 0.015, 0.2, 0.3, 0.3, 0.1
# Of the sum of the four bytes of a random word, the mean and the standard deviation.
_MEAN, _SPREAD = 510.0, 147.8
_CHUNK = 512


def draw(stream: Key, start: int, stop: int) -> Arrays:
    """Samples start .. stop - 1 of a stream: (M, LENGTH) bytes and (M,) labels."""
    table = np.array(list(_WAVES.values()))
    kinds, waves, _ = table.shape
    counters, times = np.arange(start, stop), np.arange(LENGTH) / LENGTH
    drawn = uniform(stream, counters, 3 + 3 * waves)
    labels = (drawn[:, 0] * kinds).astype(np.int32)
    middle, varied = 0.35 + 0.2 * drawn[:, 1], 2.0 * drawn[:, 2:, None] - 1.0
    values = _DRIFT * varied[:, 0] * (times - 0.5)
    for wave in range(waves):
        time, width, height = table[labels, wave].T[..., None]
        at, wide, high = varied[:, 1 + 3 * wave : 4 + 3 * wave].swapaxes(0, 1)
        away = times - (middle[:, None] + time + _TIME * at)
        away /= width * (1.0 + _WIDTH * wide)
        bump = np.maximum(1.0 - away * away, 0.0)
        values += height * (1.0 + _HEIGHT * high) * bump * bump
    # Behind the words of the numbers above, two for each.
    four = words(stream, counters, -(-drawn.shape[1] // 2), LENGTH // 4).reshape(-1, LENGTH)
    total = sum((four >> shift & 255).astype(np.float64) for shift in (0, 8, 16, 24))
    values += (total - _MEAN) * (_NOISE / _SPREAD)
    return np.rint((values - _LOW) / _STEP).clip(0, 255).astype(np.uint8), labels


@dataclass(frozen=True)
class Series(Strokes):
    about = "the program draws the sequences"
    version = 1
    known = DatasetInfo(
        "series", (1, 1, LENGTH), (*_WAVES,), None, None, scale=(_STEP,), shift=(_LOW,)
    )
    train_count: int = 6_000
    test_count: int = 2_000

    def draw(self, stream: Key, count: int) -> Arrays:
        starts = range(0, count, _CHUNK)
        parts = [draw(stream, at, min(at + _CHUNK, count)) for at in starts]
        sequences, labels = map(np.concatenate, zip(*parts, strict=True))
        return sequences[:, None, None], labels

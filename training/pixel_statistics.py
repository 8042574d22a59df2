"""Mean and standard deviation of the pixels of a data set."""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Pixels that are counted at a time.
_CHUNK = 1 << 22

PerChannel = tuple[float, ...]
Found = tuple[PerChannel, PerChannel]
# The pictures that were measured last, which of them, and what was found.
_last: tuple[weakref.ref[NDArray[Any]], NDArray[np.int32], Found] | None = None


def mean_and_deviation(images: NDArray[Any], index: NDArray[np.int32]) -> Found:
    """Mean and standard deviation of each channel / 255 over images[index], from exact sums.

    images: (M, C, H, W); those of float32 are not divided. Of pictures that nobody can change, the
    last result is kept, for the trials of a search all begin with the same ones.
    """
    global _last
    kept = _last
    if kept is not None and kept[0]() is images and np.array_equal(kept[1], index):
        return kept[2]
    found = _measured(images, index)
    if not images.flags.writeable:
        _last = weakref.ref(images), index.copy(), found
    return found


def _measured(images: NDArray[Any], index: NDArray[np.int32]) -> Found:
    channels = images.shape[1]
    if images.dtype != np.uint8:
        return _of_floats(images, index)
    tally = np.zeros((channels, 256), np.int64)
    size = max(1, _CHUNK // images[:1].size)
    for start in range(0, len(index), size):
        chunk = images[index[start : start + size]]
        for channel in range(channels):
            tally[channel] += np.bincount(chunk[:, channel].ravel(), minlength=256)
    values = np.arange(256)
    number = tally.sum(1).tolist()
    sums, squares = (tally @ values).tolist(), (tally @ values**2).tolist()
    means = tuple(s / n / 255 for s, n in zip(sums, number, strict=True))
    # n times the sum of squares minus the squared sum: exact integers, so no cancellation.
    spread = zip(sums, squares, number, strict=True)
    return means, tuple(math.sqrt(n * q - s * s) / n / 255 for s, q, n in spread)


def _of_floats(images: NDArray[np.float32], index: NDArray[np.int32]) -> Found:
    """The same of float32, in float64: first the means, then the deviations from them."""
    size = max(1, _CHUNK // images[:1].size)
    count = len(index) * images[0, 0].size

    def over_all(part: Callable[[NDArray[np.float64]], NDArray[np.float64]]) -> NDArray[Any]:
        starts = range(0, len(index), size)
        chunks = (images[index[at : at + size]].astype(np.float64) for at in starts)
        return np.asarray(np.sum([part(chunk).sum((0, 2, 3)) for chunk in chunks], axis=0) / count)

    means = over_all(lambda chunk: chunk)
    squares = over_all(lambda chunk: (chunk - means[:, None, None]) ** 2)
    return tuple(means.tolist()), tuple(np.sqrt(squares).tolist())

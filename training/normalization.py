"""How a config normalises samples, and the mean and deviation of those that are measured."""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..common.errors import ConfigError
from ..common.text import samples_of
from ..configs import RunConfig
from ..datasets import DatasetInfo, ImageSet
from .preprocessing import Preprocessing

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


def preprocessing(
    config: RunConfig,
    info: DatasetInfo,
    measured: tuple[Sequence[float], Sequence[float]] | None = None,
) -> Preprocessing:
    """x = (pixel / 255 - mean) / std for each channel; a single number applies to all channels.

    If the data set's bytes stand for other values than pixel / 255, or its samples are float32,
    these values are used instead.

    ``normalize: measured`` uses the mean and deviation ``measured``; a constant channel has
    deviation 0 and is divided by 1. Without them, for callers that need only shapes, x is
    pixel / 255. Raises ConfigError if the length of a list is not the number of channels.
    """
    channels = info.shape[0]
    normalize = config.data.normalize
    if normalize.measured and measured is not None:
        mean, std = measured
        unit = 1.0 if info.floats else 255.0
        return Preprocessing.standardize(mean, [each or 1.0 for each in std], unit)
    spread = {}
    for key, values in (("mean", normalize.mean), ("std", normalize.std)):
        if len(values) not in (1, channels):
            raise ConfigError(
                f"data.normalize.{key}: has {len(values)} numbers, but the "
                f"{samples_of(info.shape)} of '{info.name}' have {channels} "
                f"channel{'s' if channels > 1 else ''}; "
                f"give one number{f', or {channels}' if channels > 1 else ''}"
            )
        spread[key] = values * channels if len(values) == 1 else values
    plain = Preprocessing.standardize(spread["mean"], spread["std"], 1.0 if info.floats else 255.0)
    if info.scale is None or info.shift is None:
        return plain
    units = zip(info.scale, info.shift, spread["mean"], spread["std"], strict=True)
    scaled = [(scale / std, (shift - mean) / std) for scale, shift, mean, std in units]
    return Preprocessing(*map(tuple, zip(*scaled, strict=True)))


def of_trained_rows(data: ImageSet, train: NDArray[np.int32]) -> ImageSet:
    """``data`` where columns of a table have the means of the samples ``train``, also in gaps.

    Raises DatasetError, see ``Columns.settled``.
    """
    if data.columns is None:
        return data
    columns = data.columns.settled(data, train)
    return replace(data, columns=columns, images=columns.filled(data.images))


def preprocessing_of(
    config: RunConfig, info: DatasetInfo, data: ImageSet, train: NDArray[np.int32]
) -> Preprocessing:
    """``preprocessing`` for ``data``, of which ``train``, (N,), are trained on.

    Categories and answers, which are 0 or 1, are not standardised.
    """
    columns = data.columns
    if not config.data.normalize.measured:
        plain = preprocessing(config, info)
        if columns is None:
            return plain
        each = zip(plain.scale, plain.shift, columns.offsets, strict=True)
        return Preprocessing(plain.scale, tuple(a * offset + b for a, b, offset in each))
    mean, std = mean_and_deviation(data.images, train)
    if columns is not None:
        own = columns.standardised
        mean = tuple(value if each else 0.0 for value, each in zip(mean, own, strict=True))
        std = tuple(value if each else 1.0 for value, each in zip(std, own, strict=True))
    return preprocessing(config, info, (mean, std))

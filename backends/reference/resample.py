"""Places in the plane, and bilinear values at them: the resampling of an augmentation."""

from __future__ import annotations

from collections.abc import Sequence
from math import radians
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...common.random import Key, philox
from ...graph.augmentations import (
    Augmentation,
    Elastic,
    RandomResizedCrop,
    Rotate,
    Scale,
    Shift,
    stages,
)
from ...graph.ops import GatherAugmented
from ...graph.varying import Varied, variants
from ..base import Array


def drawn_words(key: Key, blocks: Array, counter: int) -> NDArray[np.uint32]:
    """The words of these blocks: (n,) -> (n, 4)."""
    grid = np.empty((len(blocks), 4), np.uint32)
    wide = blocks.astype(np.uint64)
    grid[:, 0], grid[:, 1] = wide & np.uint64(0xFFFFFFFF), wide >> np.uint64(32)
    grid[:, 2], grid[:, 3] = counter & 0xFFFFFFFF, counter >> 32
    return philox(key, grid)


def sources(
    op: GatherAugmented, rows: Array, epoch: int, drawn: Sequence[Array], floating: np.dtype[Any]
) -> tuple[Array, Array]:
    """From where each output pixel is fetched: y, x, both (n, H, W)."""
    n = len(rows)
    height, width = op.x.shape[2:]
    matrix, offset = np.broadcast_to(np.eye(2), (n, 2, 2)), np.zeros((n, 2))
    down = right = np.zeros((1, 1, 1), floating)
    # q = A1^-1 ... Ak^-1 p, each around the middle: built from the first to the last.
    for index in stages(op.augment)[1]:
        each, values = op.augment[index], drawn[index]
        if isinstance(each, Elastic):
            down, right = _displacement(each, op.keys[index], op, rows, epoch, floating)
            continue
        if isinstance(each, Varied):
            plane = variants(each, op.x.shape[1], height, width).plane[values[:, 0]]
            turned, moved = plane[:, :, :2], plane[:, :, 2]
        elif isinstance(each, RandomResizedCrop):
            sides = values[:, 2:] / [height, width]
            turned = sides[:, :, None] * np.eye(2)
            moved = values[:, :2] + (sides - 1) * [height, width] / 2
        else:
            turned, moved = _inverse(each, values)
        offset = offset + (matrix @ moved[:, :, None])[:, :, 0]
        matrix = matrix @ turned
    middle = np.array([(height - 1) / 2, (width - 1) / 2])
    start = (middle + offset).astype(floating)[..., None, None]
    entries = matrix.astype(floating)[..., None, None]
    y = (np.arange(height) - middle[0]).astype(floating)[:, None] + down
    x = (np.arange(width) - middle[1]).astype(floating)[None, :] + right
    return (
        entries[:, 0, 0] * y + entries[:, 0, 1] * x + start[:, 0],
        entries[:, 1, 0] * y + entries[:, 1, 1] * x + start[:, 1],
    )


def _inverse(each: Augmentation, u: Array) -> tuple[Array, Array]:
    """Matrix (n, 2, 2) and offset (n, 2) that lead from an output place (y, x) to its source."""
    matrix, offset = np.tile(np.eye(2), (len(u), 1, 1)), np.zeros((len(u), 2))
    if isinstance(each, Rotate):
        angle = (2.0 * u[:, 0] - 1.0) * radians(each.degrees)
        # Counterclockwise as seen, with y pointing down.
        matrix[:, 0, 0] = matrix[:, 1, 1] = np.cos(angle)
        matrix[:, 0, 1], matrix[:, 1, 0] = np.sin(angle), -np.sin(angle)
    elif isinstance(each, Scale):
        matrix /= (each.min + (each.max - each.min) * u[:, 0])[:, None, None]
    elif isinstance(each, Shift):
        offset = -(2.0 * u - 1.0) * each.pixels
    return matrix, offset


def folded(at: Array, size: int) -> Array:
    """Places mirrored at 0 and size - 1, as often as need be."""
    at, period = np.abs(at), max(2 * (size - 1), 1)
    at = at % period if at.max() > period else at
    return np.asarray(np.maximum(np.minimum(at, 2 * (size - 1) - at), 0))


def _displacement(
    elastic: Elastic, key: Key, op: GatherAugmented, rows: Array, epoch: int, dtype: np.dtype[Any]
) -> tuple[Array, Array]:
    """Down and to the right, in pixels, both (n, H, W)."""
    height, width = op.x.shape[2:]
    each = -(-height * width // 4)
    blocks = rows.astype(np.int64)[:, None] * each + np.arange(each)
    words = drawn_words(key, blocks.reshape(-1), epoch).reshape(len(rows), -1)
    noise = words[:, : height * width].reshape(len(rows), height, width)
    along_y = (_gaussian(elastic, height) * (elastic.alpha * 2.0**-15)).astype(dtype)
    along_x = _gaussian(elastic, width).astype(dtype)

    def smooth(half: Array) -> Array:
        # (half + 1/2) / 2^15 - 1, the division done by the matrix.
        centred = half.astype(np.int32) * 2 - (2**16 - 1)
        return np.asarray(along_y @ (centred.astype(dtype) / 2) @ along_x)

    return smooth(noise & np.uint32(0xFFFF)), smooth(noise >> np.uint32(16))


def _gaussian(elastic: Elastic, size: int) -> NDArray[np.float64]:
    """The symmetric matrix that smooths a line of ``size`` pixels, 0 being outside."""
    reach = np.arange(-elastic.radius, elastic.radius + 1)
    total = np.exp(-(reach**2) / (2.0 * elastic.sigma**2)).sum()
    apart = np.arange(size)[:, None] - np.arange(size)
    weights = np.exp(-(apart**2) / (2.0 * elastic.sigma**2)) / total
    return np.where(np.abs(apart) <= elastic.radius, weights, 0.0)


def resampled(pictures: Array, y: Array, x: Array) -> Array:
    """Bilinear values of pictures (n, C, H, W) at the places y, x (n, H, W); 0 outside."""
    n, channels, height, width = pictures.shape
    padded = np.zeros((n, channels, height + 2, width + 2), y.dtype)
    padded[:, :, 1:-1, 1:-1] = pictures
    # Beyond the rim of zeros there is nothing but zeros.
    y, x = np.clip(y, -1.0, height) + 1, np.clip(x, -1.0, width) + 1
    top, left = np.minimum(np.floor(y), height), np.minimum(np.floor(x), width)
    part_y, part_x = (y - top)[:, None], (x - left)[:, None]
    corner = (top * (width + 2) + left).astype(np.int64).reshape(n, 1, -1)
    plane = (height + 2) * (width + 2)
    start = np.arange(n * channels, dtype=np.int64).reshape(n, channels, 1) * plane
    index = start + corner
    flat = padded.reshape(-1)

    def at(away: int) -> Array:
        return np.asarray(flat.take(index + away).reshape(pictures.shape))

    upper = at(0) + part_x * (at(1) - at(0))
    lower = at(width + 2) + part_x * (at(width + 3) - at(width + 2))
    return np.asarray(upper + part_y * (lower - upper))

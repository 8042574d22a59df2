"""Augmentation computed slowly and plainly, and what a backend gathers."""

from __future__ import annotations

from collections.abc import Callable
from math import cos, exp, floor, radians, sin
from typing import Any

import numpy as np
from dnnstack.backends.base import Array, Backend, Options
from dnnstack.backends.reference.backend import ReferenceBackend
from dnnstack.common import random
from dnnstack.graph.augmentations import (
    AlternatingFlip,
    Augmentation,
    Cutout,
    Elastic,
    RandomCrop,
    RandomFlip,
    Recolour,
    Rotate,
    Scale,
    Shift,
    augmentation_keys,
)
from dnnstack.graph.graph import Graph, Tensor
from dnnstack.graph.ops import GatherAugmented

SEED, FILL = 11, 77


def gathered(
    augment: tuple[Augmentation, ...],
    images: Array,
    order: list[int],
    batch_size: int,
    step: int,
    backend: Backend | None = None,
    before: tuple[int, ...] = (),
) -> Array:
    """x of a step after those ``before``: pixels as they are, (N, C, H, W)."""
    _, channels, height, width = images.shape
    graph = Graph("gather", batch_size)

    def tensor(name: str, value: Array, role: str) -> Tensor:
        made = graph.tensor(name, value.shape, str(value.dtype), role)  # type: ignore[arg-type]
        values[made] = value
        return made

    values: dict[Tensor, Array] = {}
    x = graph.tensor("x", (batch_size, channels, height, width))
    graph.add(
        GatherAugmented(
            images=tensor("images", images, "data"),
            labels=tensor("labels", np.zeros(len(images), np.int32), "data"),
            order=tensor("order", np.array(order, np.int32), "data"),
            step=tensor("step", np.array([step], np.int64), "state"),
            x=x,
            target=graph.tensor("target", (batch_size,), "int32"),
            scale=(1.0,) * channels,
            shift=(0.0,) * channels,
            augment=augment,
            keys=augmentation_keys(augment, SEED),
            fill=(FILL,) * channels,
        )
    )
    precision: Any = "fp64" if backend is None else "fp32"
    chosen = backend or ReferenceBackend(1)
    executable = chosen.compile({"gather": graph}, Options(precision))
    for made, value in values.items():
        executable.write(made, value)
    for now in (*before, step):
        executable.write(graph.ops[0].step, np.array([now], np.int64))  # type: ignore[attr-defined]
        executable.run("gather")
    found = executable.read(x)
    executable.close()
    return found


Pixel = Callable[[int, int, int], float]


def word(augment: tuple[Augmentation, ...], index: int, block: int, counter: int, at: int) -> int:
    key = augmentation_keys(augment, SEED)[index]
    return int(random.words(key, counter, block, 1)[0, at])


def mirrored(at: int, size: int) -> int:
    at = abs(at)
    return 2 * (size - 1) - at if at >= size else at


def noise(augment: tuple[Augmentation, ...], index: int, size: Any, sample: int, epoch: int) -> Any:
    """Displacements (down, right) of every pixel, by the formula, sum by sum."""
    (height, width), each = size, augment[index]
    assert isinstance(each, Elastic)
    reach = int(4 * each.sigma + 0.5)
    weights = {k: exp(-k * k / (2 * each.sigma**2)) for k in range(-reach, reach + 1)}
    total = sum(weights.values())
    blocks = -(-height * width // 4)
    raw = np.zeros((2, height, width))
    for p in range(height * width):
        drawn = word(augment, index, sample * blocks + p // 4, epoch, p % 4)
        for side, half in enumerate((drawn & 0xFFFF, drawn >> 16)):
            raw[side, p // width, p % width] = (half + 0.5) / 2**15 - 1
    smooth = np.zeros_like(raw)
    for y in range(height):
        for x in range(width):
            for j in range(max(0, y - reach), min(height, y + reach + 1)):
                for i in range(max(0, x - reach), min(width, x + reach + 1)):
                    smooth[:, y, x] += raw[:, j, i] * weights[j - y] * weights[i - x] / total**2
    return smooth * each.alpha


def plainly(augment: tuple[Augmentation, ...], picture: Array, sample: int, epoch: int) -> Array:
    """One picture, augmentation after augmentation, each as the sentence that describes it."""
    channels, height, width = picture.shape
    pixels = picture.astype(np.float64)
    for index, each in enumerate(augment):
        if isinstance(each, Recolour):
            w = [word(augment, index, sample, epoch, at) for at in range(2)]
            if channels == 3:
                order = ["012", "021", "102", "120", "201", "210"][(w[0] * 6) >> 32]
                pixels = pixels[[int(channel) for channel in order]]
            turned = [w[1] >> (31 - channel) & 1 for channel in range(channels)]
            pixels = np.stack([255 - p if t else p for p, t in zip(pixels, turned, strict=True)])
    index = 0
    while index < len(augment):
        each = augment[index]
        if each.interpolates:
            count = index
            while count < len(augment) and augment[count].interpolates:
                count += 1
            pixels = resampled_plainly(augment, range(index, count), pixels, sample, epoch)
            index = count
            continue
        w = [word(augment, index, sample, epoch, at) for at in range(4)]
        if isinstance(each, RandomCrop):
            n = each.padding
            mode: Any = "constant" if each.mode == "zero" else "reflect"
            padded = np.pad(pixels, ((0, 0), (n, n), (n, n)), mode)
            y, x = (w[0] * (2 * n + 1)) >> 32, (w[1] * (2 * n + 1)) >> 32
            pixels = padded[:, y : y + height, x : x + width]
        elif isinstance(each, RandomFlip):
            pixels = pixels[:, :, ::-1] if w[0] >= 2**31 else pixels
        elif isinstance(each, AlternatingFlip):
            first = word(augment, index, sample, 0, 0) >= 2**31
            pixels = pixels[:, :, ::-1] if first != (epoch % 2 == 1) else pixels
        elif isinstance(each, Cutout):
            y = (w[0] * (height - each.size + 1)) >> 32
            x = (w[1] * (width - each.size + 1)) >> 32
            pixels = pixels.copy()
            pixels[:, y : y + each.size, x : x + each.size] = FILL
        index += 1
    return pixels


def resampled_plainly(
    augment: tuple[Augmentation, ...], indices: range, pixels: Array, sample: int, epoch: int
) -> Array:
    channels, height, width = pixels.shape
    middle_y, middle_x = (height - 1) / 2, (width - 1) / 2
    moved = np.zeros((2, height, width))
    for index in indices:
        if isinstance(augment[index], Elastic):
            moved = noise(augment, index, (height, width), sample, epoch)
    out = np.zeros_like(pixels)
    for row in range(height):
        for column in range(width):
            y = row + moved[0, row, column] - middle_y
            x = column + moved[1, row, column] - middle_x
            for index in reversed(indices):
                each = augment[index]
                u = [(word(augment, index, sample, epoch, at) + 0.5) / 2**32 for at in (0, 1)]
                if isinstance(each, Rotate):
                    angle = radians((2 * u[0] - 1) * each.degrees)
                    y, x = cos(angle) * y + sin(angle) * x, cos(angle) * x - sin(angle) * y
                elif isinstance(each, Scale):
                    factor = each.min + u[0] * (each.max - each.min)
                    y, x = y / factor, x / factor
                elif isinstance(each, Shift):
                    y -= (2 * u[0] - 1) * each.pixels
                    x -= (2 * u[1] - 1) * each.pixels
            y, x = y + middle_y, x + middle_x
            top, left = floor(y), floor(x)
            for j, i in ((0, 0), (0, 1), (1, 0), (1, 1)):
                if 0 <= top + j < height and 0 <= left + i < width:
                    share = (1 - abs(y - top - j)) * (1 - abs(x - left - i))
                    out[:, row, column] += share * pixels[:, top + j, left + i]
    return out


def pictures(count: int, channels: int, height: int, width: int) -> Array:
    return np.random.default_rng(5).integers(1, 256, (count, channels, height, width), np.uint8)

"""Initial filters that need more than random numbers: copies of channels, whitened patches."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from math import prod
from queue import SimpleQueue
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ..common.errors import ShapeError
from ..common.random import Key
from ..common.records import dataclass
from ..graph.graph import Shape
from .conv import Conv2dLayer
from .initializers import TORCH_UNIFORM, FanIn, Initializer
from .layer import Layer

# Pictures that a thread takes at once: what it makes of them should stay in its caches.
_CHUNK = 64
# Pixels less the middle of their range are at most 128, so a float32 holds the exact sum of as many
# products, in whatever order they are added.
_MIDDLE, _EXACT = 128, 1024


# Sums over patches: of products, (P, P), and of elements, (P,); all are whole numbers.
Sums = tuple[NDArray[Any], NDArray[Any]]


class Pictures(Protocol):
    """Pictures (C, H, W) uint8; pixel * ``scale`` + ``shift``, by channel, normalises them."""

    @property
    def scale(self) -> tuple[float, ...]: ...

    @property
    def shift(self) -> tuple[float, ...]: ...

    def __len__(self) -> int: ...

    def pixels(self, rows: slice, /) -> NDArray[np.uint8]: ...

    def patch_sums(self, window: tuple[int, int], /) -> Sums | None:
        """``host_sums``, if the device that has the pictures can add them up, else None."""


@dataclass(frozen=True)
class Dirac(Initializer):
    """Values of ``base``, except that the first filters, one per channel, copy a channel.

    Filter i is 1 at the middle (h // 2, w // 2) of channel i, else 0. Fewer filters than channels
    copy the first channels.
    """

    name: str = "dirac"
    base: Initializer = TORCH_UNIFORM

    def check(self, shape: Shape) -> None:
        if len(shape) < 2:
            raise ShapeError("dirac is for weights, not for a bias; use zeros there")
        if len(shape) == 3:
            raise ShapeError(
                "dirac needs filters connected to every map, not a table of connections; use "
                "another initialiser"
            )

    def draw(self, shape: Shape, fan_in: FanIn, fan_out: int, key: Key) -> NDArray[np.float32]:
        drawn = self.base.draw(shape, fan_in, fan_out, key)
        count = min(shape[0], shape[1])
        drawn[:count] = 0.0
        each = np.arange(count)
        middle = [np.full(count, side // 2) for side in shape[2:]]
        drawn[(each, each, *middle)] = 1.0
        return drawn


@dataclass(frozen=True)
class Whiten(Initializer):
    """Filters that decorrelate the patches of the training pictures (Jordan 2024).

    The filters' windows are cut out of the first ``samples`` normalised pictures, at every place.
    With the eigenvectors v_i of P^T P / n (P: n patches as rows, their mean not subtracted), the
    largest eigenvalue l_1 first, filter i is v_i / sqrt(l_i + ``eps``), each v_i turned so that its
    largest element is positive; twice as many filters hold the same again, negated.
    """

    name: str = "whiten"
    samples: int = 5000
    eps: float = 5e-4

    def check(self, shape: Shape) -> None:
        if len(shape) != 4:
            raise ShapeError(
                "whiten is for the filters of a conv2d; use another kernel_initializer"
            )
        patch = prod(shape[1:])
        if shape[0] not in (patch, 2 * patch):
            size = "x".join(map(str, shape[1:]))
            raise ShapeError(
                f"whiten: patches of {size} have {patch} directions, but the layer has {shape[0]} "
                f"filters; set filters to {2 * patch} (each direction and its opposite) or {patch}"
            )

    def draw(self, shape: Shape, fan_in: FanIn, fan_out: int, key: Key) -> NDArray[np.float32]:
        raise ShapeError(
            "whiten needs the training pictures, so it can only be used in the first layer"
        )

    def from_pictures(
        self, shape: Shape, pictures: Pictures, threads: int = 1
    ) -> NDArray[np.float32]:
        """The filters. shape: (filters, C, kh, kw); pictures: n of (C, H, W).

        The moments are computed from sums of whole numbers, which are exact: the bits are the same
        with any number of threads and on any processor, up to those of the eigenvectors.
        """
        patch = prod(shape[1:])
        values, vectors = np.linalg.eigh(_moments(pictures, shape, threads))
        rows = vectors.T[::-1]
        largest = rows[np.arange(patch), np.abs(rows).argmax(1)]
        rows = rows * np.sign(largest)[:, None] / np.sqrt(values[::-1, None].clip(0.0) + self.eps)
        filters = rows if shape[0] == patch else np.concatenate([rows, -rows])
        return filters.reshape(shape).astype(np.float32)


def _moments(pictures: Pictures, shape: Shape, threads: int) -> NDArray[np.float64]:
    """P^T P / n of all n patches of the normalised pictures, from the sums of their pixels."""
    _, channels, kernel_h, kernel_w = shape
    _, height, width = pictures.pixels(slice(0, 1)).shape[1:]
    count = len(pictures) * (height - kernel_h + 1) * (width - kernel_w + 1)
    ready = pictures.patch_sums((kernel_h, kernel_w))
    products, sums = ready or host_sums(pictures, kernel_h, kernel_w, threads)
    each = np.arange(channels).repeat(kernel_h * kernel_w)
    scale = np.array(pictures.scale, np.float32).astype(np.float64)[each]
    shift = np.array(pictures.shift, np.float32).astype(np.float64)[each] + _MIDDLE * scale
    mixed = np.outer(scale * sums, shift)
    found = np.outer(scale, scale) * products + mixed + mixed.T
    return np.asarray(found / count + np.outer(shift, shift))


def host_sums(pictures: Pictures, kernel_h: int, kernel_w: int, threads: int) -> Sums:
    """Of all patches (C, kh, kw), less ``_MIDDLE``: sums of products and sums, without an error."""
    _, channels, height, width = pictures.pixels(slice(0, 1)).shape
    height, width = height - kernel_h + 1, width - kernel_w + 1
    patch = channels * kernel_h * kernel_w
    kind, most = (np.float32, _EXACT // width) if width <= _EXACT else (np.float64, height)

    starts = range(0, len(pictures), _CHUNK)
    count = min(threads, len(starts))
    # Rows of the windows at each offset across, for each thread: to touch memory for the first time
    # takes longer than to compute, and threads wait for each other there.
    size = (min(_CHUNK, len(pictures)), channels, kernel_w, height + kernel_h - 1, width)
    free = SimpleQueue[NDArray[Any]]()
    for _ in range(count):
        free.put(np.empty(size, kind))

    def part(start: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Of the pictures of a chunk, with the offset across in front of that down."""
        held = free.get()
        try:
            return of_rows(pictures.pixels(slice(start, start + _CHUNK)), held)
        finally:
            free.put(held)

    def of_rows(
        pixels: NDArray[np.uint8], held: NDArray[Any]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        rows = held[: len(pixels)]
        for x in range(kernel_w):
            np.copyto(rows[:, :, x], pixels[..., x : x + width])
        np.subtract(rows, kind(_MIDDLE), out=rows)
        lines = rows.reshape(len(pixels), channels * kernel_w, -1)
        each = (rows @ np.ones(width, kind)).reshape(len(pixels), channels * kernel_w, -1)
        products = np.zeros((kernel_h, kernel_h, lines.shape[1], lines.shape[1]))
        sums = np.empty((kernel_h, lines.shape[1]))
        # NumPy computes the product of a matrix and its own transpose by a routine that takes six
        # times as long for few rows; not that of a part of it.
        middle = lines.shape[1] // 2
        for y in range(kernel_h):
            sums[y] = each[..., y : y + height].sum((0, 2), dtype=np.float64)
            for below in range(y, kernel_h):
                for top in range(0, height, most):
                    end = min(top + most, height)
                    first = lines[..., (top + y) * width : (end + y) * width]
                    second = lines[..., (top + below) * width : (end + below) * width]
                    for half in (slice(0, middle), slice(middle, None)):
                        product = first[:, half] @ second.swapaxes(1, 2)
                        products[y, below, half] += product.sum(0, dtype=np.float64)
                products[below, y] = products[y, below].T
        return products, sums

    products = np.zeros((kernel_h, kernel_h, channels * kernel_w, channels * kernel_w))
    sums = np.zeros((kernel_h, channels * kernel_w))
    with ThreadPoolExecutor(count, "dnnstack-whiten") as pool:
        for more, others in pool.map(part, starts):
            products += more
            sums += others
    split = (kernel_h, channels, kernel_w)
    table = products.transpose(0, 2, 1, 3).reshape(*split, *split).transpose(1, 0, 2, 4, 3, 5)
    line = sums.reshape(split).transpose(1, 0, 2)
    return table.reshape(patch, patch), line.reshape(patch)


def check_whitening(layers: Sequence[Layer]) -> None:
    """Raise ShapeError unless whitening filters see the pictures themselves, patch by patch."""
    for position, layer in enumerate(layers):
        whitened = [p.tensor.name for p in layer.parameters() if isinstance(p.initializer, Whiten)]
        if not whitened:
            continue
        # In a composite, the layer inside it.
        name = whitened[0].rpartition(".")[0]
        if position > 0 or not isinstance(layer, Conv2dLayer):
            raise ShapeError(
                f"layer '{name}': whiten needs patches of the pictures, which only a conv2d "
                "at the beginning sees; give this layer another kernel_initializer"
            )
        if layer.groups > 1 or layer.window.dilation != (1, 1) or layer.pairs:
            raise ShapeError(
                f"layer '{name}': whiten needs whole patches; remove groups, dilation and "
                "connections"
            )

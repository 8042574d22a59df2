"""Initial filters that need more than random numbers: copies of channels, whitened patches."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from math import prod
from queue import SimpleQueue
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ..common.errors import ShapeError
from ..common.random import Key
from ..graph.graph import Shape
from .conv import Conv2dLayer
from .initializers import TORCH_UNIFORM, FanIn, Initializer
from .layer import Layer

_CHUNK = 64
# Bytes that the threads' patches may take together: touching memory for the first time costs more
# than many threads gain.
_BUFFERS = 1 << 25


class Pictures(Protocol):
    """Pictures (C, H, W) float32, perhaps computed on demand; an array is also possible."""

    def __len__(self) -> int: ...

    def __getitem__(self, rows: slice, /) -> NDArray[np.float32]: ...


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
        """The filters. shape: (filters, C, kh, kw); pictures: n of (C, H, W), normalised.

        The bits are the same with any number of threads.
        """
        patch = prod(shape[1:])
        moments, count = _moments(pictures, shape, threads)
        values, vectors = np.linalg.eigh(moments / count)
        rows = vectors.T[::-1]
        largest = rows[np.arange(patch), np.abs(rows).argmax(1)]
        rows = rows * np.sign(largest)[:, None] / np.sqrt(values[::-1, None].clip(0.0) + self.eps)
        filters = rows if shape[0] == patch else np.concatenate([rows, -rows])
        return filters.reshape(shape).astype(np.float32)


def _moments(pictures: Pictures, shape: Shape, threads: int) -> tuple[NDArray[np.float64], int]:
    """P^T P of all n patches of the pictures, and n."""
    _, channels, kernel_h, kernel_w = shape
    _, _, height, width = pictures[:1].shape
    height, width = height - kernel_h + 1, width - kernel_w + 1
    patch = channels * kernel_h * kernel_w
    size = (patch, min(_CHUNK, len(pictures)), height, width)
    starts = range(0, len(pictures), _CHUNK)
    most = max(1, _BUFFERS // (8 * prod(size)))
    count = min(threads, len(starts), most)
    # A patch is a column: pixels of a channel are then copied in the order of memory.
    free = SimpleQueue[NDArray[np.float64]]()
    for _ in range(count):
        free.put(np.empty(size))

    def products(start: int) -> NDArray[np.float64]:
        part = pictures[start : start + _CHUNK]
        columns = free.get()
        try:
            for row, (channel, y, x) in enumerate(np.ndindex(channels, kernel_h, kernel_w)):
                columns[row, : len(part)] = part[:, channel, y : y + height, x : x + width]
            chosen = columns[:, : len(part)].reshape(patch, -1)
            found: NDArray[np.float64] = chosen @ chosen.T
            return found
        finally:
            free.put(columns)

    moments = np.zeros((patch, patch))
    with ThreadPoolExecutor(count, "dnnstack-whiten") as pool:
        # Added in the order of the chunks, whichever is done first.
        for found in pool.map(products, starts):
            moments += found
    return moments, len(pictures) * height * width


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

"""The max-pool that keeps where each maximum was, run on the processor. Needs g++, no GPU."""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np
import pytest
from dnnstack.backends.cuda.libraries.layout import BFLOAT, FLOAT, Layout
from dnnstack.backends.cuda.operations.pool import _shape
from dnnstack.graph.geometry import Window
from dnnstack.graph.graph import Tensor
from dnnstack.graph.ops import Pool2d, Pool2dBackward

from ....support.emulated_build import COMPILER
from ....support.emulated_kernels import library, loaded, pointer, stored
from ....support.tensor_convs import numbers

pytestmark = pytest.mark.skipif(COMPILER is None, reason="g++ is not there")
BLOCKS = 3


@dataclass(frozen=True)
class Drawn:
    """n pictures of so many channels; ``wide`` and ``narrow``: that are stored of x and of y."""

    n: int
    channels: int
    wide: int
    narrow: int
    size: tuple[int, int]
    window: Window
    bf16: bool

    @property
    def pooled(self) -> tuple[int, int]:
        return self.window.output(*self.size)

    def defines(self, backward: bool) -> dict[str, int]:
        dtype = BFLOAT if self.bf16 else FLOAT
        large, small = (self.n, self.channels, *self.size), (self.n, self.channels, *self.pooled)
        x = Layout(large, (self.n, self.wide, *self.size), True, dtype=dtype)
        y = Layout(small, (self.n, self.narrow, *self.pooled), True, dtype=dtype)
        tensors = [Tensor(name, large, "float32", "activation") for name in "xyab"]
        ends = dict(zip(("x", "y", "dy", "dx") if backward else "xy", tensors, strict=False))
        op = (Pool2dBackward if backward else Pool2d)(**ends, window=self.window, kind="max")
        return dict(_shape(op, x, y)) | {"BFLOAT": int(self.bf16)}

    def windows(self) -> np.ndarray:
        top, _, left, _ = self.window.padding
        sizes = (*self.size, *self.pooled, *self.window.kernel, *self.window.stride, top, left)
        return np.array([*sizes, self.wide // 4, self.channels, self.narrow], np.int32)


def draw(seed: int) -> Drawn:
    """A geometry with anything odd; every other time windows lie side by side."""
    dice = random.Random(seed)
    kernel = dice.choice([(2, 2), (2, 2), (3, 3), (2, 3), (1, 4)])
    apart = seed % 2 == 0
    stride = kernel if apart else (dice.randint(1, kernel[0]), dice.randint(1, kernel[1]))
    edges = [0] * 4 if apart else [dice.randint(0, size // 2) for size in np.repeat(kernel, 2)]
    height, width = (size * dice.randint(1, 3) + dice.randint(0, size - 1) for size in kernel)
    channels = dice.choice([3, 8, 20, 24, 64])
    wide = -(-channels // 4) * 4 if dice.random() < 0.5 else -(-channels // 8) * 8
    narrow = dice.choice([channels, wide])
    window = Window(kernel, stride, padding=tuple(edges))
    return Drawn(dice.randint(1, 5), channels, wide, narrow, (height, width), window, seed % 4 < 2)


def maxima(x, drawn):
    """Those of x (N, H, W, C), and at which tap each is."""
    top, bottom, left, right = drawn.window.padding
    edges = ((0, 0), (top, bottom), (left, right), (0, 0))
    padded = np.pad(x, edges, constant_values=-np.inf)
    (height, width), (down, across) = drawn.window.kernel, drawn.window.stride
    rows, columns = drawn.pooled
    windows = [
        padded[:, h : h + down * (rows - 1) + 1 : down, w : w + across * (columns - 1) + 1 : across]
        for h in range(height)
        for w in range(width)
    ]
    return np.max(windows, 0), np.argmax(windows, 0).astype(np.uint8)


def spread(dy, taps, drawn):
    """The gradient of x by that of the maxima, in float64."""
    n, rows, columns, channels = dy.shape
    top, bottom, left, right = drawn.window.padding
    height, width = drawn.size
    wide = np.zeros((n, height + top + bottom, width + left + right, channels))
    for at in np.ndindex(dy.shape):
        sample, row, column, channel = at
        h, w = divmod(int(taps[at]), drawn.window.kernel[1])
        down, across = drawn.window.stride
        wide[sample, row * down + h, column * across + w, channel] += dy[at]
    return wide[:, top : top + height, left : left + width]


def padded_with(values, count, filler):
    """With so many channels."""
    edges = [(0, 0)] * (values.ndim - 1) + [(0, count - values.shape[-1])]
    return np.pad(values, edges, constant_values=filler)


@pytest.mark.parametrize("seed", range(4))
def test_forward_keeps_the_places(tmp_path, seed):
    drawn, rng = draw(seed), np.random.default_rng(seed)
    x = numbers(rng, (drawn.n, *drawn.size, drawn.channels), drawn.bf16)
    bias = numbers(rng, (drawn.channels,), False) if seed % 3 else None
    kernels = library("max_pool", tmp_path, drawn.defines(backward=False))
    shape = (drawn.n, *drawn.pooled, drawn.narrow)
    outs = int(np.prod(shape[:3]))
    y, index = stored(np.zeros(shape), drawn.bf16), np.zeros(shape, np.uint8)
    source = stored(padded_with(x, drawn.wide, 0.0), drawn.bf16)
    ends = (source, y, index, drawn.windows(), bias)
    given, out, places, windows, added = map(pointer, ends)
    kernels.forward(given, out, places, outs, windows, added, seed % 2, BLOCKS)
    want, taps = maxima(x, drawn)
    np.testing.assert_array_equal(index[..., : drawn.channels], taps)
    want = want + (0 if bias is None else bias)
    got = loaded(y, drawn.bf16, shape)[..., : drawn.channels]
    np.testing.assert_allclose(got, np.maximum(want, 0) if seed % 2 else want, rtol=2.0**-8)


@pytest.mark.parametrize("seed", range(12))
def test_backward_writes_every_pixel(tmp_path, seed):
    """Those that no window covers too; sums are those of what is written."""
    drawn, rng = draw(seed), np.random.default_rng(seed)
    kernels = library("max_pool", tmp_path, drawn.defines(backward=True))
    small = (drawn.n, *drawn.pooled, drawn.channels)
    dy, y = numbers(rng, small, drawn.bf16), numbers(rng, small, drawn.bf16)
    _, taps = maxima(numbers(rng, (drawn.n, *drawn.size, drawn.channels), False), drawn)
    masks = seed % 3 > 0
    want = spread(np.where(y > 0, dy, 0) if masks else dy, taps, drawn)
    shape = (drawn.n, *drawn.size, drawn.wide)
    gradient, value = (stored(padded_with(each, drawn.narrow, 0.0), drawn.bf16) for each in (dy, y))
    index = padded_with(taps, drawn.narrow, 0)
    windows = drawn.windows()
    apart = drawn.window.kernel == drawn.window.stride and not any(drawn.window.padding)
    for disjoint in (False, True) if apart else (False,):
        dx = stored(np.full(shape, np.nan), drawn.bf16)
        sums = np.full((BLOCKS, drawn.wide), np.nan, np.float32) if seed % 4 else None
        places = np.prod(small[:3] if disjoint else shape[:3])
        ends = (gradient, index, value if masks else None, dx)
        rest = (pointer(windows), pointer(sums), BLOCKS)
        kernels.backward(disjoint, *map(pointer, ends), int(places), *rest)
        got = loaded(dx, drawn.bf16, shape)
        np.testing.assert_allclose(got[..., : drawn.channels], want, rtol=2.0**-8, atol=1e-6)
        assert not got[..., drawn.channels :].any()
        if sums is not None:
            total = sums.astype(np.float64).sum(0)
            np.testing.assert_allclose(total[: drawn.channels], want.sum((0, 1, 2)), atol=1e-4)
            assert not total[drawn.channels :].any()

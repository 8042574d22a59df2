"""The first convolution on tensor cores, emulated on the processor."""

from __future__ import annotations

import ctypes
import os

import numpy as np
import pytest
from dnnstack.backends.cuda.libraries.layout import BFLOAT, FLOAT, Layout

from ....support import emulated_build
from ....support.emulated_build import COMPILER
from ....support.first_convs import Drawn
from ....support.tensor_convs import convolved, numbers, pooled, spread

COUNT = int(os.environ.get("DNNSTACK_TENSOR_CONVS", "3"))
LOOSE = {False: 1e-3, True: 6e-3}

needs_compiler = pytest.mark.skipif(
    COMPILER is None or "DNNSTACK_EXPECT_COMPILER" not in os.environ,
    reason="only where DNNSTACK_EXPECT_COMPILER is set",
)


class Emulated:
    def __init__(self, drawn, folder):
        self.drawn = drawn
        values = drawn.values | {"BFLOAT": int(drawn.bf16)}
        self._library = emulated_build.library("tensor_first", folder, values)

    def stored(self, values):
        dtype = BFLOAT if self.drawn.bf16 else FLOAT
        return Layout((values.size,), (values.size,), dtype=dtype).pack(values.ravel())

    def values(self, stored):
        dtype = BFLOAT if self.drawn.bf16 else FLOAT
        return Layout((stored.size,), (stored.size,), dtype=dtype).unpack(stored)

    def run(self, name, *arrays, blocks):
        pointers = [None if a is None else ctypes.c_void_p(a.ctypes.data) for a in arrays]
        grid = (ctypes.c_int * 2)(blocks, self.drawn.values["SPLIT"])
        getattr(self._library, name)(*pointers, self.drawn.n, grid)


def pictures(drawn, rng):
    _, _, height, width = drawn.conv.x.shape
    x = numbers(rng, (drawn.n, height, width), drawn.bf16)
    w = numbers(rng, drawn.conv.w.shape, drawn.bf16)
    return x, w


@needs_compiler
@pytest.mark.parametrize("seed", range(2 * COUNT))
def test_forward_with_its_max_pool(tmp_path, seed):
    drawn, rng = Drawn(seed), np.random.default_rng(seed)
    (_, filters, rows, columns), stored = drawn.pool.y.shape, drawn.stored
    x, w = pictures(drawn, rng)
    bias = numbers(rng, (filters,), False) if seed % 3 else None
    right = convolved(x[..., None], w.transpose(0, 2, 3, 1), drawn.window)
    best, _ = pooled(right)
    want = best + (0.0 if bias is None else bias)
    want = np.maximum(want, 0.0) if drawn.relu else want
    kernel = Emulated(drawn, tmp_path)
    out = kernel.stored(np.full((drawn.n, rows, columns, stored), 7.0, np.float32))
    index = np.full((drawn.n, rows, columns, stored), 77, np.uint8)
    kernel.run("forward", kernel.stored(x), w, bias, out, index, blocks=2)
    got = kernel.values(out).reshape(index.shape)
    error = np.linalg.norm(got[..., :filters] - want)
    assert error <= LOOSE[drawn.bf16] * np.linalg.norm(want)
    # Channels beside those that count are zero, or not written where no eight reaches them.
    beyond = got[..., filters:]
    assert np.isin(beyond, [0.0, 7.0]).all()
    assert (beyond[..., : -filters % 8] == 0.0).all()
    windows = [right[:, i : 2 * rows : 2, j : 2 * columns : 2] for i in (0, 1) for j in (0, 1)]
    chosen = np.choose(index[..., :filters], windows)
    assert np.linalg.norm(chosen - best) <= 1e-3 * np.linalg.norm(best)


@needs_compiler
@pytest.mark.parametrize("seed", range(2 * COUNT))
def test_the_gradients_of_filters_and_biases(tmp_path, seed):
    drawn, rng = Drawn(seed), np.random.default_rng(seed)
    (_, filters, rows, columns), stored = drawn.pool.y.shape, drawn.stored
    x, _ = pictures(drawn, rng)
    small, window = (drawn.n, rows, columns, stored), drawn.window
    dp, maxima = (numbers(rng, small, drawn.bf16) for _ in range(2))
    index = rng.integers(0, 4, small).astype(np.uint8)
    kernel, blocks = Emulated(drawn, tmp_path), 2
    taps = window.area
    slices = np.full((blocks * drawn.values["SPLIT"], filters * (taps + 1)), np.nan, np.float32)
    given = (kernel.stored(x), kernel.stored(dp), index, kernel.stored(maxima), slices)
    kernel.run("backward", *given, blocks=blocks)
    taken = np.where(maxima > 0, dp, np.float32(0.0)) if drawn.relu else dp
    dy = spread(taken, index)[..., :filters].astype(np.float64)
    top, bottom, left, right = window.padding
    wide = np.pad(x.astype(np.float64), ((0, 0), (top, bottom), (left, right)))
    want = np.zeros((filters, *window.kernel))
    for i, j in np.ndindex(*window.kernel):
        seen = wide[:, i : i + 2 * rows, j : j + 2 * columns]
        want[:, i, j] = np.einsum("nhwk,nhw->k", dy, seen)
    total = slices.astype(np.float64).sum(0)
    error = np.linalg.norm(total[: filters * taps].reshape(want.shape) - want)
    assert error <= (2e-5 if drawn.bf16 else LOOSE[False]) * np.linalg.norm(want)
    np.testing.assert_allclose(total[filters * taps :], dy.sum((0, 1, 2)), rtol=1e-4, atol=1e-4)

"""The kernels on tensor cores, run on the processor: indices, barriers, and every tiling's limits.

Needs g++, no GPU. DNNSTACK_TENSOR_CONVS sets how many of each kind are drawn.
"""

from __future__ import annotations

import os

import numpy as np
import pytest
from dnnstack.backends.cuda.fused.filter_tilings import FilterTiling
from dnnstack.backends.cuda.fused.tilings import Geometry
from dnnstack.backends.cuda.fused.warpgroup_tilings import WarpgroupFilterTiling
from dnnstack.backends.cuda.libraries.layout import BFLOAT, FLOAT
from dnnstack.graph.geometry import Window

from ....support.emulated_build import COMPILER
from ....support.tensor_convs import (
    Drawn,
    Emulated,
    convolved,
    draw,
    numbers,
    pooled,
    spread,
    turned,
)

COUNT = int(os.environ.get("DNNSTACK_TENSOR_CONVS", "3"))
# What operands of ten bits, or a result of eight, may make of a sum.
LOOSE = {False: 5e-4, True: 4e-3}
needs_compiler = pytest.mark.skipif(COMPILER is None, reason="g++ is not there")


def test_continuous_integration_has_a_compiler():
    if "DNNSTACK_EXPECT_COMPILER" not in os.environ:
        pytest.skip("only where DNNSTACK_EXPECT_COMPILER is set")
    assert COMPILER is not None


def close(got, want, limit):
    assert np.linalg.norm(got - want) <= limit * np.linalg.norm(want)


def gradient_of_filters(x, dy, g, stride=1):
    """dw (K, kh, kw, C) in float64."""
    top, bottom, left, right = g.window.padding
    wide = np.pad(x.astype(np.float64), ((0, 0), (top, bottom), (left, right), (0, 0)))
    found = np.zeros((g.y[0], *g.window.kernel, g.x[0]))
    for i, j in np.ndindex(*g.window.kernel):
        seen = wide[:, i : i + g.y[1] : stride, j : j + g.y[2] : stride].reshape(-1, g.x[0])
        found[:, i, j] = dy.reshape(-1, g.y[0]).T.astype(np.float64) @ seen
    return found


def gradient_of_pictures(dy, w, g, stride):
    """dx (N, H, W, C) in float64; w (K, kh, kw, C)."""
    top, bottom, left, right = g.window.padding
    _, height, width = g.y
    wide = np.zeros((len(dy), height + top + bottom, width + left + right, g.y[0]))
    for i, j in np.ndindex(*g.window.kernel):
        wide[:, i : i + g.x[1] : stride, j : j + g.x[2] : stride] += dy @ w[:, i, j].astype(float)
    return wide[:, top : top + height, left : left + width]


def as_planned(kernel):
    tiling = kernel.drawn.tiling
    assert kernel.sizes() == (tiling.shared, tiling.threads, tiling.units)


@needs_compiler
@pytest.mark.parametrize("seed", range(2 * COUNT))
def test_sums_for_a_batch_norm(tmp_path, seed):
    """Those of what is stored, and of no filter or picture that is not there."""
    drawn = draw(seed, "forward")
    kernel = Emulated(drawn, tmp_path, DATA=0, ACTIVATION=0 if seed % 3 == 1 else -1, SUMS=1)
    tiling = drawn.tiling
    assert kernel.sizes()[0] == tiling.shared + tiling.bytes_of_sums
    g, rng = drawn.geometry, np.random.default_rng(seed)
    x = numbers(rng, (drawn.n, *g.x[1:], g.x[0]), drawn.bf16)
    w = numbers(rng, (g.y[0], *g.window.kernel, g.x[0]), drawn.bf16)
    # Means that are large beside the deviations.
    bias = numbers(rng, (g.y[0],), False) * (seed % 2) * 100 if seed % 3 else None
    y = kernel.convolve(x, w, bias).reshape(-1, g.y[0]).astype(np.float64)
    total, square = kernel.slices.sum(0)
    count = len(y)
    np.testing.assert_allclose(total, y.sum(0), rtol=1e-5, atol=1e-5 * count)
    np.testing.assert_allclose(square, (y * y).sum(0), rtol=1e-5)
    var = square / count - (total / count) ** 2
    np.testing.assert_allclose(var, y.var(0), rtol=1e-3, atol=1e-6)


@needs_compiler
@pytest.mark.parametrize("warpgroups", [False, True])
@pytest.mark.parametrize("seed", range(COUNT))
def test_forward(tmp_path, seed, warpgroups):
    drawn = draw(seed, "forward", warpgroups=warpgroups)
    activation = seed % 2 - 1
    kernel = Emulated(drawn, tmp_path, DATA=0, ACTIVATION=activation)
    as_planned(kernel)
    g, rng = drawn.geometry, np.random.default_rng(seed)
    x = numbers(rng, (drawn.n, *g.x[1:], g.x[0]), drawn.bf16)
    w = numbers(rng, (g.y[0], *g.window.kernel, g.x[0]), drawn.bf16)
    bias = numbers(rng, (g.y[0],), False) if seed % 3 else None
    want = convolved(x, w, g.window) + (0.0 if bias is None else bias)
    if activation == 0:
        want = np.maximum(want, 0.0)
    close(kernel.convolve(x, w, bias), want, LOOSE[drawn.bf16])


@needs_compiler
@pytest.mark.parametrize("warpgroups", [False, True])
@pytest.mark.parametrize("seed", range(COUNT))
def test_the_gradient_of_pictures(tmp_path, seed, warpgroups):
    drawn = draw(seed, "data", warpgroups=warpgroups)
    kernel = Emulated(drawn, tmp_path, DATA=1, ACTIVATION=-1)
    as_planned(kernel)
    g, rng = drawn.geometry, np.random.default_rng(seed)
    dy = numbers(rng, (drawn.n, *g.x[1:], g.x[0]), drawn.bf16)
    w = numbers(rng, (g.x[0], *g.window.kernel, g.y[0]), drawn.bf16)
    rotated = np.ascontiguousarray(w[:, ::-1, ::-1].transpose(3, 1, 2, 0))
    close(kernel.convolve(dy, w, None), convolved(dy, rotated, turned(g.window)), LOOSE[drawn.bf16])


@needs_compiler
@pytest.mark.parametrize("warpgroups", [False, True])
@pytest.mark.parametrize("seed", range(COUNT))
def test_the_gradients_of_filters_and_biases(tmp_path, seed, warpgroups):
    drawn = draw(seed, "filter", warpgroups=warpgroups)
    kernel = Emulated(drawn, tmp_path, BIAS=1)
    as_planned(kernel)
    g, rng = drawn.geometry, np.random.default_rng(seed)
    x = numbers(rng, (drawn.n, *g.x[1:], g.x[0]), drawn.bf16)
    dy = numbers(rng, (drawn.n, *g.y[1:], g.y[0]), drawn.bf16)
    want = gradient_of_filters(x, dy, g)
    weights, biases = kernel.gradients(x, dy)
    # Sums are float32 in both: of products that bfloat16 has exactly.
    close(weights, want, 2e-5 if drawn.bf16 else LOOSE[False])
    close(biases, dy.astype(np.float64).sum((0, 1, 2)), 1e-5)


@needs_compiler
@pytest.mark.parametrize("warpgroups", [False, True])
@pytest.mark.parametrize("seed", range(COUNT))
def test_forward_with_its_max_pool(tmp_path, seed, warpgroups):
    drawn = draw(seed, "forward", pooled=True, warpgroups=warpgroups)
    g, rng = drawn.geometry, np.random.default_rng(seed)
    # Of the channels that are stored the last may be padding only, which the pooled do not have.
    stored = g.y[0] - seed % 4
    defines = {"DATA": 0, "ACTIVATION": seed % 2 - 1, "POOL": 1, "POOLED": stored}
    kernel = Emulated(drawn, tmp_path, **defines)
    x = numbers(rng, (drawn.n, *g.x[1:], g.x[0]), drawn.bf16)
    w = numbers(rng, (g.y[0], *g.window.kernel, g.x[0]), drawn.bf16)
    bias = numbers(rng, (g.y[0],), False)
    right = convolved(x, w, g.window)
    want, _ = pooled(right + bias)
    if seed % 2:
        want = np.maximum(want, 0.0)
    places = np.full((*want.shape[:3], stored), 77, np.uint8)
    got = kernel.convolve(x, w, bias, places)
    close(got, want[..., :stored], LOOSE[drawn.bf16])
    # At the places that are told the sums are the largest, or nearly.
    best, _ = pooled(right)
    rows, columns = (2 * size for size in best.shape[1:3])
    windows = [right[:, i:rows:2, j:columns:2] for i in (0, 1) for j in (0, 1)]
    close(np.choose(places, [each[..., :stored] for each in windows]), best[..., :stored], 1e-3)


@needs_compiler
@pytest.mark.parametrize("warpgroups", [False, True])
def test_of_equal_maxima_the_first_is_told(tmp_path, warpgroups):
    """And a NaN is larger than any number."""
    drawn = draw(1, "forward", pooled=True, warpgroups=warpgroups)
    while not drawn.bf16:
        drawn = draw(f"{drawn.geometry}", "forward", pooled=True)
    g, rng = drawn.geometry, np.random.default_rng(1)
    kernel = Emulated(drawn, tmp_path, DATA=0, ACTIVATION=-1, POOL=1, POOLED=g.y[0])
    # Small whole numbers: sums are exact, and many are equal.
    x = rng.integers(0, 2, (drawn.n, *g.x[1:], g.x[0])).astype(np.float32)
    w = np.zeros((g.y[0], *g.window.kernel, g.x[0]), np.float32)
    w[:, g.window.kernel[0] // 2, g.window.kernel[1] // 2, 0] = 1.0
    right = convolved(x, w, g.window)
    want, first = pooled(right)
    places = np.full(want.shape, 77, np.uint8)
    np.testing.assert_array_equal(kernel.convolve(x, w, None, places), want)
    np.testing.assert_array_equal(places, first)
    x[0, g.x[1] // 2, g.x[2] // 2] = np.nan
    right = convolved(x, w, g.window)
    got = kernel.convolve(x, w, None, places)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(pooled(right)[0]))
    assert places.max() < 4


def maxima(rng, shape, stored, bf16):
    """A gradient of maxima, their places and themselves, for so many stored channels."""
    n, rows, columns, _ = shape
    small = (n, rows // 2, columns // 2, stored)
    dp, mask = numbers(rng, small, bf16), numbers(rng, small, bf16)
    places = rng.integers(0, 4, small).astype(np.uint8)
    return dp, places, mask


def widened(dp, places, mask, size):
    """As it is behind a max-pool and a ReLU, with the channels that only pad; size: (C, H, W)."""
    channels, *rest = size
    dp = dp if mask is None else np.where(mask > 0, dp, np.float32(0.0))
    full = spread(dp, places, tuple(rest))
    return np.pad(full, ((0, 0), (0, 0), (0, 0), (0, channels - full.shape[-1])))


@needs_compiler
@pytest.mark.parametrize("warpgroups", [False, True])
@pytest.mark.parametrize("seed", range(COUNT))
def test_the_gradient_of_pictures_through_a_max_pool(tmp_path, seed, warpgroups):
    drawn = draw(seed, "data", pooled=True, warpgroups=warpgroups)
    g, rng = drawn.geometry, np.random.default_rng(seed)
    stored = g.x[0] - seed % 4
    defines = {"DATA": 1, "ACTIVATION": -1, "FROM_POOL": 1, "POOLED": stored}
    kernel = Emulated(drawn, tmp_path, **defines)
    dp, places, mask = maxima(rng, (drawn.n, *g.x[1:], g.x[0]), stored, drawn.bf16)
    mask = mask if seed % 2 else None
    w = numbers(rng, (g.x[0], *g.window.kernel, g.y[0]), drawn.bf16)
    rotated = np.ascontiguousarray(w[:, ::-1, ::-1].transpose(3, 1, 2, 0))
    want = convolved(widened(dp, places, mask, g.x), rotated, turned(g.window))
    close(kernel.convolve(dp, w, places=places, mask=mask), want, LOOSE[drawn.bf16])


@needs_compiler
@pytest.mark.parametrize("warpgroups", [False, True])
@pytest.mark.parametrize("seed", range(COUNT))
def test_the_gradients_of_filters_through_a_max_pool(tmp_path, seed, warpgroups):
    drawn = draw(seed, "filter", pooled=True, warpgroups=warpgroups)
    g, rng = drawn.geometry, np.random.default_rng(seed)
    stored = g.y[0] - seed % 4
    kernel = Emulated(drawn, tmp_path, BIAS=1, FROM_POOL=1, POOLED=stored)
    x = numbers(rng, (drawn.n, *g.x[1:], g.x[0]), drawn.bf16)
    dp, places, mask = maxima(rng, (drawn.n, *g.y[1:], g.y[0]), stored, drawn.bf16)
    mask = mask if seed % 2 else None
    dy = widened(dp, places, mask, g.y)
    want = gradient_of_filters(x, dy, g)
    weights, biases = kernel.gradients(x, dp, places, mask)
    close(weights, want, 2e-5 if drawn.bf16 else LOOSE[False])
    close(biases, dy.astype(np.float64).sum((0, 1, 2)), 1e-5)


@needs_compiler
@pytest.mark.parametrize("seed", range(2 * COUNT))
def test_the_gradient_of_pictures_of_stride_2(tmp_path, seed):
    drawn = draw(seed, "data", pooled=True, strided=True)
    g, rng = drawn.geometry, np.random.default_rng(seed)
    defines = {"FROM_POOL": 1, "STRIDED": 1, "POOLED": g.x[0]}
    kernel = Emulated(drawn, tmp_path, DATA=1, ACTIVATION=-1, **defines)
    as_planned(kernel)
    dy = numbers(rng, (drawn.n, g.x[1] // 2, g.x[2] // 2, g.x[0]), drawn.bf16)
    w = numbers(rng, (g.x[0], *g.window.kernel, g.y[0]), drawn.bf16)
    close(kernel.convolve(dy, w), gradient_of_pictures(dy, w, g, 2), LOOSE[drawn.bf16])


@needs_compiler
@pytest.mark.parametrize("seed", range(2 * COUNT))
def test_the_gradients_of_filters_and_biases_of_stride_2(tmp_path, seed):
    drawn = draw(seed, "filter", pooled=True, strided=True)
    g, rng = drawn.geometry, np.random.default_rng(seed)
    kernel = Emulated(drawn, tmp_path, BIAS=1, FROM_POOL=1, STRIDED=1, POOLED=g.y[0])
    as_planned(kernel)
    x = numbers(rng, (drawn.n, *g.x[1:], g.x[0]), drawn.bf16)
    dy = numbers(rng, (drawn.n, g.y[1] // 2, g.y[2] // 2, g.y[0]), drawn.bf16)
    weights, biases = kernel.gradients(x, dy)
    close(weights, gradient_of_filters(x, dy, g, 2), 2e-5 if drawn.bf16 else LOOSE[False])
    close(biases, dy.astype(np.float64).sum((0, 1, 2)), 1e-5)


# LeNet's second convolution: what comes with the next tile waits in registers.
@needs_compiler
@pytest.mark.parametrize(("bf16", "pictures"), [(False, 4), (True, 8), (False, 8)])
def test_a_tile_ahead_through_a_max_pool(tmp_path, bf16, pictures):
    window = Window((5, 5), padding=(0, 0, 0, 0))
    g = Geometry((24, 12, 12), (56, 8, 8), window, False, BFLOAT if bf16 else FLOAT)
    tiling = FilterTiling(g, pictures, 8, 8, 1, 1, 1, 3, 2, 1, True, 1)
    drawn, rng = Drawn("filter", 3 * pictures + 1, tiling), np.random.default_rng(pictures)
    kernel = Emulated(drawn, tmp_path, BIAS=1, FROM_POOL=1, POOLED=50)
    # Several tiles for a block.
    assert tiling.groups(drawn.n) > kernel.grid(3)[0]
    x = numbers(rng, (drawn.n, 12, 12, 24), bf16)
    dp, places, _ = maxima(rng, (drawn.n, 8, 8, 56), 50, bf16)
    dy = widened(dp, places, None, g.y)
    weights, biases = kernel.gradients(x, dp, places)
    close(weights, gradient_of_filters(x, dy, g), 2e-5 if bf16 else LOOSE[False])
    close(biases, dy.astype(np.float64).sum((0, 1, 2)), 1e-5)


# Of a 3x3 convolution of 24 and 64 channels, with an even and an odd number of octets across.
@needs_compiler
@pytest.mark.parametrize("size", [15, 20])
@pytest.mark.parametrize(
    "way", [(1, 2, 3, 3, 3, 2, 1), (1, 4, 3, 3, 2, 3, 1), (2, 2, 2, 2, 2, 2, 1)]
)
def test_teams_have_several_tiles_one_after_the_other(tmp_path, way, size):
    g = Geometry(
        (24, size, size), (64, size, size), Window((3, 3), padding=(1,) * 4), False, BFLOAT
    )
    tiling, rng = WarpgroupFilterTiling.of(g, way), np.random.default_rng(size)
    drawn = Drawn("filter", 4, tiling)
    kernel = Emulated(drawn, tmp_path, BIAS=1, FROM_POOL=1, POOLED=64)
    as_planned(kernel)
    tiles = 4 // tiling.pictures * -(-(size // 2) // tiling.lines)
    assert tiles > kernel.grid(3)[0] * tiling.teams
    x = numbers(rng, (4, size, size, 24), True)
    dp, places, mask = maxima(rng, (4, size, size, 64), 64, True)
    dy = widened(dp, places, mask, g.y)
    weights, biases = kernel.gradients(x, dp, places, mask)
    close(weights, gradient_of_filters(x, dy, g), 2e-5)
    close(biases, dy.astype(np.float64).sum((0, 1, 2)), 1e-5)

"""Kernels that move or count a few numbers, run on the processor. Needs g++, no GPU."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from dnnstack.backends.cuda.operations.convolution import TURNED

from ....support.emulated_kernels import library, loaded, pointer, stored
from ....support.tensor_convs import COMPILER, numbers

pytestmark = pytest.mark.skipif(COMPILER is None, reason="g++ is not there")


@pytest.fixture(scope="module")
def kernels(tmp_path_factory):
    outside = ("elementwise.cu", "losses.cu")
    return library("small", tmp_path_factory.mktemp("small"), {"BFLOAT": 1}, outside)


def longs(size):
    return ctypes.c_longlong(size)


@pytest.mark.parametrize("eights", [True, False])
def test_a_change_of_type_keeps_the_numbers(kernels, eights):
    """In eights where there is no change of order, else as (2, 3, 5, 16) becomes (16, 5, 3, 2)."""
    x = numbers(np.random.default_rng(1), (2, 3, 5, 16), True)
    cast = None if eights else np.array([5, 3, 2, 1, 16, 80, 240, 30, 6, 2, 1], np.int32)
    size, want = (x.size // 8, x) if eights else (x.size, x.transpose())
    narrow, wide = stored(np.full(x.shape, np.nan), True), np.full(x.size, np.nan, np.float32)
    kernels.narrow(pointer(x), pointer(narrow), longs(size), pointer(cast))
    np.testing.assert_array_equal(loaded(narrow, True, want.shape), want)
    near = stored(x, True)
    kernels.widen(pointer(near), pointer(wide), longs(size), pointer(cast))
    np.testing.assert_array_equal(wide.reshape(want.shape), want)


@pytest.mark.parametrize("shape", [(40, 3, 2, 70), (32, 1, 1, 8), (5, 5, 3, 33)])
def test_filters_are_rotated(kernels, shape):
    outer, height, width, inner = shape
    w = numbers(np.random.default_rng(2), shape, True)
    source, out = stored(w, True), stored(np.full(shape, np.nan), True)
    grid = (-(-outer // TURNED), -(-inner // TURNED), height * width)
    kernels.rotate(pointer(source), pointer(out), outer, inner, height, width, *grid)
    want = w[:, ::-1, ::-1].transpose(3, 1, 2, 0)
    np.testing.assert_array_equal(loaded(out, True, want.shape), want)


@pytest.mark.parametrize(("n", "threads"), [(100, 128), (300, 64), (1, 32)])
@pytest.mark.parametrize("mean", [0, 1])
def test_metrics_count_first_maxima(kernels, n, threads, mean):
    """A NaN is the largest, and the first of equals counts; rows without a target do not."""
    rng = np.random.default_rng(n)
    scores = rng.integers(0, 4, (n, 11)).astype(np.float32)
    scores[rng.random((n, 11)) < 0.05] = np.nan
    target = rng.integers(-1, 4, n).astype(np.int32)
    best = np.where(np.isnan(scores), np.inf, scores).argmax(1)
    right, count = (best == target).sum(), (target >= 0).sum()
    sums, loss = np.array([1.0, 2.0, 3.0]), np.array([0.5], np.float32)
    given = (scores, target, loss, sums)
    kernels.measure(*map(pointer, given), n, 11, mean, threads)
    np.testing.assert_allclose(sums, [1 + 0.5 * (count if mean else 1), 2 + right, 3 + count])


@pytest.mark.parametrize("mean", [0, 1])
def test_the_gradient_of_a_loss(kernels, mean):
    rng, n, classes, smoothing = np.random.default_rng(3), 150, 7, 0.2
    scores = rng.standard_normal((n, classes))
    log_p = scores - np.log(np.exp(scores).sum(1, keepdims=True))
    target = rng.integers(-1, classes, n).astype(np.int32)
    dx = np.full((n, classes), np.nan, np.float32)
    ends = (log_p.astype(np.float32), target, dx)
    kernels.gradient(*map(pointer, ends), n, classes, ctypes.c_float(smoothing), mean)
    wanted = (1 - smoothing) * np.eye(classes)[target] + smoothing / classes
    right = (np.exp(log_p) - wanted) * (target >= 0)[:, None]
    right = right / (target >= 0).sum() if mean else right
    np.testing.assert_allclose(dx, right, rtol=1e-4, atol=1e-7)

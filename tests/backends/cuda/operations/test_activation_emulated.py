"""The gradient of an activation with its sums, run on the processor. Needs g++, no GPU."""

from __future__ import annotations

import ctypes
import math

import numpy as np
import pytest
from dnnstack.graph.ops import ACTIVATIONS, FROM_OUTPUT

from ....support.activation_points import POINTS, RIGHT, assert_right
from ....support.emulated_build import COMPILER
from ....support.emulated_kernels import library, loaded, pointer, stored
from ....support.op_draft import ALPHA
from ....support.tensor_convs import numbers

pytestmark = pytest.mark.skipif(COMPILER is None, reason="g++ is not there")
BLOCKS = 3


@pytest.mark.parametrize(
    ("rows", "columns", "each", "bf16"),
    [
        (5000, 24, 8, True),
        (4000, 20, 4, True),
        (700, 256, 8, True),
        (2, 8, 8, True),
        (901, 36, 4, 0),
    ],
)
def test_its_sums_are_those_of_what_it_writes(tmp_path, rows, columns, each, bf16):
    defines = {"BFLOAT": int(bf16), "EACH": each, "KIND": ACTIVATIONS.index("tanh")}
    kernels, rng = library("activation", tmp_path, defines), np.random.default_rng(rows)
    value, dy = (numbers(rng, (rows, columns), bf16) for _ in range(2))
    value = np.clip(value, -1, 1)
    dx = stored(np.full((rows, columns), np.nan), bf16)
    slices = np.full((BLOCKS, columns), np.nan, np.float32)
    held = (stored(value, bf16), stored(dy, bf16))
    ends = (*map(pointer, held), pointer(dx), ctypes.c_longlong(rows), columns // each)
    kernels.sums(*ends, ctypes.c_float(0.0), pointer(slices), BLOCKS)
    want = dy * (1 - value.astype(np.float64) ** 2)
    np.testing.assert_allclose(loaded(dx, bf16, want.shape), want, rtol=2.0**-8, atol=1e-6)
    np.testing.assert_allclose(slices.sum(0), want.sum(0), rtol=1e-5, atol=1e-4)
    alone = np.full_like(slices, np.nan)
    ends = (*map(pointer, held), None, *ends[3:])
    kernels.sums(*ends, ctypes.c_float(0.0), pointer(alone), BLOCKS)
    np.testing.assert_array_equal(alone, slices)


@pytest.mark.parametrize(
    ("bf16", "relative", "least"), [(True, 2.0**-14, 2e-6), (False, 2e-6, 3e-7)]
)
def test_gelu_has_more_digits_than_are_stored(tmp_path, bf16, relative, least):
    """Of the result: bfloat16 rounds to 2^-9 of it."""
    defines = {"BFLOAT": int(bf16), "EACH": 4, "KIND": ACTIVATIONS.index("gelu")}
    kernels = library("activation", tmp_path, defines)
    small = np.geomspace(1e-30, 1.0, 500)
    x = np.concatenate([np.linspace(-20.0, 20.0, 40001), small, -small, [-3e38, 3e38]])
    x = np.concatenate([x, [np.nan, np.inf]]).astype(np.float32)
    y, slope = (np.empty_like(x) for _ in range(2))
    kernels.curve(*map(pointer, (x, y, slope)), ctypes.c_longlong(x.size), ctypes.c_float(0.0))
    assert np.isnan([y[-2], slope[-2]]).all()
    assert y[-1] == np.inf
    v = x[:-2].astype(np.float64)
    cdf = 0.5 * np.vectorize(math.erfc)(-v / math.sqrt(2))
    density = np.exp(-0.5 * v * v) / math.sqrt(2 * math.pi)
    np.testing.assert_allclose(y[:-2], v * cdf, rtol=relative, atol=least)
    np.testing.assert_allclose(slope[:-2], cdf + v * density, rtol=relative, atol=least)


@pytest.mark.parametrize("kind", RIGHT)
def test_at_zero_at_subnormals_and_at_infinity(tmp_path, kind):
    defines = {"BFLOAT": 0, "EACH": 4, "KIND": ACTIVATIONS.index(kind)}
    kernels, alpha = library("activation", tmp_path, defines), ctypes.c_float(ALPHA.get(kind, 0.0))
    y, slope, unused = (np.empty_like(POINTS) for _ in range(3))
    size = ctypes.c_longlong(POINTS.size)
    kernels.curve(*map(pointer, (POINTS, y, slope)), size, alpha)
    if kind in FROM_OUTPUT:
        kernels.curve(*map(pointer, (y, unused, slope)), size, alpha)
    assert_right(kind, y, slope)

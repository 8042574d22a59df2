"""The gradient of an activation with its sums, run on the processor. Needs g++, no GPU."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from dnnstack.graph.ops import ACTIVATIONS

from ....support.emulated_kernels import library, loaded, pointer, stored
from ....support.tensor_convs import COMPILER, numbers

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

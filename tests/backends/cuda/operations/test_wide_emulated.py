"""Kernels of float32 samples and of targets that are rows, on the processor. Needs g++, no GPU."""

from __future__ import annotations

import ctypes
from typing import get_args

import numpy as np
import pytest
from dnnstack.backends.reference.kernels import KERNELS
from dnnstack.graph.ops import Answer

from ....support.emulated_build import COMPILER
from ....support.emulated_kernels import library, pointer
from ....support.op_cases import CASES

pytestmark = pytest.mark.skipif(COMPILER is None, reason="g++ is not there")
WIDE = 3
CASES_HERE = [
    *(name for name in CASES if name.startswith("metrics") and name.count("-") == 2),
    *("gather_batch-rows_of_numbers", "gather_batch-floats"),
]


@pytest.fixture(scope="module")
def kernels(tmp_path_factory):
    outside = ("augment.cu", "elementwise.cu", "losses.cu")
    defines = {"BFLOAT": 0, "WIDE": WIDE}
    return library("small", tmp_path_factory.mktemp("wide"), defines, outside)


@pytest.mark.parametrize("law", ["normal", "ties"])
@pytest.mark.parametrize("name", CASES_HERE)
def test_a_kernel_is_as_the_reference(kernels, name, law):
    draft = CASES[name](np.random.default_rng(3), law)
    (op,) = draft.graph.ops
    given = [draft.values[getattr(op, field)] for field in (*op.inputs, *op.updates)]
    if name.startswith("metrics"):
        want = KERNELS[type(op)].compute(op, *(each.copy() for each in given))
        scores, target, loss, sums = given
        if target.shape[1] != WIDE:
            pytest.skip("compiled for three outputs alone")
        how = (int(op.reduction == "mean"), get_args(Answer).index(op.answer))
        ends = [*map(pointer, (scores, target, loss, sums)), len(scores), *how]
        kernels.measure_wide(*ends, ctypes.c_float(op.threshold), 64)
        np.testing.assert_allclose(sums, want, rtol=1e-6)
        return
    images, labels, order, step = given
    want_x, want_target = KERNELS[type(op)].compute(op, *given)
    x, target = np.full(op.x.shape, np.nan, np.float32), np.full(want_target.shape, 7, labels.dtype)
    n, channels, height, width = op.x.shape
    pixels = height * width
    # As channels-last has them, and as planes.
    for sample, channel, pixel in (
        (channels * pixels, 1, channels),
        (channels * pixels, pixels, 1),
    ):
        place = np.array((channels, pixels, len(order) // n, sample, channel, pixel), np.int32)
        scale, shift = (np.array(each, np.float32) for each in (op.scale, op.shift))
        ends = (images, labels, order, step, x, target, scale, shift)
        sizes = (n, pointer(place), target.size // n, int(images.dtype == np.float32), 2)
        kernels.gather(*map(pointer, ends), *sizes)
        found = x.reshape(n, pixels, channels).transpose(0, 2, 1) if channel == 1 else x
        np.testing.assert_allclose(found.reshape(x.shape), want_x, rtol=1e-6, atol=1e-6)
        np.testing.assert_array_equal(target, want_target)

"""Metrics of targets that are rows of numbers, on the processor. Needs g++, no GPU."""

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
CASES_HERE = [name for name in CASES if name.startswith("metrics") and name.count("-") == 2]


@pytest.fixture(scope="module")
def kernels(tmp_path_factory):
    outside = ("augment.cu", "elementwise.cu", "lecture.cu", "losses.cu")
    defines = {"BFLOAT": 0, "WIDE": WIDE}
    return library("small", tmp_path_factory.mktemp("wide"), defines, outside)


@pytest.mark.parametrize("law", ["normal", "ties"])
@pytest.mark.parametrize("name", CASES_HERE)
def test_a_kernel_is_as_the_reference(kernels, name, law):
    draft = CASES[name](np.random.default_rng(3), law)
    (op,) = draft.graph.ops
    given = [draft.values[getattr(op, field)] for field in (*op.inputs, *op.updates)]
    want = KERNELS[type(op)].compute(op, *(each.copy() for each in given))
    scores, target, loss, sums = given
    how = (int(op.reduction == "mean"), get_args(Answer).index(op.answer))
    ends = [*map(pointer, (scores, target, loss, sums)), len(scores), *how]
    kernels.measure_wide(*ends, ctypes.c_float(op.threshold), 64)
    np.testing.assert_allclose(sums, want, rtol=1e-6)

"""Pictures augmented and mixed, and targets that are rows, on the processor. Needs g++, no GPU."""

from __future__ import annotations

import ctypes
from typing import get_args

import numpy as np
import pytest
from dnnstack.backends.cuda.operations.augment import _acts, _gaussian, _tables
from dnnstack.backends.reference.kernels import KERNELS
from dnnstack.graph.augmentations import Elastic, changes_colours, reflects, stages
from dnnstack.graph.mixing import DRAWS, last_words, tables
from dnnstack.graph.ops import Answer, GatherAugmented, MixSamples

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


@pytest.mark.parametrize("nhwc", [False, True])
@pytest.mark.parametrize("name", [name for name in CASES if name.startswith("mix_samples")])
def test_pairs_are_mixed_as_by_the_reference(kernels, name, nhwc):
    draft = CASES[name](np.random.default_rng(4), "normal")
    (op,) = draft.graph.ops
    x, target, step = (draft.values[getattr(op, field)] for field in op.inputs)
    want, shares = KERNELS[MixSamples].compute(op, x, target, step)
    n, channels, height, width = want.shape
    order = (0, 2, 3, 1) if nhwc else (0, 1, 2, 3)
    x = np.ascontiguousarray(x.transpose(order))
    y, mixed = np.full(want.transpose(order).shape, np.nan, np.float32), np.full_like(shares, 0)
    sides = (1, height, width, channels) if nhwc else (channels, height, width, 1)
    frame = np.array(
        [n, op.steps, len(op.mixes), DRAWS, *sides, shares.shape[1], target.ndim == 2], np.int32
    )
    table = tables(op.mixes, height, width)
    rule = (np.array(op.key, np.uint32), np.array(last_words(op.mixes), np.uint32), table)
    kernels.mix(*map(pointer, (x, target, step, y, mixed, frame, *rule)), n)
    np.testing.assert_allclose(y.transpose(np.argsort(order)), want, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(mixed, shares, rtol=1e-6)


@pytest.mark.parametrize("name", [name for name in CASES if name.startswith("gather_augmented")])
def test_pictures_are_augmented_as_by_the_reference(kernels, name):
    """To the bit where whole pixels move, whatever their colours; by two blocks a picture."""
    draft = CASES[name](np.random.default_rng(5), "normal")
    (op,) = draft.graph.ops
    given = [draft.values[getattr(op, field)] for field in op.inputs]
    images, labels, order, step = given
    x, labelled = KERNELS[GatherAugmented].compute(op, *(each.copy() for each in given))
    n, channels, height, width = x.shape
    _, inside, _ = stages(op.augment)
    elastic = next((i for i in inside if isinstance(op.augment[i], Elastic)), -1)
    begin, end = (inside.start, inside.stop) if inside else (0, 0)
    steps, pixels, floats = len(order) // n, height * width, np.float32
    sizes = (n, channels, height, width, steps, steps, len(op.augment), begin, end, elastic)
    strides = (channels * pixels, pixels, 1)
    switches = (changes_colours(op.augment), reflects(op.augment))
    frame = np.array([*sizes, *strides, *switches], np.int32)
    gaussian = np.zeros(1, floats)
    if elastic >= 0:
        gaussian = np.array(_gaussian(op.augment[elastic]), floats)
    got, target = np.full(x.shape, np.nan, floats), np.full(n, -7, np.int32)
    numbers = [np.array(each, floats) for each in (op.scale, op.shift, op.fill)]
    tables = (_acts(op), *_tables(op), frame, gaussian, np.zeros(4 * n * pixels, floats))
    ends = (images, labels, order, order, step, got, target, *numbers, *tables)
    kernels.augment(*map(pointer, (*ends, np.zeros(1, np.int64), np.zeros(1, np.int32))), 1, n, 1)
    np.testing.assert_array_equal(target, labelled)
    if not inside:
        np.testing.assert_allclose(got, x, rtol=2e-6, atol=1e-6)
    np.testing.assert_allclose(got, x, rtol=0, atol=1e-4)

"""The kernels of Muon around Newton-Schulz, run on the processor. Needs g++, no GPU."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from dnnstack.backends.cuda.operations.muon import _FILTER
from dnnstack.backends.cuda.operations.optimizers import PIECE

from ....support.emulated_build import COMPILER
from ....support.emulated_kernels import library, loaded, pointer, stored
from ....support.tensor_convs import numbers

pytestmark = pytest.mark.skipif(COMPILER is None, reason="g++ is not there")
# Rows, numbers in a row, and in a row of the matrix: flat in several pieces, tall, small.
FILTERS = [(24, 100, 104), (70, 20, 72), (8, 3, 8)]
EPS, DECAY, RATES = 1e-3, 0.1, np.array([9.0, 0.5], np.float32)


class Filter:
    """A filter's arrays, and what the kernels must make of them."""

    def __init__(self, shape, stride, bf16, rng):
        self.shape, self.bf16, self.tall = shape, bf16, shape[0] > shape[1]
        self.p, self.g, self.v = (numbers(rng, shape, False) for _ in range(3))
        self.begun = self.p.copy()
        self.size = (min(shape), stride)
        self.x = stored(np.zeros(self.size), bf16)
        inside = numbers(rng, (min(shape), max(shape)), bf16)
        self.end = inside.T if self.tall else inside
        self.y = stored(np.pad(inside, ((0, 0), (0, stride - max(shape)))), bf16)
        self.copy = stored(np.zeros(shape), True)

    def segment(self, index, first, blocks):
        arrays = (self.p, self.g, self.v, self.copy, self.x, self.y)
        numbers = (self.p.size, self.shape[1], self.size[1], int(self.tall), first, blocks)
        places = (array.ctypes.data for array in arrays)
        return (*places, *numbers, 2.0, DECAY, np.sqrt(self.shape[0]), index)

    def direction(self, momentum, nesterov):
        self.moved = momentum * self.v + self.g
        return momentum * self.moved + self.g if nesterov else self.moved


@pytest.mark.parametrize(
    ("bf16", "nesterov", "rescale"), [(True, 1, 1), (False, 0, 1), (True, 0, 0)]
)
def test_around_the_iteration(tmp_path, bf16, nesterov, rescale):
    kernels, rng = library("muon", tmp_path, {"BFLOAT": int(bf16)}), np.random.default_rng(nesterov)
    filters = [Filter(shape[:2], shape[2], bf16, rng) for shape in FILTERS]
    blocks = [-(-each.p.size // PIECE) for each in filters]
    first = np.cumsum([0, *blocks])
    rows = [each.segment(i, first[i], blocks[i]) for i, each in enumerate(filters)]
    segments = np.array(rows, _FILTER)
    starts = [(i, at) for i, each in enumerate(filters) for at in range(0, each.p.size, PIECE)]
    where = np.array(starts, np.int32)
    directions = [each.direction(0.6, nesterov).astype(np.float64) for each in filters]
    partial = np.full((len(where), 2), np.nan)
    norms = np.full(len(filters), np.nan, np.float32)
    begin = (pointer(segments), pointer(where), len(where))
    rule = (ctypes.c_float(0.6), nesterov, ctypes.c_float(EPS))
    kernels.momentum(*begin, *rule, pointer(partial), pointer(norms))
    near = {"rtol": 2.0**-8 if bf16 else 1e-6, "atol": 1e-7}
    for each, u, norm in zip(filters, directions, norms, strict=True):
        np.testing.assert_allclose(each.v, each.moved, rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(norm, np.linalg.norm(each.p), rtol=1e-6)
        wanted = np.zeros(each.size)
        unit = u / (np.linalg.norm(u) + EPS)
        wanted[:, : max(each.shape)] = unit.T if each.tall else unit
        np.testing.assert_allclose(loaded(each.x, bf16, each.size), wanted, **near)
    step = np.array([1], np.int64)
    kernels.update(*begin, pointer(RATES), pointer(step), pointer(norms), rescale)
    lr = 2.0 * RATES[1]
    for each, norm in zip(filters, norms, strict=True):
        keep = np.sqrt(each.shape[0]) / norm if rescale else 1.0
        wanted = (1 - lr * DECAY) * keep * each.begun - lr * each.end
        np.testing.assert_allclose(each.p, wanted, rtol=1e-5, atol=1e-5)
        copy = loaded(each.copy, True, each.shape)
        np.testing.assert_array_equal(copy, loaded(stored(each.p, True), True, each.shape))

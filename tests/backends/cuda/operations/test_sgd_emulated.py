"""The update by SGD, which adds up slices, run on the processor. Needs g++."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace

import numpy as np
import pytest
from dnnstack.backends.cuda.binding.slices import AT_ONCE, Slices, places_of, table_of
from dnnstack.backends.cuda.binding.store import TILE
from dnnstack.backends.cuda.libraries.layout import _to_bfloat
from dnnstack.graph.graph import Tensor

from ....support import emulated_kernels
from ....support.emulated_build import COMPILER
from ....support.emulated_kernels import pointer

pytestmark = pytest.mark.skipif(COMPILER is None, reason="g++ is not there")
RATE, STEPS = np.float32(0.3), 5
# (size, slices; None: no slices), sizes that are no multiples of four among them.
# The last but one is frozen, and longer than a block.
PARAMETERS = (
    *((500, 256), (20, 256), (96, None), (600, 33), (50, 33), (7, 1), (300, 600)),
    *((3000, None), (64, None)),
)
FROZEN = (4, len(PARAMETERS) - 2)


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    return emulated_kernels.library("sgd", tmp_path_factory.mktemp("sgd"), {"BFLOAT": 0})


class Arenas:
    """Parameters side by side, the gradients of some of them in slices."""

    def __init__(self, seed, aligned):
        draw = np.random.default_rng(seed)
        self.spans, self.slices, end = [], [], 0
        for size, _ in PARAMETERS:
            self.spans.append(slice(end, end + size))
            end += -(-size // TILE) * TILE
        self.p, self.v, self.g = (draw.standard_normal(end).astype(np.float32) for _ in range(3))
        self.wanted, self.rules = self.g.copy(), np.zeros((end // TILE, 2), np.float32)
        self.factors, self.decays = np.zeros(end, np.float32), np.zeros(end, np.float32)
        self.pending, followed, self.keep = [], {}, []
        for i, ((size, count), span) in enumerate(zip(PARAMETERS, self.spans, strict=True)):
            # One that is frozen among them, although its gradient is summed.
            rule = (0.0 if i in FROZEN else 1.0 + i / 8, 0.01 * i)
            self.factors[span], self.decays[span] = rule
            tiles = slice(span.start // TILE, -(-span.stop // TILE))
            self.rules[tiles] = rule
            if count is None:
                continue
            self.rules[tiles] = 0.0
            stride = size + (-size % 4 if aligned else 3)
            rows = draw.standard_normal((count, stride)).astype(np.float32)
            self.keep.append(rows)
            self.wanted[span] = rows[:, :size].astype(np.float64).sum(0)
            held = SimpleNamespace(pointer=self.g[span].ctypes.data)
            tensor = Tensor(str(i), (size,), "float32", "gradient")
            given = (rows.ctypes.data, count, stride, size)
            self.pending.append(Slices(None, 0, tensor, held, *given))
            followed[tensor] = (span.start, *rule)
        self.table, self.where = table_of(self.pending, followed), places_of(self.pending)


@pytest.mark.parametrize("aligned", [True, False])
@pytest.mark.parametrize(("momentum", "nesterov"), [(0.0, False), (0.9, False), (0.9, True)])
def test_sums_of_slices_are_followed_like_other_gradients(library, aligned, momentum, nesterov):
    arenas = Arenas(3, aligned)
    p, v, g = arenas.p.copy(), arenas.v.copy(), arenas.wanted
    factor, decay = arenas.factors, arenas.decays
    gradient = decay * p + g
    velocity = momentum * v + gradient
    taken = gradient + momentum * velocity if nesterov else velocity
    moved = factor != 0
    want_p = np.where(moved, p - RATE * factor * (taken if momentum else gradient), p)
    want_v = np.where(moved, velocity, v) if momentum else v
    rates = np.zeros(STEPS, np.float32)
    rates[2] = RATE
    step, count = np.array([2], np.int64), np.zeros(1, np.uint32)
    copy = _to_bfloat(arenas.p)
    library.run(
        *(pointer(each) for each in (arenas.p, arenas.g, arenas.v if momentum else None, copy)),
        p.size // 4,
        *(pointer(each) for each in (arenas.rules, arenas.table, arenas.where)),
        *(len(arenas.where), pointer(rates), pointer(step), pointer(count)),
        *(ctypes.c_float(momentum), int(nesterov)),
    )
    # Everything that is no parameter stays, which is within these, too.
    np.testing.assert_allclose(arenas.g, g, rtol=1e-5, atol=1e-4)
    np.testing.assert_allclose(arenas.p, want_p, rtol=1e-5, atol=1e-4)
    np.testing.assert_allclose(arenas.v, want_v, rtol=1e-5, atol=1e-4)
    np.testing.assert_array_equal(copy, _to_bfloat(arenas.p))
    assert (step[0], count[0]) == (3, 0)


def test_a_block_asks_for_all_slices_at_once_if_it_can():
    for size, count in ((33600, 33), (33600, 66), (500, 256), (50, 1)):
        found = Slices(None, 0, None, None, 0, count, 4 * size, size)
        assert found.wide == found.each << found.shift
        assert found.count << found.shift <= AT_ONCE
        assert found.shift == 5 or found.count << (found.shift + 1) > AT_ONCE

"""The matrix product on tensor cores, run on the processor: indices, edges, and every way to share.

Needs g++, no GPU. DNNSTACK_TENSOR_CONVS sets how many of each kind are drawn.
"""

from __future__ import annotations

import os
from dataclasses import replace

import numpy as np
import pytest
from dnnstack.backends.cuda.binding.wide import kind_of
from dnnstack.backends.cuda.fused.dense_tilings import dense_tilings
from dnnstack.backends.cuda.libraries.layout import BFLOAT
from dnnstack.backends.cuda.libraries.runtime import H200

from ....support.emulated_build import COMPILER
from ....support.tensor_products import EmulatedProduct, draw_product, operands, product

COUNT = int(os.environ.get("DNNSTACK_TENSOR_CONVS", "3"))
KINDS = ("forward", "data", "filter", "both")
needs_compiler = pytest.mark.skipif(COMPILER is None, reason="g++ is not there")


def check(drawn, folder, seed):
    """Everything counts, the rest of each row of c stays."""
    g, rng = drawn.geometry, np.random.default_rng(seed)
    kernel = EmulatedProduct(drawn, folder, ACTIVATION=kind_of(drawn.activation))
    assert kernel.sizes() == (drawn.tiling.shared, drawn.tiling.threads, drawn.tiling.stages)
    a, b, bias = operands(drawn, rng)
    got, want = kernel.run(a, b, bias), product(drawn, a, b, bias)
    # What operands of ten bits, or a result of eight, may make of a sum.
    limit = 4e-3 if g.result == BFLOAT else 2e-5 if drawn.bf16 else 5e-4
    inside = got[:, : g.columns]
    assert np.linalg.norm(inside - want) <= limit * np.linalg.norm(want)
    assert not inside[:, g.counted :].any()
    assert np.isnan(got[:, g.columns :]).all()
    np.testing.assert_array_equal(kernel.run(a, b, bias)[:, : g.columns], inside)


@needs_compiler
@pytest.mark.parametrize("seed", range(COUNT))
@pytest.mark.parametrize("kind", KINDS)
def test_any_product(tmp_path, kind, seed):
    check(draw_product(seed, kind), tmp_path, seed)


@needs_compiler
@pytest.mark.parametrize("seed", range(COUNT))
@pytest.mark.parametrize("kind", KINDS)
def test_the_depth_in_many_parts(tmp_path, kind, seed):
    """More turns than are on their way at once, by few warps; all warps with few turns."""
    drawn = draw_product(seed, kind, most=20, depth=700)
    found = dense_tilings(drawn.geometry, 1000, H200)
    by_turns = sorted(found, key=lambda each: each.turns - each.stages)
    check(replace(drawn, tiling=by_turns[-1 if seed % 2 else 0]), tmp_path, seed)

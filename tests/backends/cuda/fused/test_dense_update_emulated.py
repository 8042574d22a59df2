"""Weights updated by the kernel of their gradient, run on the processor: indices, edges, every way.

Needs g++, no GPU. DNNSTACK_TENSOR_CONVS sets how many are drawn.
"""

from __future__ import annotations

import os
from dataclasses import replace

import numpy as np
import pytest
from dnnstack.backends.cuda.fused.dense_tilings import update_tilings
from dnnstack.backends.cuda.libraries.runtime import H200

from ....support.emulated_build import COMPILER
from ....support.weight_updates import Emulated, Layer, draw

COUNT = int(os.environ.get("DNNSTACK_TENSOR_CONVS", "5"))
pytestmark = pytest.mark.skipif(COMPILER is None, reason="g++ is not there")


def check(drawn, folder, seed):
    kernel, first = Emulated(drawn, folder), Layer(drawn, np.random.default_rng(seed))
    assert kernel.sizes() == (drawn.tiling.shared, drawn.tiling.threads)
    weights, velocity = first.wanted()
    copy = kernel.run(first)
    # What operands of ten bits may make of a sum.
    limit = 2e-6 if drawn.bf16 else 5e-4
    for got, want in ((first.weights, weights), (first.velocity, velocity)):
        assert np.linalg.norm(got - want) <= limit * max(1.0, np.linalg.norm(want))
    assert not first.weights[:, drawn.geometry.counted :].any()
    np.testing.assert_allclose(copy, first.weights, rtol=2**-8, atol=1e-30)
    again = Layer(drawn, np.random.default_rng(seed))
    kernel.run(again)
    np.testing.assert_array_equal(again.weights, first.weights)
    np.testing.assert_array_equal(again.velocity, first.velocity)


@pytest.mark.parametrize("seed", range(COUNT))
def test_any_layer(tmp_path, seed):
    check(draw(seed), tmp_path, seed)


@pytest.mark.parametrize("seed", range(COUNT))
def test_the_depth_in_many_stages(tmp_path, seed):
    """More than are in shared memory at once, and all at once."""
    drawn = draw(seed, most=60, depth=900)
    found = update_tilings(drawn.geometry, 1000, H200)
    by_turns = sorted(found, key=lambda each: each.turns - each.stages)
    check(replace(drawn, tiling=by_turns[-1 if seed % 2 else 0]), tmp_path, seed)

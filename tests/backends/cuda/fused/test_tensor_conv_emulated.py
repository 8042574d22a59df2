"""The kernels on tensor cores, run on the processor: indices, barriers, and every tiling's limits.

Needs g++, no GPU. DNNSTACK_TENSOR_CONVS sets how many of each kind are drawn.
"""

from __future__ import annotations

import os

import numpy as np
import pytest

from ....support.tensor_convs import COMPILER, Emulated, convolved, draw, numbers, turned

COUNT = int(os.environ.get("DNNSTACK_TENSOR_CONVS", "5"))
# What operands of ten bits, or a result of eight, may make of a sum.
LOOSE = {False: 5e-4, True: 4e-3}
needs_compiler = pytest.mark.skipif(COMPILER is None, reason="g++ is not there")


def test_continuous_integration_has_a_compiler():
    if "DNNSTACK_EXPECT_COMPILER" not in os.environ:
        pytest.skip("only where DNNSTACK_EXPECT_COMPILER is set")
    assert COMPILER is not None


def close(got, want, limit):
    assert np.linalg.norm(got - want) <= limit * np.linalg.norm(want)


def as_planned(kernel):
    tiling = kernel.drawn.tiling
    assert kernel.sizes() == (tiling.shared, tiling.threads, tiling.units)


@needs_compiler
@pytest.mark.parametrize("seed", range(COUNT))
def test_forward(tmp_path, seed):
    drawn = draw(seed, "forward")
    activation = seed % 2 - 1
    kernel = Emulated(drawn, tmp_path, DATA=0, ACTIVATION=activation)
    as_planned(kernel)
    g, rng = drawn.geometry, np.random.default_rng(seed)
    x = numbers(rng, (drawn.n, *g.x[1:], g.x[0]), drawn.bf16)
    w = numbers(rng, (g.y[0], *g.window.kernel, g.x[0]), drawn.bf16)
    bias = numbers(rng, (g.y[0],), False) if seed % 3 else None
    want = convolved(x, w, g.window) + (0.0 if bias is None else bias)
    if activation == 0:
        want = np.maximum(want, 0.0)
    close(kernel.convolve(x, w, bias), want, LOOSE[drawn.bf16])


@needs_compiler
@pytest.mark.parametrize("seed", range(COUNT))
def test_the_gradient_of_pictures(tmp_path, seed):
    drawn = draw(seed, "data")
    kernel = Emulated(drawn, tmp_path, DATA=1, ACTIVATION=-1)
    as_planned(kernel)
    g, rng = drawn.geometry, np.random.default_rng(seed)
    dy = numbers(rng, (drawn.n, *g.x[1:], g.x[0]), drawn.bf16)
    w = numbers(rng, (g.x[0], *g.window.kernel, g.y[0]), drawn.bf16)
    rotated = np.ascontiguousarray(w[:, ::-1, ::-1].transpose(3, 1, 2, 0))
    close(kernel.convolve(dy, w, None), convolved(dy, rotated, turned(g.window)), LOOSE[drawn.bf16])


@needs_compiler
@pytest.mark.parametrize("seed", range(COUNT))
def test_the_gradients_of_filters_and_biases(tmp_path, seed):
    drawn = draw(seed, "filter")
    kernel = Emulated(drawn, tmp_path, BIAS=1)
    as_planned(kernel)
    g, rng = drawn.geometry, np.random.default_rng(seed)
    x = numbers(rng, (drawn.n, *g.x[1:], g.x[0]), drawn.bf16)
    dy = numbers(rng, (drawn.n, *g.y[1:], g.y[0]), drawn.bf16)
    top, bottom, left, right = g.window.padding
    wide = np.pad(x.astype(np.float64), ((0, 0), (top, bottom), (left, right), (0, 0)))
    want = np.zeros((g.y[0], *g.window.kernel, g.x[0]))
    for i, j in np.ndindex(*g.window.kernel):
        seen = wide[:, i : i + g.y[1], j : j + g.y[2]].reshape(-1, g.x[0])
        want[:, i, j] = dy.reshape(-1, g.y[0]).T.astype(np.float64) @ seen
    weights, biases = kernel.gradients(x, dy)
    # Sums are float32 in both: of products that bfloat16 has exactly.
    close(weights, want, 2e-5 if drawn.bf16 else LOOSE[False])
    close(biases, dy.astype(np.float64).sum((0, 1, 2)), 1e-5)

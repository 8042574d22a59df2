"""Small moves by the kernels of optimizers.cu, run on the processor. Needs g++, no GPU.

As test_small_moves.py has them, in fewer steps over fewer numbers.
"""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from dnnstack.backends.cuda.operations.muon import _FILTER
from dnnstack.backends.cuda.operations.optimizers import _ADAM, _MEAN, PIECE

from ....support.emulated_build import COMPILER
from ....support.emulated_kernels import library, pointer

pytestmark = pytest.mark.skipif(COMPILER is None, reason="g++ is not there")
SIZE, STEPS, AWAY = 1 << 16, 4, 1e-8
RATES = np.full(STEPS, 1e-3, np.float32)
BETAS, EPS = (0.9, 0.999), 1e-8


@pytest.fixture(scope="module")
def kernels(tmp_path_factory):
    return library("optimizers", tmp_path_factory.mktemp("optimizers"), {"BFLOAT": 0})


@pytest.fixture
def rng():
    return np.random.default_rng(1)


def around(rng, middle, spread):
    return (middle + spread * rng.standard_normal(SIZE)).astype(np.float32)


def place(kind, *row):
    """A table of one structure, and where its blocks begin."""
    starts = [(0, at) for at in range(0, SIZE, PIECE)]
    return np.array([row], kind), np.array(starts, np.int32)


def addresses(*arrays):
    return [array.ctypes.data for array in arrays]


@pytest.mark.parametrize("decoupled", [1, 0])
def test_adam_decays(kernels, rng, decoupled):
    """Without decoupling the decay is added to the gradient; in two steps of them p moves alike."""
    p, m, v = around(rng, 1.0, 0.3), around(rng, 0.0, 1.0), np.abs(around(rng, 1.0, 0.3))
    g, decay = np.zeros_like(p), AWAY / RATES[0]
    rows = place(_ADAM, *addresses(p, g, m, v), 0, SIZE, 1.0, decay, 0)
    want, mean, square = (each.astype(np.float64) for each in (p, m, v))
    plain = np.zeros(SIZE)
    for now in range(STEPS):
        g[:] = around(rng, 0.0, 1.0)
        betas = (ctypes.c_double(beta) for beta in BETAS)
        step = np.array([now], np.int64)
        kernels.adam(
            *map(pointer, rows),
            *(len(rows[1]), pointer(RATES), pointer(step), *betas, ctypes.c_float(EPS), decoupled),
        )
        given = g + (0.0 if decoupled else decay * want)
        mean = BETAS[0] * mean + (1.0 - BETAS[0]) * given
        square = BETAS[1] * square + (1.0 - BETAS[1]) * given * given
        taken = mean / (1.0 - BETAS[0] ** (now + 1))
        root = np.sqrt(square / (1.0 - BETAS[1] ** (now + 1))) + EPS
        shrink = RATES[now] * decay * want if decoupled else 0.0
        plain += shrink
        want = want - float(RATES[now]) * taken / root - shrink
    np.testing.assert_allclose(p, want, rtol=2e-6)
    if decoupled:
        assert abs((p - want).mean() / plain.mean()) < 0.1


@pytest.mark.parametrize("rescale", [0, 1])
def test_muon_decays(kernels, rng, rescale):
    p, y = around(rng, 1.0, 0.3), np.zeros(SIZE, np.float32)
    shape, decay = (256, SIZE // 256), AWAY / RATES[0]
    norms = np.array([np.linalg.norm(p.astype(np.float64))], np.float32)
    root = np.float32(norms[0] * 1.5)
    sizes = (SIZE, shape[1], shape[1], 0, 0, 1)
    given = (0, 0, 0, *addresses(y, y), *sizes, 1.0, decay, root, 0)
    rows = place(_FILTER, p.ctypes.data, *given)
    want, shrunk = p.astype(np.float64), 0.0
    for now in range(STEPS):
        y[:] = around(rng, 0.0, 1.0)
        step = np.array([now], np.int64)
        kernels.muon(
            *map(pointer, rows),
            *(len(rows[1]), pointer(RATES), pointer(step), pointer(norms), rescale),
        )
        want *= 1.5 if rescale else 1.0
        shrunk += RATES[now] * decay * want.mean()
        want -= float(RATES[now]) * (y + decay * want)
    np.testing.assert_allclose(p, want, rtol=2e-6, atol=1e-7)
    if not rescale:
        assert abs((p - want).mean() / shrunk) < 0.1


@pytest.mark.parametrize("pull", [0, 1])
def test_averages_follow(kernels, rng, pull):
    a, p = around(rng, 1.0, 0.3), np.zeros(SIZE, np.float32)
    rows = place(_MEAN, *addresses(a, p), 0, SIZE, 0)
    away = 1e-5
    decays, want = np.full(STEPS, 1.0 - away, np.float32), a.astype(np.float64)
    begun = want.mean()
    for now in range(STEPS):
        p[:] = around(rng, 2.0, 0.3)
        want += away * (p.astype(np.float64) - want)
        step = np.array([now], np.int64)
        kernels.mean(*map(pointer, rows), len(rows[1]), pointer(decays), pointer(step), pull)
        assert pull == np.array_equal(a, p)
    assert abs((a.mean(dtype=np.float64) - want.mean()) / (want.mean() - begun)) < 0.03

"""Formulas in CUDA C++ compute what they compute in NumPy; a C++ compiler runs them here."""

from __future__ import annotations

import ctypes
from functools import cache

import numpy as np
import pytest
from dnnstack.backends.cuda.libraries.kernels import source_of
from dnnstack.backends.cuda.operations.optimizers import segment
from dnnstack.backends.reference.kernels import KERNELS
from dnnstack.graph.graph import Tensor
from dnnstack.graph.ops import RowLoss, RowLossBackward

from ....support.cuda_shim import COMPILER, compiled
from ....support.formulas import VARIANTS, drawn_targets, fitted
from ....support.update_formulas import FORMULAS

LAUNCHERS = """
void forward(const float* x, const int* target, float* losses, int n, int k) {
    launch(2, 4, [=] { row_loss(x, target, losses, n, k); });
}
void backward(const float* x, const int* target, float* dx, int n, int k, int mean) {
    launch(2, 64, [=] { row_loss_backward(x, target, dx, n, k, mean); });
}
"""


def without_common(file, formula):
    """The source from formulas.cuh on: what is before it needs a GPU's compiler."""
    return source_of(file, formula).partition("// What formulas work on.")[2].partition("\n")[2]


@pytest.fixture(params=VARIANTS, scope="module")
def loss(request, tmp_path_factory):
    """A formula, and its kernels for rows of so many targets."""
    if COMPILER is None:
        pytest.skip("no C++ compiler: neither g++ nor clang++ is on the path")
    chosen = VARIANTS[request.param]

    @cache
    def library(k: int) -> ctypes.CDLL:
        source = without_common("row_loss.cu", fitted(chosen, k).formula)
        source = f"#define WIDE {k}\n{source}" if k else source
        return compiled(source, LAUNCHERS, tmp_path_factory.mktemp("loss"), 2)

    return chosen, library


def drawn(loss, law, n, k):
    formula = loss.formula
    rng = np.random.default_rng(n)
    x = rng.standard_normal((n, k)) * 3 if law == "normal" else rng.integers(-1, 2, (n, k)) * 1.0
    p = np.exp(x) / np.exp(x).sum(1, keepdims=True)
    x = {"scores": x, "p": p, "log_p": np.log(p)}[formula.of]
    if loss.target == "class":
        # Class weights are those of the first classes.
        classes = min(k, len(getattr(formula, "weights", range(k))))
        return np.asarray(x, np.float32), rng.integers(-1, classes, n).astype(np.int32)
    target = drawn_targets(loss.target, (n, k), rng)
    target.view(np.int32)[1::3] = -1
    return np.asarray(x, np.float32), target


def pointer(array):
    return array.ctypes.data_as(ctypes.c_void_p)


@pytest.mark.parametrize("law", ["normal", "ties"])
@pytest.mark.parametrize(("n", "k"), [(5, 10), (70, 3), (1, 1), (9, 65)])
def test_losses(loss, law, n, k):
    """Beside float64; rows are masked, and there are more rows and classes than threads."""
    chosen, library_for = loss
    wide = chosen.target != "class"
    if wide and k in (3, 65):
        # Each number of targets is compiled by itself; weights are fewer than 65.
        k = 10
    formula = fitted(chosen, k).formula
    library = library_for(k if wide else 0)
    x, target = drawn(chosen, law, n, k)
    kind = Tensor("t", target.shape, "float32" if wide else "int32")
    ends = {"x": Tensor("x", (n, k)), "target": kind, "formula": formula}
    masked = target.reshape(n, -1)[:, 0].view(np.int32) == -1
    for reduction in ("mean", "sum"):
        losses, dx = np.full(n, np.nan, np.float32), np.full((n, k), np.nan, np.float32)
        library.forward(pointer(x), pointer(target), pointer(losses), n, k)
        library.backward(pointer(x), pointer(target), pointer(dx), n, k, int(reduction == "mean"))
        forward = RowLoss(**ends, loss=Tensor("l", (1,)), reduction="sum")
        back = RowLossBackward(**ends, dx=Tensor("dx", (n, k)), reduction=reduction)
        exact = x.astype(np.float64), target
        (want,) = KERNELS[RowLoss].compute(forward, *exact)
        slopes = KERNELS[RowLossBackward].compute(back, *exact)
        size = max(1.0, np.abs(want))
        assert losses.sum(dtype=np.float64) == pytest.approx(want, rel=0, abs=1e-5 * size)
        assert not losses[masked].any()
        size = max(1.0, np.abs(slopes).max())
        np.testing.assert_allclose(dx, slopes, rtol=0, atol=1e-6 * size)


UPDATE = """
void update(const Segment* segments, const int2* where, int blocks, const float* rates,
            const i64* step) {
    launch(blocks, 3, [=] { elementwise_update(segments, where, rates, step); });
}
"""


@pytest.mark.parametrize("name", FORMULAS)
def test_updates(name, tmp_path):
    """Three steps of two parameters, blocks of three threads with four numbers each, by float64."""
    if COMPILER is None:
        pytest.skip("no C++ compiler: neither g++ nor clang++ is on the path")
    formula = FORMULAS[name]
    count = len(formula.families)
    source = f"#define STATES {count}\n{without_common('elementwise_update.cu', formula)}"
    library = compiled(source, UPDATE, tmp_path)
    rng, sizes, factors, decays = np.random.default_rng(3), (31, 12), (1.0, 0.5), (0.0, 0.2)
    p, g = ([rng.standard_normal(n).astype(np.float32) for n in sizes] for _ in range(2))
    states = [[np.zeros(n, np.float32) for n in sizes] for _ in range(count)]
    copies = [np.zeros(n, np.uint16) for n in sizes]
    exact = [values.astype(np.float64) for values in p]
    kept = [[np.zeros(n) for n in sizes] for _ in range(count)]
    rates, step = np.array([9.0, 0.1, 0.03, 0.2], np.float32), np.array([1], np.int64)
    dtype = segment(count)
    rows = [
        (
            *(a.ctypes.data for a in (p[i], g[i], copies[i])),
            [family[i].ctypes.data for family in states] or [0],
            *(sizes[i], factors[i], decays[i], 1),
        )
        for i in range(2)
    ]
    table = np.array(rows, dtype)
    where = np.array([(i, at) for i in range(2) for at in range(0, sizes[i], 12)], np.int32)
    for t in (1, 2, 3):
        step[0] = t
        given = (pointer(table), pointer(where), len(where), pointer(rates), pointer(step))
        library.update(*given)
        for i in range(2):
            state = [family[i] for family in kept]
            lr, gradient = rates[t] * factors[i], g[i].astype(np.float64)
            formula.update(exact[i], gradient, state, lr, decays[i], t)
    for i in range(2):
        np.testing.assert_allclose(p[i], exact[i], rtol=0, atol=1e-6)
        for mine, wanted in zip(states, kept, strict=True):
            np.testing.assert_allclose(mine[i], wanted[i], rtol=1e-5, atol=1e-7)
        wide = (copies[i].astype(np.uint32) << 16).view(np.float32)
        np.testing.assert_allclose(wide, p[i], rtol=2.0**-8)

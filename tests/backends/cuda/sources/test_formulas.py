"""Formulas in CUDA C++ compute what they compute in NumPy; a C++ compiler runs them here."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from dnnstack.backends.cuda.libraries.kernels import source_of
from dnnstack.backends.reference.kernels import KERNELS
from dnnstack.graph.graph import Tensor
from dnnstack.graph.ops import RowLoss, RowLossBackward

from ....support.cuda_shim import COMPILER, compiled
from ....support.formulas import VARIANTS

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
    if COMPILER is None:
        pytest.skip("no C++ compiler: neither g++ nor clang++ is on the path")
    formula = VARIANTS[request.param].formula
    source = without_common("row_loss.cu", formula)
    return formula, compiled(source, LAUNCHERS, tmp_path_factory.mktemp("loss"), 2)


def drawn(formula, law, n, k):
    rng = np.random.default_rng(n)
    x = rng.standard_normal((n, k)) * 3 if law == "normal" else rng.integers(-1, 2, (n, k)) * 1.0
    p = np.exp(x) / np.exp(x).sum(1, keepdims=True)
    x = {"scores": x, "p": p, "log_p": np.log(p)}[formula.of]
    return np.asarray(x, np.float32), rng.integers(-1, k, n).astype(np.int32)


def pointer(array):
    return array.ctypes.data_as(ctypes.c_void_p)


@pytest.mark.parametrize("law", ["normal", "ties"])
@pytest.mark.parametrize(("n", "k"), [(5, 10), (70, 3), (1, 1), (9, 65)])
def test_losses(loss, law, n, k):
    """Beside float64; rows are masked, and there are more rows and classes than threads."""
    formula, library = loss
    x, target = drawn(formula, law, n, k)
    ends = {"x": Tensor("x", (n, k)), "target": Tensor("t", (n,), "int32"), "formula": formula}
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
        assert not losses[target < 0].any()
        size = max(1.0, np.abs(slopes).max())
        np.testing.assert_allclose(dx, slopes, rtol=0, atol=1e-6 * size)

"""The end of a classifier in two kernels, emulated on the processor. Needs g++."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from dnnstack.backends.cuda.fused.dense_tail import LINES, ROWS, SPAN, _rows
from dnnstack.backends.cuda.libraries.layout import _from_bfloat

from ....support import emulated_build
from ....support.emulated_build import COMPILER

pytestmark = pytest.mark.skipif(COMPILER is None, reason="g++ is not there")
# hidden, stride, classes, rows of a block, bfloat16, whether the loss is a mean
CASES = [
    (30, 32, 2, 1, False, True),
    (33, 33, 7, 2, True, False),
    (98, 100, 10, 2, False, True),
    (161, 161, 10, 4, True, True),
    (61, 64, 32, 4, False, False),
]
SMOOTHING = 0.1


class Emulated:
    def __init__(self, case, folder):
        hidden, stride, classes, rows, bf16, _ = case
        values = {"HIDDEN": hidden, "STRIDE": stride, "CLASSES": classes, "ROWS": rows}
        values |= {"KIND": 0, "SPAN": SPAN, "LINES": LINES, "BFLOAT": int(bf16)}
        self.library = emulated_build.library("dense_tail", folder, values)

    def run(self, name, *arguments):
        getattr(self.library, name)(*map(self._passed, arguments))

    def _passed(self, value):
        if isinstance(value, np.ndarray):
            return ctypes.c_void_p(value.ctypes.data)
        return ctypes.c_float(value) if isinstance(value, float) else value


@pytest.mark.parametrize("case", CASES)
def test_both_kernels_compute_what_the_formulas_say(tmp_path, case):
    (hidden, stride, classes, rows, bf16, mean), n = case, 7
    draw = np.random.default_rng(hidden)
    pre, w2 = (draw.standard_normal((k, stride)).astype(np.float32) for k in (n, classes))
    b1, b2 = (draw.standard_normal(k).astype(np.float32) for k in (stride, classes))
    target = draw.integers(0, classes, n).astype(np.int32)
    target[2] = -1
    kernel = Emulated(case, tmp_path)
    scores, dscores = (np.full((n, classes), np.nan, np.float32) for _ in range(2))
    dpre = np.full((n, stride), 0xFFFF, np.uint16) if bf16 else np.full_like(pre, np.nan)
    row_sums, loss, sums = np.zeros((n, 2), np.float32), np.zeros(1, np.float32), np.ones(3)
    given = (pre, b1, w2, b2, target, scores, dscores, dpre, row_sums, n, SMOOTHING, int(mean))
    kernel.run("tail", *given, -(-n // rows))
    dw2, db1, db2 = (np.full(shape, np.nan, np.float32) for shape in (w2.shape, stride, classes))
    given = (pre, b1, dscores, dpre, row_sums, dw2, db1, db2, n, loss, sums, int(mean))
    kernel.run("gradients", *given)

    real, valid = slice(0, hidden), target >= 0
    h = np.maximum(pre.astype(np.float64) + b1, 0.0)[:, real]
    z = h @ w2[:, real].T.astype(np.float64) + b2
    log_p = z - z.max(1, keepdims=True)
    log_p -= np.log(np.exp(log_p).sum(1, keepdims=True))
    q = np.eye(classes)[target] * (1 - SMOOTHING) + SMOOTHING / classes
    each = -(q * log_p).sum(1) * valid
    dz = (np.exp(log_p) - q) * valid[:, None] / (valid.sum() if mean else 1)
    dh = dz @ w2[:, real].astype(np.float64) * (h > 0)
    gradient = _from_bfloat(dpre) if bf16 else dpre
    near = 2.0**-7 if bf16 else 2e-6

    def close(got, want, tolerance=2e-6):
        size = max(1.0, np.abs(want).max())
        np.testing.assert_allclose(got, want, rtol=0, atol=tolerance * size)

    close(scores, z)
    close(dscores, dz)
    close(gradient[:, real], dh, near)
    assert not gradient[:, hidden:].any()
    close(dw2[:, real], dz.T @ h)
    close(db1[real], dh.sum(0), near)
    close(db2, dz.sum(0))
    wanted = each.sum() / (valid.sum() if mean else 1)
    right = int(((z.argmax(1) == target) & valid).sum())
    close(loss[0], wanted)
    close(sums, [1 + each.sum(), 1 + right, 1 + valid.sum()])


def test_a_block_has_the_fewest_rows_that_leave_one_block_a_processor():
    assert [_rows(n, 500, 10, 132) for n in (64, 132, 256, 1024)] == [1, 1, 2, 4]
    # Where a thread has no more registers for them.
    assert _rows(1024, 2048, 6, 132) == 1
    assert max(ROWS) <= 4

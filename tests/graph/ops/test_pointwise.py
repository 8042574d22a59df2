"""Pooling, activations, softmax, checked by hand."""

from __future__ import annotations

import math

import numpy as np
from dnnstack.backends.reference.pointwise import erf
from dnnstack.graph import ops
from dnnstack.graph.geometry import Window

from ...support.by_hand import check, compute


def test_max_pool_ties_go_to_the_first_in_row_major_order():
    window = Window((2, 2), (2, 2))
    x = [[[[0.0, 0.0, 1.0, 2.0], [0.0, 0.0, 2.0, 2.0]]]]
    y = [[[[0.0, 2.0]]]]
    fields = {"x": x, "y": y, "dy": [[[[3.0, 4.0]]]], "window": window, "kind": "max"}
    dx = compute(ops.Pool2dBackward, {"dx": (1, 1, 2, 4)}, **fields)["dx"]
    check(dx, [[[[3, 0, 0, 4], [0, 0, 0, 0]]]])


def test_erf():
    x = np.concatenate([np.linspace(-7, 7, 20001), [0.46875, -0.46875, 1e-300, 40.0, -np.inf]])
    want = np.array([math.erf(value) for value in x])
    assert np.abs(erf(x) - want).max() < 4e-16
    single = x.astype(np.float32)
    want = np.array([math.erf(value) for value in single.astype(np.float64)])
    assert erf(single).dtype == np.float32
    assert np.abs(erf(single) - want).max() < 1e-7
    assert np.isnan(erf(np.array([np.nan])))[0]

"""Pooling, activations, softmax, checked by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from dnnstack.backends.reference.erf import erf
from dnnstack.graph import ops
from dnnstack.graph.geometry import Window

from ...support.by_hand import NINE, check, compute
from ...support.stored import tuples


def test_max_pool():
    window = Window((2, 2), (1, 1))
    y = compute(ops.Pool2d, {"y": (1, 1, 2, 2)}, x=NINE, window=window, kind="max")["y"]
    check(y, [[[[5, 6], [8, 9]]]])
    dy = [[[[1.0, 2.0], [3.0, 4.0]]]]
    dx = compute(
        ops.Pool2dBackward,
        {"dx": (1, 1, 3, 3)},
        x=NINE,
        y=y.tolist(),
        dy=dy,
        window=window,
        kind="max",
    )["dx"]
    check(dx, [[[[0, 0, 0], [0, 1, 2], [0, 3, 4]]]])


def test_max_pool_padding_never_wins():
    window = Window((2, 2), (2, 2), (1, 0, 1, 0))
    x = [[[[-5.0, -2.0, -3.0], [-4.0, -6.0, -7.0], [-8.0, -1.0, -9.0]]]]
    y = compute(ops.Pool2d, {"y": (1, 1, 2, 2)}, x=x, window=window, kind="max")["y"]
    check(y, [[[[-5, -2], [-4, -1]]]])


def test_max_pool_ties_go_to_the_first_in_row_major_order():
    window = Window((2, 2), (2, 2))
    x = [[[[0.0, 0.0, 1.0, 2.0], [0.0, 0.0, 2.0, 2.0]]]]
    y = [[[[0.0, 2.0]]]]
    fields = {"x": x, "y": y, "dy": [[[[3.0, 4.0]]]], "window": window, "kind": "max"}
    dx = compute(ops.Pool2dBackward, {"dx": (1, 1, 2, 4)}, **fields)["dx"]
    check(dx, [[[[3, 0, 0, 4], [0, 0, 0, 0]]]])


def test_average_pool_divides_by_the_pixels_inside_the_picture():
    window = Window((2, 2), (2, 2), (1, 0, 0, 1))
    y = compute(ops.Pool2d, {"y": (1, 1, 2, 2)}, x=NINE, window=window, kind="avg")["y"]
    check(y, [[[[1.5, 3], [6, 7.5]]]])
    dy = [[[[2.0, 3.0], [8.0, 10.0]]]]
    dx = compute(ops.Pool2dBackward, {"dx": (1, 1, 3, 3)}, dy=dy, window=window, kind="avg")["dx"]
    check(dx, [[[[1, 1, 3], [2, 2, 5], [2, 2, 5]]]])


# (kind, alpha, x, f(x), f'(x)), from the formulas with another library of functions
ACTIVATED = tuples(__file__, "activated")


@pytest.mark.parametrize(("kind", "alpha", "x", "y", "slope"), ACTIVATED)
def test_activation(kind, alpha, x, y, slope):
    got = compute(ops.Activation, {"y": (1, 1)}, x=[[x]], kind=kind, alpha=alpha)["y"]
    check(got, [[y]])
    value = x if kind in ("softplus", "silu", "gelu", "gelu_tanh") else y
    fields = {"value": [[value]], "dy": [[3.0]], "kind": kind, "alpha": alpha}
    check(compute(ops.ActivationBackward, {"dx": (1, 1)}, **fields)["dx"], [[3 * slope]])


def test_erf():
    x = np.concatenate([np.linspace(-7, 7, 20001), [0.46875, -0.46875, 1e-300, 40.0, -np.inf]])
    want = np.array([math.erf(value) for value in x])
    assert np.abs(erf(x) - want).max() < 4e-16
    single = x.astype(np.float32)
    want = np.array([math.erf(value) for value in single.astype(np.float64)])
    assert erf(single).dtype == np.float32
    assert np.abs(erf(single) - want).max() < 1e-7
    assert np.isnan(erf(np.array([np.nan])))[0]


def test_reshape_keeps_row_major_order():
    y = compute(ops.Reshape, {"y": (1, 4)}, x=[[[[1.0, 2.0]], [[3.0, 4.0]]]])["y"]
    check(y, [[1, 2, 3, 4]])


def test_softmax():
    x = [[0.0, math.log(3.0)], [1000.0, 1000.0]]
    y = compute(ops.Softmax, {"y": (2, 2)}, x=x)["y"]
    check(y, [[0.25, 0.75], [0.5, 0.5]])
    fields = {"y": y.tolist(), "dy": [[1.0, 0.0], [2.0, 4.0]]}
    dx = compute(ops.SoftmaxBackward, {"dx": (2, 2)}, **fields)["dx"]
    check(dx, [[0.1875, -0.1875], [-0.5, 0.5]])

"""Dense and convolution, checked by hand."""

from __future__ import annotations

from dnnstack.graph import ops
from dnnstack.graph.geometry import Window

from ...support.by_hand import NINE, check, compute


def test_matmul():
    a, b = [[1.0, 2.0], [3.0, 4.0]], [[5.0, 6.0], [7.0, 8.0]]
    shape = {"c": (2, 2)}
    check(compute(ops.MatMul, shape, a=a, b=b)["c"], [[19, 22], [43, 50]])
    check(compute(ops.MatMul, shape, a=a, b=b, transpose_a=True)["c"], [[26, 30], [38, 44]])
    check(compute(ops.MatMul, shape, a=a, b=b, transpose_b=True)["c"], [[17, 23], [39, 53]])
    fused = compute(ops.MatMul, shape, a=a, b=b, bias=[-20.0, 1.0], activation="relu")
    check(fused["c"], [[0, 23], [23, 51]])
    two = compute(ops.MatMul, {"c": (2, 2), "bias_grad": (2,)}, a=a, b=b, transpose_a=True)
    check(two["bias_grad"], [4, 6])


def test_bias():
    x = [[[[1.0, 2.0]], [[3.0, 4.0]]], [[[5.0, 6.0]], [[7.0, 8.0]]]]
    added = compute(ops.BiasAdd, {"y": (2, 2, 1, 2)}, x=x, b=[10.0, 20.0])["y"]
    check(added, [[[[11, 12]], [[23, 24]]], [[[15, 16]], [[27, 28]]]])
    check(compute(ops.BiasGrad, {"db": (2,)}, dy=x)["db"], [14, 22])
    check(compute(ops.BiasGrad, {"db": (2,)}, dy=[[1.0, 2.0], [3.0, 5.0]])["db"], [4, 7])


def test_convolution_is_cross_correlation():
    w = [[[[1.0, 10.0], [100.0, 1000.0]]]]
    y = compute(ops.Conv2d, {"y": (1, 1, 2, 2)}, x=NINE, w=w, window=Window((2, 2)))["y"]
    check(y, [[[[5421, 6532], [8754, 9865]]]])


def test_convolution_stride_and_padding_by_axis():
    """Two rows down, one column right; a row of zeros above, a column of zeros at the right."""
    window = Window((2, 2), (2, 1), (1, 0, 0, 1))
    w = [[[[1.0, 10.0], [100.0, 1000.0]]]]
    y = compute(ops.Conv2d, {"y": (1, 1, 2, 3)}, x=NINE, w=w, window=window)["y"]
    check(y, [[[[2100, 3200, 300], [8754, 9865, 906]]]])


def test_convolution_dilation():
    window = Window((2, 2), dilation=(2, 1))
    w = [[[[1.0, 10.0], [100.0, 1000.0]]]]
    y = compute(ops.Conv2d, {"y": (1, 1, 1, 2)}, x=NINE, w=w, window=window)["y"]
    check(y, [[[[8721, 9832]]]])


def test_convolution_groups_and_bias():
    """Two groups of one channel each, two filters a group."""
    x = [[[[1.0, 2.0]], [[3.0, 4.0]]]]
    w = [[[[1.0]]], [[[10.0]]], [[[100.0]]], [[[1000.0]]]]
    fields = {"x": x, "w": w, "window": Window((1, 1)), "groups": 2}
    y = compute(ops.Conv2d, {"y": (1, 4, 1, 2)}, bias=[0.0, 0.0, 5.0, -3500.0], **fields)["y"]
    check(y, [[[[1, 2]], [[10, 20]], [[305, 405]], [[-500, 500]]]])
    y = compute(
        ops.Conv2d, {"y": (1, 4, 1, 2)}, bias=[0.0, 0.0, 5.0, -3500.0], activation="relu", **fields
    )["y"]
    check(y, [[[[1, 2]], [[10, 20]], [[305, 405]], [[0, 500]]]])


def test_convolution_backward():
    w, dy = [[[[1.0, 10.0], [100.0, 1000.0]]]], [[[[1.0, 2.0], [3.0, 4.0]]]]
    window = Window((2, 2))
    dx = compute(ops.Conv2dBackwardData, {"dx": (1, 1, 3, 3)}, dy=dy, w=w, window=window)["dx"]
    check(dx, [[[[1, 12, 20], [103, 1234, 2040], [300, 3400, 4000]]]])
    both = compute(
        ops.Conv2dBackwardFilter,
        {"dw": (1, 1, 2, 2), "bias_grad": (1,)},
        x=NINE,
        dy=dy,
        window=window,
    )
    check(both["dw"], [[[[37, 47], [67, 77]]]])
    check(both["bias_grad"], [10])

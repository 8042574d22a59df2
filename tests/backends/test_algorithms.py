"""Every way to compute a convolution gives the sums of its formula, and tells its own costs."""

from __future__ import annotations

import numpy as np
import pytest
from dnnstack.backends.base import Array
from dnnstack.backends.reference.algorithms import ALGORITHMS
from dnnstack.common.errors import ShapeError
from dnnstack.graph.geometry import Window
from dnnstack.graph.ops import Conv2d
from dnnstack.layers.conv import Conv2dLayer
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from ..support.algorithms import THREE, convolution, summed
from ..support.nets import conv_options, pictures
from ..support.op_cases_windows import CONVOLUTIONS
from ..support.opened import opened

BY_NAME = {each.name: each for each in ALGORITHMS}


def check(op: Conv2d, x: Array, w: Array) -> set[str]:
    """Compare all algorithms with the formula; the names of those that refuse."""
    want = summed(op, x, w)
    for each in ALGORITHMS:
        if not each.refusal(op.window):
            for dtype, close in ((np.float64, 1e-12), (np.float32, 1e-4)):
                got = each.compute(op, x.astype(dtype), w.astype(dtype))
                assert got.dtype == dtype
                np.testing.assert_allclose(got, want, rtol=0, atol=close, err_msg=each.name)
    return {each.name for each in ALGORITHMS if each.refusal(op.window)}


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_geometries(name):
    g = CONVOLUTIONS[name]
    refused = check(*convolution(g.picture, g.window, g.filters, g.groups))
    assert refused == (set() if name in ("wide", "groups", "wide_groups") else {"winograd"})


@settings(max_examples=40)
@given(data=st.data())
def test_drawn_geometries(data):
    shape = data.draw(pictures)
    options = data.draw(conv_options(shape[0])) | {"algorithm": "auto", "connections": None}
    if data.draw(st.booleans()):
        options |= {"kernel_size": 3, "stride": 1, "dilation": 1}
    try:
        layer = Conv2dLayer("c", shape, **options)
    except ShapeError:
        assume(False)
    check(*convolution((2, *shape), layer.window, layer.filters, layer.groups))


@pytest.mark.parametrize(
    ("name", "flops", "elements"),
    [
        # 2 pictures of 4x6: 2 * 5 * 4 * 6 numbers of 3 * 9 products, each with its addition.
        ("direct", 2 * 240 * 27, 0),
        # A column of 27 for each of 2 * 24 places.
        ("im2col", 2 * 240 * 27, 27 * 48),
        # Planes of 6x8, 6 of x, 15 of w and 10 of y; half spectra of 6x5; 2 * 5 * 3 products.
        ("fft", round(2.5 * 48 * np.log2(48) * 31) + 8 * 30 * 30, 2 * 30 * 31),
        # 2 * 3 tiles a plane: 36 of x, 15 filters, 60 of y; 16 products of 3 channels each.
        ("winograd", 32 * 36 + 28 * 15 + 24 * 60 + 2 * 16 * 60 * 3, 16 * (36 + 15 + 60)),
    ],
)
def test_costs(name, flops, elements):
    op, *_ = convolution((2, 3, 4, 6), THREE, 5)
    assert (BY_NAME[name].flops(op), BY_NAME[name].elements(op)) == (flops, elements)


@pytest.mark.parametrize(
    "window", [Window((3, 2)), Window((3, 3), (1, 2)), Window((3, 3), dilation=(2, 1))]
)
def test_a_refusal_names_the_algorithm_and_the_window(window):
    refusal = "winograd takes a window of 3x3 with stride and dilation 1 alone, not "
    assert BY_NAME["winograd"].refusal(window) == refusal + str(window)


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)])
def test_every_engine_of_a_library_is_right(device):
    op, x, w = convolution((3, 16, 7, 6), THREE, 32)
    want, names = summed(op, x, w), list[str]()
    for engine in opened(device).engines(op, x.astype(np.float32), w.astype(np.float32)):
        np.testing.assert_allclose(engine.run(), want, atol=0.05, rtol=0, err_msg=engine.name)
        assert engine.flops in (None, op.flops())
        assert 0 < engine.seconds() < 60
        names.append(engine.name)
        if device == "cpu" and engine.name != "ref:any":
            assert len(engine.notes) == 3
            assert ("gemm" in engine.name) <= (engine.workspace > 0)
    assert len(names) > 3
    if device == "cpu":
        assert {"ref:any", "x64:gemm:jit"} <= set(names)
    else:
        assert {name.partition(" ")[2] for name in names} == {"nchw", "nhwc"}

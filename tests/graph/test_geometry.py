from __future__ import annotations

from math import ceil

import pytest
from dnnstack.common.errors import ShapeError
from dnnstack.graph.geometry import Window, fit_window
from hypothesis import assume, given
from hypothesis import strategies as st

from ..support.stored import cases

SIZE = st.integers(1, 20)
KERNEL = st.integers(1, 6)
STRIDE = st.integers(1, 5)
DILATION = st.integers(1, 3)
PADDING = st.integers(0, 4)


def starts(size: int, before: int, after: int, extent: int, stride: int) -> list[int]:
    """Where windows start, in pixels of the picture: one slides until it no longer fits."""
    found = []
    start = -before
    while start + extent <= size + after:
        found.append(start)
        start += stride
    return found


@given(SIZE, KERNEL, STRIDE, DILATION, PADDING, PADDING)
def test_output_counts_the_windows_that_fit(size, kernel, stride, dilation, before, after):
    window = Window((kernel, 1), (stride, 1), (before, after, 0, 0), (dilation, 1))
    extent = max(range(0, kernel * dilation, dilation)) + 1
    assert window.extent == (extent, 1)
    count = len(starts(size, before, after, extent, stride))
    assert max(window.output(size, 7)[0], 0) == count
    assert window.output(size, 7)[1] == 7


@given(SIZE, KERNEL, STRIDE, DILATION)
def test_valid_pads_nothing(size, kernel, stride, dilation):
    assume(dilation * (kernel - 1) + 1 <= size)
    window = fit_window((size, size + 1), kernel, stride, "valid", dilation)
    assert window == Window((kernel,) * 2, (stride,) * 2, (0, 0, 0, 0), (dilation,) * 2)


@given(SIZE, SIZE, KERNEL, STRIDE, DILATION)
def test_same_gives_the_size_over_the_stride(height, width, kernel, stride, dilation):
    """Keras's rule, with as little padding as will do and the odd pixel at the bottom and right."""
    window = fit_window((height, width), kernel, (stride, 1), "same", dilation)
    assert window.output(height, width) == (ceil(height / stride), width)
    top, bottom, left, right = window.padding
    assert bottom - top in (0, 1)
    assert right - left in (0, 1)
    if top + bottom:
        less = starts(height, top, bottom - 1, window.extent[0], stride)
        assert len(less) < ceil(height / stride)


@given(SIZE, KERNEL, STRIDE, PADDING)
def test_ceil_mode_is_pytorchs(size, kernel, stride, padding):
    """ATen's pooling_output_shape: round up, but drop a window that starts beyond the picture."""
    assume(2 * padding <= kernel <= size + 2 * padding)
    want = ceil((size + 2 * padding - kernel) / stride) + 1
    if (want - 1) * stride >= size + padding:
        want -= 1
    window = fit_window((size, size), kernel, stride, padding, 1, ceil_mode=True)
    assert window.output(size, size) == (want, want)
    assert window.padding[0] == window.padding[2] == padding
    last = (want - 1) * stride - padding
    assert last < size


@given(SIZE, KERNEL, STRIDE, PADDING, st.booleans())
def test_every_pooling_window_sees_the_picture(size, kernel, stride, padding, ceil_mode):
    assume(2 * padding <= kernel <= size + 2 * padding)
    window = fit_window((size, size), kernel, stride, padding, 1, ceil_mode)
    for start in starts(size, window.padding[0], window.padding[1], kernel, stride):
        assert start < size
        assert start + kernel > 0


@given(SIZE, KERNEL, STRIDE, PADDING)
def test_floor_mode_pads_both_ends_alike(size, kernel, stride, padding):
    assume(kernel <= size + 2 * padding)
    window = fit_window((size, size), kernel, stride, padding)
    assert window.padding == (padding,) * 4


def test_axes_are_height_then_width():
    window = fit_window((10, 20), (3, 5), (1, 2), (0, 2), (2, 1))
    assert window == Window((3, 5), (1, 2), (0, 0, 2, 2), (2, 1))
    assert window.extent == (5, 5)
    assert window.output(10, 20) == (6, 10)
    assert window.area == 15
    assert str(window) == "3x5 stride 1x2 padding 0,0,2,2 dilation 2x1"


def test_only_what_is_not_usual_is_said():
    assert str(Window((3, 2))) == "3x2"
    assert str(Window((3, 2), (2, 2))) == "3x2 stride 2x2"
    assert str(Window((3, 2), (1, 1), (0, 0, 0, 1))) == "3x2 padding 0,0,0,1"
    assert str(Window((3, 2), (1, 1), (0, 0, 0, 0), (1, 2))) == "3x2 dilation 1x2"
    assert Window((3, 2)).area == 6
    paddings = ((1, 1, 2, 2), (0, 1, 2, 2), (1, 1, 2, 1))
    uneven = [Window((1, 1), (1, 1), padding).is_lopsided for padding in paddings]
    assert uneven == [False, True, True]


@pytest.mark.parametrize(("arguments", "message"), cases(__file__, "windows_that_cannot_be"))
def test_windows_that_cannot_be(arguments, message):
    with pytest.raises(ShapeError, match=message):
        fit_window((4, 9), **arguments)

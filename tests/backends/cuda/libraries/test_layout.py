"""How tensors lie on the device: needs no GPU."""

from __future__ import annotations

import numpy as np
import pytest
from dnnstack.backends.cuda.binding.layouts import Geometry, plan_layouts
from dnnstack.backends.cuda.libraries.layout import BFLOAT, Layout, padded, plain
from hypothesis import given
from hypothesis import strategies as st

from ....support.specs import layers_of, network_of

SIZES = st.integers(1, 7)


def numbered(shape: tuple[int, ...]) -> np.ndarray:
    return np.arange(1, np.prod(shape) + 1, dtype=np.float32).reshape(shape)


@given(n=SIZES, c=SIZES, h=SIZES, w=SIZES, pad=st.sampled_from([1, 4, 8]), nhwc=st.booleans())
def test_pictures_come_back_and_padding_is_zero(n, c, h, w, pad, nhwc):
    layout = Layout((n, c, h, w), (n, padded(c, pad), h, w), nhwc)
    values = numbered(layout.shape)
    flat = layout.pack(values)
    assert flat.size == layout.size
    assert np.count_nonzero(flat) == values.size
    assert np.array_equal(layout.unpack(flat), values)
    if nhwc:
        stored = flat.reshape(n, h, w, padded(c, pad))
        assert np.array_equal(stored[..., :c], values.transpose(0, 2, 3, 1))


@given(n=SIZES, c=SIZES, h=SIZES, w=SIZES)
def test_rows_of_a_flattened_picture_keep_its_order(n, c, h, w):
    rows = Geometry({"layout": "nhwc", "pad": "8"}, dtype="float32").rows(
        (n, c * h * w), picture=(c, h, w)
    )
    values = numbered((n, c * h * w))
    flat = rows.pack(values)
    assert rows.stored[1] % 4 == 0
    pixels = flat.reshape(n, rows.stored[1])[:, : c * h * w].reshape(n, h, w, c)
    assert np.array_equal(pixels, values.reshape(n, c, h, w).transpose(0, 2, 3, 1))
    assert np.array_equal(rows.unpack(flat), values)


@given(n=SIZES, c=SIZES, h=SIZES, w=SIZES, kinds=st.tuples(st.integers(0, 3), st.integers(0, 3)))
def test_copies_between_layouts_keep_the_values(n, c, h, w, kinds):
    """As the kernel that converts copies: by the strides of both for the same sizes."""
    count = c * h * w
    rows, picture = (n, count), (c, h, w)
    made = (
        *(plain(rows), Layout(rows, (n, count + 3))),
        *(Layout(rows, rows, picture=picture), Layout(rows, (n, count + 2), picture=picture)),
    )
    source, target = (made[kind] for kind in kinds)
    values = numbered(rows)
    flat, out = source.pack(values), np.zeros(target.size, np.float32)
    sizes, go = target.among(source)
    same, come = source.among(target)
    assert sizes == same
    view = np.lib.stride_tricks.as_strided
    view(out, sizes, [4 * step for step in go])[...] = view(flat, sizes, [4 * s for s in come])
    assert np.array_equal(target.unpack(out), values)
    assert np.count_nonzero(out) == values.size


def test_bfloat16_rounds_to_the_nearest_even():
    layout = Layout((1, 6), (1, 6), dtype=BFLOAT)
    tie_down, tie_up = 1 + 2**-8, 1 + 3 * 2**-8
    values = np.array([[1.0, tie_down, tie_up, -3.0e38, np.inf, np.nan]], np.float32)
    back = layout.unpack(layout.pack(values))[0]
    assert back[0] == 1.0
    assert back[1] == 1.0
    assert back[2] == 1 + 2 * 2**-7
    assert back[3] == pytest.approx(-3.0e38, rel=2**-8)
    assert back[4] == np.inf
    assert np.isnan(back[5])


def test_layouts_are_the_same_where_the_bytes_are():
    assert Layout((2, 1, 3, 3), (2, 1, 3, 3), True).same(plain((2, 1, 3, 3)))
    assert Layout((2, 4, 1, 1), (2, 4, 1, 1), True).same(plain((2, 4, 1, 1)))
    assert not Layout((2, 4, 3, 3), (2, 4, 3, 3), True).same(plain((2, 4, 3, 3)))
    assert not Layout((2, 4), (2, 8)).same(plain((2, 4)))
    assert not Layout((2, 4), (2, 4), dtype=BFLOAT).same(plain((2, 4)))


def test_of_two_layouts_of_a_weight_the_first_is_taken():
    specs = layers_of("[flatten, dense: {units: 10}]")
    shapes = ((3, 4, 4), (48, 1, 1))
    first, second = (network_of(specs, shape).infer_graph(2) for shape in shapes)
    rules = Geometry({"layout": "nhwc", "pad": "8"}, "float32")
    for graphs, picture in (((first, second), shapes[0]), ((second, first), shapes[1])):
        layouts = plan_layouts(dict(zip("ab", graphs, strict=True)), rules)
        by_name = {tensor.name: layout for tensor, layout in layouts.items()}
        assert by_name["dense_1.weight"].picture == picture

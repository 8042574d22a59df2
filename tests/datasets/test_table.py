from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from dnnstack.common.errors import DatasetError
from dnnstack.datasets import describe, load
from hypothesis import given
from hypothesis import strategies as st

from ..support.stored import cases

NAND = {"inputs": ((0, 0), (0, 1), (1, 0), (1, 1)), "targets": (1, 1, 1, 0)}
ROOT = Path("nowhere")


def values(inputs: tuple[tuple[float, ...], ...]) -> np.ndarray:
    """What the bytes of a table stand for, in float32 as a backend computes it."""
    options = {"inputs": inputs, "targets": (0,) * len(inputs)}
    info = describe("table", options=options)
    images = load("table", "train", root=ROOT, options=options).images
    assert info.scale is not None
    assert info.shift is not None
    scale, shift = (np.array(v, np.float32)[:, None, None] for v in (info.scale, info.shift))
    return (images.astype(np.float32) * scale + shift)[:, :, 0, 0]


def test_a_truth_table_is_taken_as_it_is():
    info = describe("table", options=NAND)
    assert (info.shape, info.classes) == ((2, 1, 1), ("0", "1"))
    assert (info.train_count, info.test_count) == (4, 4)
    np.testing.assert_array_equal(values(NAND["inputs"]), NAND["inputs"])
    for split in ("train", "test"):
        data = load("table", split, root=ROOT, options=NAND)
        assert data.name == f"table/{split}"
        assert data.sources == ("row 1: 0, 0", "row 2: 0, 1", "row 3: 1, 0", "row 4: 1, 1")
        np.testing.assert_array_equal(data.images[:, :, 0, 0], NAND["inputs"])
        np.testing.assert_array_equal(data.labels, NAND["targets"])
        assert (data.images.dtype, data.labels.dtype) == (np.uint8, np.int32)


@pytest.mark.parametrize("column", cases(__file__, "values_on_a_grid_come_back_exactly"))
def test_values_on_a_grid_come_back_exactly(column):
    rows = tuple((value, 3) for value in column)
    np.testing.assert_array_equal(values(rows), np.array(rows, np.float32))


@given(
    st.integers(-1000, 1000),
    st.integers(1, 1000),
    st.integers(0, 4),
    st.lists(st.integers(0, 255), min_size=1, max_size=20),
)
def test_decimal_steps_come_back_to_float32(low, step, digits, steps):
    unit = Fraction(1, 10**digits)
    column = [float((low + step * each) * unit) for each in steps]
    found = values(tuple((value,) for value in column))[:, 0]
    largest = max(map(abs, column))
    np.testing.assert_allclose(found, column, rtol=0, atol=2.5e-7 * (largest + step * 255 * unit))


@pytest.mark.parametrize(("column", "floats"), cases(__file__, "on_no_grid"))
def test_what_bytes_cannot_keep_exactly_is_kept_as_float32(column, floats):
    options = {"inputs": tuple((1, value) for value in column), "targets": (0,) * len(column)}
    info, data = (
        describe("table", options=options),
        load("table", "test", root=ROOT, options=options),
    )
    assert info.floats == floats
    assert data.images.dtype == (np.float32 if floats else np.uint8)
    assert (info.scale is None) == floats
    if floats:
        np.testing.assert_array_equal(data.images[:, 1, 0, 0], np.array(column, np.float32))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "needs inputs and targets"),
        ({"targets": (1, 1)}, "needs inputs and targets"),
        ({**NAND, "targets": (0, 1, -1, 0)}, "a sample has the label -1, but there are 2 classes"),
        ({**NAND, "classes": ("no",)}, "a sample has the label 1, but there are 1 classes"),
    ],
)
def test_a_table_that_is_none_is_refused(options, message):
    with pytest.raises(DatasetError, match=message):
        describe("table", options=options)


def test_classes_can_have_names():
    info = describe("table", options={**NAND, "classes": ("false", "true", "perhaps")})
    assert info.classes == ("false", "true", "perhaps")
    three = describe("table", options={**NAND, "targets": (0, 3, 1, 0)})
    assert three.classes == ("0", "1", "2", "3")

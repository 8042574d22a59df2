"""The steps by which ink is found on a photograph, each against a slow or exact way."""

from __future__ import annotations

import numpy as np
import pytest
from dnnstack.datasets import photo
from dnnstack.datasets.photo import find_sheet

Plane = np.ndarray


@pytest.fixture
def plane():
    return np.random.default_rng(4).uniform(0, 255, (7, 10)).astype(np.float32)


@pytest.mark.parametrize("radius", [1, 2, 9])
def test_means_of_squares(plane, radius):
    padded, side = np.pad(plane.astype(float), radius), 2 * radius + 1
    expected = [
        [padded[y : y + side, x : x + side].sum() / side**2 for x in range(10)] for y in range(7)
    ]
    np.testing.assert_allclose(photo._box_mean(plane, radius), expected, rtol=1e-5)
    if radius == 1:
        np.testing.assert_allclose(photo._mean3(plane), expected, rtol=1e-5)


@pytest.mark.parametrize("degree", [2, 3])
def test_a_surface_is_fitted_in_spite_of_strokes(degree):
    y, x = np.mgrid[0:30, 0:47]
    y, x = (y + 0.5) / 30 - 0.5, (x + 0.5) / 47 - 0.5
    page = 150 + 40 * x - 60 * y * x + 30 * y**degree - 20 * x**degree
    written = page.copy()
    written[10:14, 8:30] -= 90
    known = np.ones((30, 47), bool)
    known[20:, 40:] = False
    written[~known] = 0.0
    fit = photo._fit(written.astype(np.float32), known, degree)
    assert fit.shape == (degree + 1, degree + 1)
    np.testing.assert_allclose(photo._surface(fit, (30, 47)), page, atol=0.01)
    larger = photo._surface(fit, (90, 141))
    np.testing.assert_allclose(larger[1::3, 1::3], page, atol=0.01)
    # Of high powers there are none.
    assert all(fit[i, j] == 0 for i in range(degree + 1) for j in range(degree + 1 - i, degree + 1))


def test_a_surface_of_too_few_values_is_small_where_nothing_is_known():
    known = np.zeros((8, 8), bool)
    known[2, 3] = True
    fit = photo._fit(np.full((8, 8), 50, np.float32), known, 3)
    assert photo._surface(fit, (8, 8))[2, 3] == pytest.approx(50, rel=1e-4)


def test_resizing_takes_means_to_smaller_sizes_alone(plane):
    halves = plane[:6].reshape(3, 2, 5, 2).mean((1, 3))
    np.testing.assert_allclose(photo._resized(plane[:6], (3, 5)), halves, rtol=1e-5)
    # One side becomes smaller, the other stays.
    for size in ((6, 5), (3, 10)):
        parts = plane[:6].reshape(size[0], 6 // size[0], size[1], 10 // size[1]).mean((1, 3))
        np.testing.assert_allclose(photo._resized(plane[:6], size), parts, rtol=1e-5)
    np.testing.assert_array_equal(photo._resized(plane, plane.shape), plane)
    higher = photo._resized(plane, (14, 10))
    np.testing.assert_allclose(higher[1], 0.75 * plane[0] + 0.25 * plane[1], rtol=1e-5)
    wider = photo._resized(plane, (7, 20))
    np.testing.assert_allclose(wider[:, 1], 0.75 * plane[:, 0] + 0.25 * plane[:, 1], rtol=1e-5)
    doubled = photo._resized(plane, (14, 20))
    assert doubled[2, 1] == pytest.approx(
        0.75 * (0.75 * plane[1, 0] + 0.25 * plane[1, 1])
        + 0.25 * (0.75 * plane[0, 0] + 0.25 * plane[0, 1])
    )


def page(height: int, width: int) -> Plane:
    """Grey paper, darker to one side, with the grain of a camera; numbers of NumPy alone."""
    y, x = np.mgrid[0:height, 0:width]
    shade = 200 - 60 * x / width - 20 * (y / height) ** 2
    return shade + np.random.default_rng(9).normal(0, 3, (height, width))


def on_a_table(table: float, sheets: list[tuple[slice, slice]], side: int = 200) -> np.ndarray:
    found = table + np.random.default_rng(3).normal(0, 3, (side, side))
    for place in sheets:
        found[place] = page(side, side)[place]
    return np.clip(found, 0, 255).astype(np.uint8)


@pytest.mark.parametrize("table", [30, 250])
@pytest.mark.parametrize("side", [200, 60])
def test_a_sheet_without_its_rim(table, side):
    rows, columns = slice(side // 5, 4 * side // 5), slice(side // 4, 9 * side // 10)
    found = find_sheet(on_a_table(table, [(rows, columns)], side))
    assert found is not None
    for place, whole in zip(found, (rows, columns), strict=True):
        rim = 0.09 * (whole.stop - whole.start)
        cell = max(side / 64, 1)
        assert abs(place.start - (whole.start + rim)) <= 1.5 * cell
        assert abs(place.stop - (whole.stop - rim)) <= 1.5 * cell


@pytest.mark.parametrize(
    ("rows", "more"),
    [
        # An eighth of the picture is too little.
        (slice(75, 125), []),
        # Of a rectangle around both less than two thirds is paper.
        (slice(20, 60), [(slice(20, 180), slice(50, 90))]),
        (slice(0, 0), []),
    ],
)
def test_what_is_no_sheet(rows, more):
    columns = slice(50, 150)
    assert find_sheet(on_a_table(30, [(rows, columns), *more])) is None

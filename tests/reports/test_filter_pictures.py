"""Drawings of filters, feature maps and heat, pixel by pixel."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dnnstack.backends.reference.backend import ReferenceBackend
from dnnstack.common.errors import UsageError
from dnnstack.reports import contact_sheet, filter_pictures
from dnnstack.reports.contact_sheet import check_png, write_png
from dnnstack.reports.filter_pictures import boxed, feature_maps, filters, heated, signed

from ..support.untrained import untrained

CONSTANT = "kernel_initializer: {constant: {value: %s}}"


@pytest.fixture
def sheets(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[tuple[str, Any]]]:
    """The rows of all sheets that are drawn, by their titles."""
    found: dict[str, list[tuple[str, Any]]] = {}
    monkeypatch.setattr(
        filter_pictures.contact_sheet, "draw_sheet", lambda title, rows: found.update({title: rows})
    )
    return found


@pytest.mark.parametrize(
    ("layers", "shape", "name", "first"),
    [
        ("[conv2d: {filters: 2, kernel_size: [1, 2], %s}, flatten, dense: {units: 3}]"
         % (CONSTANT % "[[1, -0.5]]"), (3, 4, 5), "conv2d_1.weight: 2 of 1x2", [[[255, 64]]] * 3),
        ("[conv2d: {filters: 2, kernel_size: 1, connections: [[0], [0, 1]], %s}, flatten, "
         "dense: {units: 3}]" % (CONSTANT % "-2"), (2, 4, 5), "conv2d_1.weight: 3 of 1x1", [[[0]]]),
        ("[flatten, dense: {units: 3, %s}]" % (CONSTANT % "[0, 1, 2, -2]"), (1, 2, 2),
         "dense_1.weight: 3 of 2x2", [[[128, 191], [255, 0]]]),
        ("[avg_pool2d: {pool_size: [1, 2]}, flatten, dense: {units: 3, %s}]"
         % (CONSTANT % "[0, 1]"), (1, 2, 2), "dense_1.weight: 3 of 1x2", [[[128, 255]]]),
    ],
)  # fmt: skip
def test_filters(
    sheets: Any, layers: str, shape: tuple[int, int, int], name: str, first: Any
) -> None:
    """Each is scaled to its largest weight; of a dense layer it has the shape of the picture."""
    filters(untrained(layers, shape, 3))
    [(title, [(said, pictures)])] = sheets.items()
    assert title == "filters of drawn.safetensors"
    assert said == name
    np.testing.assert_array_equal(pictures[0], first)


def test_a_network_without_filters() -> None:
    trained = untrained("[flatten, dense: {units: 3}]", (1, 2, 2), 3)
    trained.network.layers = ()
    with pytest.raises(UsageError, match="safetensors: no layer has filters"):
        filters(trained)


def test_feature_maps(sheets: Any) -> None:
    layers = (
        "[dropout, conv2d: {filters: 40, kernel_size: 1, %s}, relu, flatten, dense: {units: 20}, "
        "dense: {units: 3}]" % (CONSTANT % "[[[1]], %s[[-1]]]" % ("[[1]], " * 38))
    )
    trained = untrained(layers, (1, 2, 2), 3)
    trained.checkpoint.arrays["conv2d_1.bias"][:] = 0
    scaling = trained.checkpoint.provenance.preprocessing
    picture = np.array([[[0, 255], [128, 60]]], np.uint8)
    feature_maps(trained, ReferenceBackend(1), picture, "a\n.png")
    [(title, rows)] = sheets.items()
    assert title == "a\\n.png in drawn.safetensors"
    x = scaling(picture)
    names = ["input", "conv2d_1: 40x2x2", "relu_1: 40x2x2", "dense_1: 20", "dense_2: 3"]
    assert [name.partition(",")[0] for name, _ in rows] == [*names, "probabilities: 3"]
    most = float(abs(x).max())
    assert rows[1][0].endswith(f", {-most:.3g} to {most:.3g}")
    assert [len(maps) for _, maps in rows] == [1, 32, 32, 1, 3, 3]
    assert all(maps.shape[1:] == (1, 64, 64) for _, maps in rows)
    # Below 0 there is something, so that 0 is grey; after relu it is black, and the largest white.
    np.testing.assert_array_equal(rows[1][1][0, 0, ::32, ::32], signed(x[0], most))
    # The largest is of the last map, which is negated.
    relu = np.maximum(x[0], 0)
    np.testing.assert_allclose(rows[2][1][0, 0, ::32, ::32], relu * 255 / most, atol=1)
    # 20 units fill 5 x 4; 64 pixels have room for squares of 12, in the middle.
    grid = rows[3][1][0, 0]
    assert (grid[:8] == 255).all()
    assert (grid[8:20, 2:14] == grid[8, 2]).all()


def test_heat_is_red_within_a_line() -> None:
    picture, heat = np.zeros((1, 28, 14), np.uint8), np.zeros((4, 2))
    heat[0, 0] = 3.0
    before, found = heated(picture, heat)
    assert before.shape == found.shape == (3, 224, 112)
    assert not before.any()
    assert found[:, 20, 20].tolist() == [200, 40, 40]
    assert found[:, 200, 100].tolist() == [140] * 3
    line = (found == 0).all(0)
    assert line.any()
    # Half of the heat ends where the bilinear weights of the two places are equal.
    assert 54 <= max(np.flatnonzero(line.any(1))) <= 56
    nothing = heated(np.full((3, 7, 7), 100, np.uint8), np.zeros((7, 7)))[1]
    assert (nothing == 180).all()


@pytest.mark.parametrize(
    ("shape", "zoomed", "top", "left"),
    [((20, 10), 3, 2, 17), ((64, 64), 1, 0, 0), ((5, 64), 1, 29, 0)],
)
def test_boxed(shape: tuple[int, int], zoomed: int, top: int, left: int) -> None:
    picture = np.random.default_rng(0).integers(0, 255, (2, *shape), np.uint8)
    found = boxed(picture, 64)
    high, wide = (zoomed * side for side in shape)
    inner = found[:, top : top + high, left : left + wide]
    np.testing.assert_array_equal(inner, picture.repeat(zoomed, 1).repeat(zoomed, 2))
    assert (found == 255).sum() == found.size - inner.size
    assert boxed(np.full((1, 100, 30), 9, np.uint8), 64)[0].tolist().count([255] * 64) == 14


def test_files_of_every_form(tmp_path: Path) -> None:
    drawing = contact_sheet.draw_sheet("title", [("row", np.zeros((2, 3, 60, 60), np.uint8))])
    # As wide as the longest row.
    assert drawing.width < 250
    begins = {"a.png": b"\x89PNG", "a.PDF": b"%PDF", "a.svg": b"<svg "}
    for name, head in begins.items():
        check_png(tmp_path / name, (".svg", ".pdf"))
        for _ in range(2):
            write_png(drawing, tmp_path / name)
            assert (tmp_path / name).read_bytes().startswith(head)
    assert b"CreationDate" not in (tmp_path / "a.PDF").read_bytes()
    text = (tmp_path / "a.svg").read_text()
    assert f'width="{drawing.width}" height="{drawing.height}"' in text
    assert 'href="data:image/png;base64,iVBOR' in text
    with pytest.raises(UsageError, match=r"is a PNG, SVG or PDF; .* in \.png, \.svg or \.pdf"):
        check_png(tmp_path / "a.jpg", (".svg", ".pdf"))

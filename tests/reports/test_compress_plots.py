"""The pictures of a compression: which weights are left, and what values they share."""

from __future__ import annotations

import numpy as np
from dnnstack.reports import style
from dnnstack.reports.compress_plots import draw_plots, mask_picture, weights_figure


def test_a_pixel_is_a_weight_or_the_mean_over_a_square():
    values = np.zeros((500, 600), np.float32)
    values[7, 11] = -0.5
    picture = mask_picture("a", values)
    dark = np.argwhere((np.asarray(picture) == style.BLUE).all(-1))
    assert len(dark) == 1
    grey = (np.asarray(picture) == style.GREY).all(-1)
    top, left = int(grey.sum(1).argmax()), int(grey.sum(0).argmax())
    assert (dark[0] - (top + 1, left + 1)).tolist() == [7, 11]
    # Too large for a pixel each: the square of the first two is not the darkest.
    values = np.zeros((3, 2001), np.float32)
    values[0, 0] = values[2, 2000] = 1
    pixels = np.asarray(mask_picture("b", values))
    assert pixels.shape[1] < 1200
    row = pixels[(pixels == style.BLUE).all(-1).any(1)]
    assert len(row) == 1
    assert (row[0] == style.BLUE).all(-1).sum() == 1


def test_what_has_no_zeros_has_no_mask(tmp_path):
    values = {"a": np.ones((3, 4), np.float32), "b": np.ones(4, np.float32)}
    assert [path.name for path in draw_plots(values, values, tmp_path)] == ["weights.png"]
    assert draw_plots({}, values, tmp_path) == []


def test_no_word_lies_on_a_bar():
    even = np.random.default_rng(5).uniform(-1, 1, (100, 300)).astype(np.float32)
    shared = np.rint(even * 9) / np.float32(9)
    names = ("a", "b" * 60)
    figure = weights_figure(dict.fromkeys(names, (even, shared)))
    figure.draw_without_rendering()
    (legend,) = figure.legends
    for axes in figure.axes:
        inside = axes.get_window_extent()
        words = [*axes.texts, axes.title, axes._left_title, axes._right_title, legend]
        places = [each.get_window_extent() for each in words if each is legend or each.get_text()]
        assert len(places) == 4
        for number, place in enumerate(places):
            assert not any(each.get_window_extent().overlaps(place) for each in figure.axes)
            assert not any(place.overlaps(other) for other in places[:number])
            assert place.x1 <= figure.bbox.x1
        assert inside.height > 50

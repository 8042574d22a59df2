"""The pictures of a compression: which weights are left, and what values they share."""

from __future__ import annotations

import numpy as np
from dnnstack.reports.compress_plots import draw_plots


def test_what_has_no_zeros_has_no_mask(tmp_path):
    values = {"a": np.ones((3, 4), np.float32), "b": np.ones(4, np.float32)}
    assert [path.name for path in draw_plots(values, values, tmp_path)] == ["weights.png"]
    assert draw_plots({}, values, tmp_path) == []

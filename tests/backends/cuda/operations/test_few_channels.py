"""Pictures of fewer channels than padding begins at, which batch norm stores in fours."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from dnnstack.backends.cuda.binding.layouts import Geometry
from dnnstack.backends.cuda.libraries.layout import Layout
from dnnstack.backends.cuda.operations.pool import indexed
from dnnstack.graph.geometry import Window
from dnnstack.graph.graph import Tensor
from dnnstack.graph.ops import Pool2d


@pytest.mark.parametrize(("batch", "expected"), [(1 << 19, True), (1 << 20, False)])
def test_pictures_of_more_fours_than_an_index_counts_are_pooled_otherwise(batch, expected):
    """81 pixels of 16 fours each leave a picture of 64."""
    shapes = {"x": (batch, 33, 8, 8), "y": (batch, 33, 9, 9)}
    ends = {name: Tensor(name, size, "float32", "activation") for name, size in shapes.items()}
    op = Pool2d(**ends, window=Window((2, 2), (1, 1), (1, 1, 1, 1)), kind="max")
    binder = SimpleNamespace(
        arithmetic=SimpleNamespace(fusion=True),
        geometry=Geometry({"layout": "nhwc", "pad": "64"}, "bfloat16"),
    )
    layout = Layout(op.x.shape, (batch, 64, 8, 8), True)
    assert indexed(binder, op, layout) is expected

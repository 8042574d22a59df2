"""What evaluation sees of a picture, on one without any symmetry."""

from __future__ import annotations

import numpy as np
import pytest
from dnnstack.backends.base import Options
from dnnstack.graph.graph import Graph
from dnnstack.training.augmentation import TEST_TIME

from ...support.stored import cases

PICTURE = [[1, 2, 3, 4], [5, 6, 7, 8], [9, 10, 11, 12]]

# Windows of the picture padded by reflection, at its first and at its last corner, and the mirror
# image of each: airbench94's views (Jordan 2024), written out.
#
#      6  5  6  7  8  7
#      2  1  2  3  4  3
#      6  5  6  7  8  7
#     10  9 10 11 12 11
#      6  5  6  7  8  7
VIEWS = cases(__file__, "views")


@pytest.mark.parametrize("tta", VIEWS)
def test_a_picture_is_moved_first_and_mirrored_then(backend, tta):
    graph = Graph("infer", 2)
    x = graph.tensor("x", (2, 1, 3, 4), role="input")
    y = TEST_TIME[tta].spread(graph, x)
    graph.results["views"] = y
    executable = backend.compile({"infer": graph}, Options(tune=False))
    pictures = np.array([PICTURE, PICTURE], np.float32)[:, None]
    pictures[1] += 100
    executable.write(x, pictures)
    executable.run("infer")
    found = executable.read(y)
    executable.close()
    want = np.array([[view, np.add(view, 100)] for view in VIEWS[tta]], np.float32)
    np.testing.assert_array_equal(found, want.reshape(-1, 1, 3, 4))

"""Activations that NumPy computes on oneDNN's memories."""

from __future__ import annotations

import numpy as np
from dnnstack.backends.onednn.backend import OneDnnBackend
from dnnstack.backends.onednn.executable import OneDnnExecutable
from dnnstack.backends.tuning import Tuning
from dnnstack.graph.geometry import Window
from dnnstack.graph.graph import Graph
from dnnstack.graph.ops import Conv2d


def test_softplus_leaves_the_channels_that_fill_up_a_block_at_zero(onednn: OneDnnBackend) -> None:
    """A filter gradient would carry what lies there into the padding of the weights."""
    graph = Graph("one", 1)
    x = graph.tensor("x", (2, 16, 3, 3), role="input")
    w = graph.tensor("w", (20, 16, 1, 1), role="parameter")
    y = graph.tensor("y", (2, 20, 3, 3))
    graph.add(Conv2d(x=x, w=w, y=y, window=Window((1, 1)), activation="softplus"))
    graph.results["y"] = y
    executable = OneDnnExecutable({"one": graph}, Tuning("onednn", choices={"": "nChw16c"}), 1)
    executable.write(x, np.ones(x.shape, np.float32))
    executable.write(w, np.ones(w.shape, np.float32))
    executable.run("one")
    blocks = executable._held(y).array((2, 2, 9, 16))
    np.testing.assert_allclose(blocks[:, 0], 16.0, rtol=1e-6)
    np.testing.assert_array_equal(blocks[:, 1, :, 4:], 0.0)
    executable.close()

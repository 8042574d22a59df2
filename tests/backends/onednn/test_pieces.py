"""Convolutions made in pieces of the batch, each before batch norm reads it."""

from __future__ import annotations

import numpy as np
import pytest
from dnnstack.backends.base import Array, BoundCall
from dnnstack.backends.onednn.convolution import candidate_layouts
from dnnstack.backends.onednn.executable import OneDnnExecutable
from dnnstack.backends.tuning import Tuning
from dnnstack.graph.geometry import Window
from dnnstack.graph.graph import Graph
from dnnstack.graph.ops import BatchNorm, Conv2d

# 256 KiB a sample, both before the convolution and behind it.
SHAPE = (12, 16, 64, 64)
WINDOW = Window((3, 3), padding=(1, 1, 1, 1))


def convolved(
    shape: tuple[int, ...],
    layout: str = "",
    threads: int = 1,
    norm: bool = True,
    between: bool = False,
    activation: str | None = None,
) -> tuple[Array, list[BoundCall]]:
    """What a convolution makes of noise, with batch norm behind it or not; and its calls.

    ``between``: with another one between the two.
    """
    graph, c = Graph("one", shape[0]), shape[1]
    x = graph.tensor("x", shape, role="input")
    w = graph.tensor("w", (c, c, 3, 3), role="parameter")
    bias = graph.tensor("bias", (c,), role="parameter")
    running = [graph.tensor(name, (c,), role="state") for name in ("running_mean", "running_var")]
    y, normal = graph.tensor("y", shape), graph.tensor("normal", shape)
    mean, inverse_std = graph.tensor("mean", (c,)), graph.tensor("inverse_std", (c,))
    graph.add(Conv2d(x=x, w=w, y=y, bias=bias, window=WINDOW, activation=activation))
    graph.results["y"] = y
    if between:
        graph.results["other"] = graph.tensor("other", shape)
        graph.add(Conv2d(x=x, w=w, y=graph["other"], window=WINDOW))
    if norm:
        found = {"mean": mean, "inverse_std": inverse_std}
        moved = {"running_mean": running[0], "running_var": running[1]}
        graph.add(BatchNorm(x=y, y=normal, **found, **moved, eps=1e-3, momentum=0.1))
        graph.results["normal"] = normal
    choices = {"": layout or candidate_layouts()[0]}
    executable = OneDnnExecutable({"one": graph}, Tuning("onednn", choices=choices), threads)
    draw = np.random.default_rng(4)
    for tensor in (x, w, bias):
        executable.write(tensor, draw.standard_normal(tensor.shape).astype(np.float32))
    executable.poison()
    executable.run("one")
    result = executable.read(y)
    made = [call for call in executable.calls("one") if isinstance(call.op, Conv2d)]
    executable.close()
    return result, [call for call in made if call.function == "dnnl_convolution_forward"]


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("at", [0, 1], ids=["blocks", "last"])
@pytest.mark.parametrize("activation", [None, "relu"])
def test_every_sample_gets_the_same_bits_in_pieces(onednn, activation, at, threads):
    layout = candidate_layouts()[at]
    whole, calls = convolved(SHAPE, layout, threads, norm=False, activation=activation)
    assert len(calls) == 1
    pieces, made = convolved(SHAPE, layout, threads, activation=activation)
    assert len(made) == (6 if layout == "nhwc" else 6 // threads)
    assert {call.arguments["window"] for call in made} == {calls[0].arguments["window"]}
    np.testing.assert_array_equal(pieces, whole)

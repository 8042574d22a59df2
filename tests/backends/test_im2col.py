"""Convolution by im2col and a matrix product: the same numbers, gradients and parameters."""

from __future__ import annotations

import numpy as np
import pytest
from dnnstack.backends.base import Array, Backend, Options
from dnnstack.backends.reference.backend import ReferenceBackend
from dnnstack.common.errors import ShapeError
from dnnstack.graph.graph import Graph
from dnnstack.graph.ops import Col2im, Conv2d, Im2col, MatMul
from dnnstack.layers.conv import Conv2dLayer
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from ..support.nets import conv_options, pictures
from ..support.opened import opened


def computed(
    layer: Conv2dLayer, backend: Backend, precision: str, fusion: bool = True
) -> dict[str, Array]:
    """Output and gradients of a layer for values that follow from the shapes."""
    graph = Graph("one", 2)
    x = graph.tensor("x", (2, *layer.input_shape), "float32", "input")
    y = layer.forward(graph, x)
    dy = graph.tensor("dy", y.shape, "float32", "input")
    dx = layer.backward(graph, dy)
    tensors = [p.tensor for p in layer.parameters()]
    wanted = {"y": y, "dx": dx} | {t.name: graph.gradient(t) for t in tensors}
    graph.results.update(wanted)
    options = Options(precision, fusion=fusion, tune=False)  # type: ignore[arg-type]
    executable = backend.compile({"one": graph}, options)
    rng = np.random.default_rng(1)
    for tensor in (x, dy, *tensors):
        executable.write(tensor, rng.standard_normal(tensor.shape).astype(np.float32))
    executable.run("one")
    return {name: executable.read(tensor) for name, tensor in wanted.items()}


@settings(max_examples=40)
@given(data=st.data())
def test_equals_the_direct_convolution(data):
    shape = data.draw(pictures)
    options = data.draw(conv_options(shape[0]))
    assume(options["groups"] == 1)
    try:
        layers = {
            algorithm: Conv2dLayer("c", shape, **{**options, "algorithm": algorithm})
            for algorithm in ("auto", "im2col")
        }
    except ShapeError:
        assume(False)
        raise
    want = computed(layers["auto"], ReferenceBackend(1), "fp64")
    got = computed(layers["im2col"], ReferenceBackend(1), "fp64")
    for name, value in want.items():
        np.testing.assert_allclose(got[name], value, rtol=0, atol=1e-12, err_msg=name)


@pytest.mark.parametrize("fusion", [False, True])
@pytest.mark.parametrize("device", ["numpy", "cpu"])
def test_equals_the_library(device, fusion):
    options = {"filters": 18, "kernel_size": (3, 2), "stride": (2, 1), "padding": "same"}
    want = computed(Conv2dLayer("c", (17, 9, 8), **options), ReferenceBackend(1), "fp64")
    layer = Conv2dLayer("c", (17, 9, 8), algorithm="im2col", **options)
    got = computed(layer, opened(device), "fp32", fusion)
    for name, value in want.items():
        np.testing.assert_allclose(got[name], value, rtol=0, atol=2e-4, err_msg=name)


def test_what_it_becomes():
    """Unroll, multiply, turn the rows into pictures; parameters are those of any convolution."""
    layer = Conv2dLayer("c", (3, 8, 8), filters=4, kernel_size=3, algorithm="im2col")
    graph = Graph("one", 2)
    layer.forward(graph, graph.tensor("x", (2, 3, 8, 8), "float32", "input"))
    kinds = [type(op) for op in graph.ops]
    assert Conv2d not in kinds
    assert [kind for kind in kinds if kind in (Im2col, MatMul, Col2im)] == [Im2col, MatMul, Col2im]
    assert graph.ops[0].columns.shape == (2 * 6 * 6, 3 * 3 * 3)
    assert layer.weight.shape == (4, 3, 3, 3)


def test_groups_are_refused():
    with pytest.raises(ShapeError, match="algorithm: im2col cannot be combined with groups"):
        Conv2dLayer("c", (4, 8, 8), filters=4, kernel_size=3, groups=2, algorithm="im2col")

"""The file for NumPy: what it answers for every operation, and its text."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from dnnstack.exports import numpy_file, numpy_functions
from dnnstack.exports.numpy_file import Numpy
from dnnstack.exports.plain import Plain
from dnnstack.graph import ops
from dnnstack.graph.graph import Graph
from dnnstack.graph.ops import Quantization
from dnnstack.training.inference.trained import Trained
from hypothesis import given

from ..support.activation_points import POINTS, RIGHT
from ..support.exported import NETS, PACKAGED, compared, drawn, packaged
from ..support.random_nets import Training, trainings
from ..support.untrained import untrained

# Their weights would take most of the time.
SMALL = sorted({*PACKAGED} - {"cifar10-resnet9.yaml", "resnet18.yaml"})
END = ", flatten, {dense: {units: 3}}]"
# Corner cases with the operations that they are there for.
CASES: dict[str, tuple[str, set[type]]] = {
    "windows": (
        "[{conv2d: {filters: 4, kernel_size: [3, 2], padding: same, stride: [1, 2], groups: 2}}, "
        "{max_pool2d: {pool_size: 2, stride: 1, padding: same}}, prelu, "
        "{avg_pool2d: {pool_size: 2, stride: 1, padding: same}}, "
        "{avg_pool2d: {pool_size: 2, ceil_mode: true, padding: 1}}, "
        "{conv2d: {filters: 5, kernel_size: 2, dilation: 2, algorithm: im2col}}" + END,
        {ops.Conv2d, ops.Pool2d, ops.ChannelScale, ops.Add, ops.Scale, ops.Activation},
    ),
    "joined": (
        "[{residual: {body: [{conv2d: {filters: 5, kernel_size: 3, stride: 2, padding: 1}}], "
        "shortcut: padding}}, relu, {concat: {branches: [[], [lrn, tanh], [lcn]]}}, "
        "{pad2d: {padding: [1, 0], value: 0.5}}" + END,
        {ops.PadChannels, ops.Concat, ops.Lrn, ops.DivisiveNorm, ops.Pad2d},
    ),
    "norms": (
        "[batch_norm, "
        "{conv2d: {filters: 4, kernel_size: 3, connections: [[0], [1], [0, 1], [1]]}}, "
        "{batch_norm: {scale: false}}, relu, {batch_norm: {center: false}}, "
        "{scaled_subsampling: {pool_size: 2}}, flatten, "
        "{dense: {units: 5}}, batch_norm, {dense: {units: 3, use_bias: false}}]",
        {ops.BatchNormInference, ops.BiasAdd, ops.MatMul, ops.Reshape, ops.Softmax},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_every_operation_answers_as_the_reference_does(name, tmp_path):
    trained = untrained(CASES[name][0], (2, 9, 8), 3)
    assert CASES[name][1] <= {type(op) for op in Plain.of(trained).folded().ops}
    assert compared(Numpy(), trained, tmp_path).largest < 1e-5


def test_no_operation_is_left_out():
    written = set().union(*(found for _, found in CASES.values()))
    integers = {ops.Quantize, ops.QuantizedConv2d, ops.QuantizedMatMul}
    elsewhere = {ops.Heaviside, ops.Rbf, ops.Slice}
    assert written | integers | elsewhere == Numpy.ops


def _in_integers(layers: str, **inputs: Quantization) -> Trained:
    trained = untrained(layers, (2, 8, 8), 3)
    return Trained.of(replace(trained.checkpoint, quantization=inputs))


def test_integers_are_the_same_integers(tmp_path):
    trained = _in_integers(
        "[{conv2d: {filters: 4, kernel_size: 3, name: one}}, batch_norm, relu, max_pool2d, "
        "{conv2d: {filters: 6, kernel_size: 2, name: two}}, tanh, flatten, "
        "{dense: {units: 3, name: three}}]",
        one=Quantization(0.03, True),
        two=Quantization(0.02, False),
        three=Quantization(1 / 127, True),
    )
    plain = Plain.of(trained)
    kinds = [type(op) for op in plain.ops]
    assert {ops.Quantize, ops.QuantizedConv2d, ops.QuantizedMatMul} <= {*kinds}
    assert compared(Numpy(), trained, tmp_path, 100).largest < 1e-6


@NETS
@given(trainings())
def test_random_nets(tmp_path_factory, training: Training):
    found = compared(Numpy(), drawn(training), tmp_path_factory.mktemp("numpy"))
    assert (found.largest < 1e-4, found.other) == (True, 0), found


@pytest.mark.parametrize("name", SMALL)
def test_packaged_networks(name, tmp_path):
    found = compared(Numpy(), packaged(name), tmp_path, 2)
    assert (found.largest < 1e-4, found.other) == (True, 0), found
    text = (tmp_path / "net.py").read_text()
    assert ("\nimport math\n" in text) == ("math." in text)


@pytest.mark.parametrize("kind", RIGHT)
def test_activations_at_their_corners(kind):
    given = [0.3] if kind == "leaky_relu" else [0.7] * (kind == "elu")
    with np.errstate(invalid="ignore", under="ignore", over="ignore"):
        found = getattr(numpy_functions, kind)(POINTS, *given)
    # -inf times 0 is no number; the limit is 0.
    right = np.array(RIGHT[kind][0], np.float32)
    known = ~(np.isneginf(POINTS) & np.isnan(found))
    np.testing.assert_allclose(found[known], right[known], rtol=1e-6, atol=1e-45)
    assert found.dtype == np.float32


def test_gelu_is_that_of_the_error_function():
    from math import erf, sqrt

    x = np.linspace(-8, 8, 4001, dtype=np.float32)
    right = [v * (1 + erf(v / sqrt(2))) / 2 for v in x.tolist()]
    np.testing.assert_allclose(numpy_functions.gelu(x), right, rtol=1e-6, atol=5e-7)


def test_what_only_plugins_use(tmp_path):
    plain = Plain.of(untrained("[flatten, {dense: {units: 3}}]", (3, 1, 1), 3))
    graph = Graph("infer", 1)
    x = graph.tensor("x", plain.x.shape, "float32", "input")
    part = graph.add(ops.Slice(x=x, y=graph.tensor("part", (1, 2, 1, 1)), begin=1))
    flat = graph.add(ops.Reshape(x=part, y=graph.tensor("flat", (1, 2))))
    y = graph.add(ops.Softmax(x=flat, y=graph.tensor("y", (1, 2)), log=True))
    path = tmp_path / "net.py"
    made = replace(plain, graph=graph, x=x, y=y)
    path.write_bytes(Numpy().files(made)[""])
    raw = np.array([[[[7]], [[100]], [[200]]]], np.uint8)
    one, two = (raw * plain.scale[:, None, None] + plain.shift[:, None, None]).ravel()[1:]
    right = [-np.log1p(np.exp(two - one)), -np.log1p(np.exp(one - two))]
    twin: Any = Numpy().twin(path, made)
    np.testing.assert_allclose(twin.answers(raw)[0], right, rtol=1e-5)


def test_texts_are_quoted():
    for name in ("é😀", "a\0b", "a\nb", "\udc80", "'\"", "\\"):
        assert eval(numpy_file.quoted(name).encode()) == name
    assert numpy_file.quoted("é") == '"é"'
    assert numpy_file.about({"data": "a\0b"}) == {"data": "a\\x00b"}
    assert numpy_file.quoted('a"b') == "'a\"b'"
    assert numpy_file.quoted("a'b") == '"a\'b"'
    assert numpy_file.about({"task": "a\n b", "classes": "x"}) == {"task": "a b"}

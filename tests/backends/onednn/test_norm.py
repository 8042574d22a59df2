"""What batch norm, local response normalisation and dropout become in oneDNN."""

from __future__ import annotations

import numpy as np
import pytest
from dnnstack.layers.backends.base import BoundCall, Options
from dnnstack.layers.backends.onednn.backend import OneDnnBackend
from dnnstack.layers.backends.onednn.executable import OneDnnExecutable
from dnnstack.layers.backends.onednn.library import library
from dnnstack.layers.backends.reference.backend import ReferenceBackend
from dnnstack.layers.backends.tuning import Tuning
from dnnstack.layers.build import LayerSpec, build_layers
from dnnstack.layers.geometry import Window
from dnnstack.layers.graph import Graph, Op
from dnnstack.layers.losses import CrossEntropyLoss
from dnnstack.layers.ops import (
    Activation,
    Add,
    BatchNorm,
    BatchNormBackward,
    Conv2d,
    Lrn,
    LrnBackward,
)
from dnnstack.training.network import Network
from dnnstack.training.optimizers.sgd import Sgd
from dnnstack.training.preprocessing import Preprocessing

PICTURE = (3, 8, 8)
STACK = [
    LayerSpec("conv2d", options={"filters": 16, "kernel_size": 3, "use_bias": False}),
    LayerSpec("batch_norm"),
    LayerSpec("relu"),
    LayerSpec("lrn"),
    LayerSpec("dropout"),
    LayerSpec("flatten"),
    LayerSpec("dense", options={"units": 5}),
]


def compiled(
    onednn: OneDnnBackend, fusion: bool, training: bool = True
) -> tuple[Graph, OneDnnExecutable]:
    network = Network(build_layers(STACK, PICTURE), CrossEntropyLoss(), PICTURE, 5)
    if training:
        scaling = Preprocessing((1.0,) * 3, (0.0,) * 3)
        graph = network.train_graph(4, "train", 8, 2, 4, scaling, Sgd(), seed=1)
    else:
        graph = network.infer_graph(4)
    executable = onednn.compile({graph.name: graph}, Options(fusion=fusion, tune=False))
    return graph, executable


@pytest.mark.parametrize("narrow", [False, True])
@pytest.mark.parametrize("size", [3, 5, 7, 9])
@pytest.mark.parametrize("channels", [4, 16, 20, 48])
def test_lrn_of_a_picture_with_channels_last(
    onednn: OneDnnBackend, channels: int, size: int, narrow: bool
) -> None:
    """oneDNN 3.2's gradient is wrong for some of these: they must go another way."""
    if narrow and not library().has_bfloat16():
        pytest.skip(f"this processor has no bfloat16 ({library().isa()})")
    shape, numbers = (2, channels, 5, 3), {"size": size, "alpha": 1.0, "beta": 0.75, "k": 1.0}
    graph = Graph("one", 1)
    given = [graph.tensor(name, shape, role="input") for name in ("x", "dy")]
    w = graph.tensor("w", (channels, channels, 1, 1), role="parameter")
    a, y, dx = (graph.tensor(name, shape) for name in ("a", "y", "dx"))
    graph.add(Conv2d(x=given[0], w=w, y=a, window=Window((1, 1))))
    graph.add(Lrn(x=a, y=y, **numbers))
    graph.add(LrnBackward(x=a, y=y, dy=given[1], dx=dx, **numbers))
    graph.results.update(y=y, dx=dx)
    table = Tuning("onednn", choices={"": "nhwc"})
    tried = OneDnnExecutable({"one": graph}, table, 1, narrow=narrow)
    exact = ReferenceBackend(1).compile({"one": graph}, Options("fp64"))
    for executable in (tried, exact):
        executable.write(w, np.eye(channels, dtype=np.float32)[:, :, None, None])
        draw = np.random.default_rng(0)
        for tensor in given:
            executable.write(tensor, draw.integers(-8, 9, shape).astype(np.float32) / 4)
        executable.run("one")
    if size <= 5:
        # Where the gradient in bfloat16 is wrong, that in float32 is not, and fast.
        assert {call.library for call in tried.calls("one")} == {"oneDNN"}
    for tensor in (y, dx):
        want = exact.read(tensor)
        np.testing.assert_allclose(tried.read(tensor), want, 0, 0.03 if narrow else 1e-5)


def calls(executable: OneDnnExecutable, *kinds: type[Op]) -> list[BoundCall]:
    (section,) = executable.graphs
    return [call for call in executable.calls(section) if isinstance(call.op, kinds)]


@pytest.mark.parametrize("fusion", [False, True])
def test_batch_norm_is_a_primitive_that_takes_relu_along(
    onednn: OneDnnBackend, fusion: bool
) -> None:
    _, executable = compiled(onednn, fusion)
    found = calls(executable, BatchNorm, BatchNormBackward)
    primitives = [call for call in found if call.library == "oneDNN"]
    functions = [call.function for call in primitives if call.function != "dnnl_reorder"]
    forward, backward = (f"dnnl_batch_normalization_{way}" for way in ("forward", "backward"))
    assert functions == [forward, backward]
    for call in primitives:
        assert not call.implementation.startswith("ref")
        if call.function != "dnnl_reorder":
            assert ("workspace" in call.arguments) == fusion
            assert ("relu_1" in [origin.layer for origin in call.op.origin]) == fusion
    executable.close()


def test_inference_needs_no_host(onednn: OneDnnBackend) -> None:
    _, executable = compiled(onednn, True, training=False)
    (section,) = executable.graphs
    assert {call.library for call in executable.calls(section)} == {"oneDNN"}
    executable.close()


def test_a_gradient_that_backward_wrote_over_cannot_be_read(onednn: OneDnnBackend) -> None:
    graph, executable = compiled(onednn, False)
    executable.write(graph["images"], np.zeros((8, *PICTURE), np.uint8))
    executable.write(graph["labels"], np.zeros(8, np.int32))
    executable.write(graph["order"], np.arange(8, dtype=np.int32))
    executable.write(graph["rates"], np.zeros(4, np.float32))
    executable.run("train")
    back = next(op for op in graph.ops if isinstance(op, BatchNormBackward))
    with pytest.raises(KeyError, match="given to a later tensor"):
        executable.read(back.dy)
    assert executable.read(back.dx).shape == back.dx.shape
    executable.close()


def test_measuring_leaves_the_statistics_alone(onednn: OneDnnBackend) -> None:
    graph, executable = compiled(onednn, True)
    executable.write(graph["images"], np.full((8, *PICTURE), 9, np.uint8))
    executable.write(graph["labels"], np.zeros(8, np.int32))
    executable.write(graph["order"], np.arange(8, dtype=np.int32))
    executable.write(graph["rates"], np.zeros(4, np.float32))
    norm = next(op for op in graph.ops if isinstance(op, BatchNorm))
    executable.write(norm.running_mean, np.full(16, 0.5, np.float32))
    executable.measure("train", 2)
    np.testing.assert_array_equal(executable.read(norm.running_mean), np.float32(0.5))
    executable.close()


def test_what_is_needed_later_is_not_written_over(onednn: OneDnnBackend) -> None:
    """Around batch norm alone goes a shortcut: its input and its dy are read once more."""
    specs = [
        LayerSpec("conv2d", options={"filters": 16, "kernel_size": 3}),
        LayerSpec("residual", options={"body": [LayerSpec("batch_norm")]}),
        LayerSpec("flatten"),
        LayerSpec("dense", options={"units": 5}),
    ]
    network = Network(build_layers(specs, PICTURE), CrossEntropyLoss(), PICTURE, 5)
    scaling = Preprocessing((1 / 128,) * 3, (-1.0,) * 3)
    train = network.train_graph(4, "train", 8, 2, 4, scaling, Sgd())
    graphs = {"train": train, "infer": network.infer_graph(4)}
    draw = np.random.default_rng(3)
    images, x = draw.integers(0, 256, (8, *PICTURE)), draw.standard_normal((4, *PICTURE))
    ends = []
    for backend in (onednn, ReferenceBackend(1)):
        executable = backend.compile(graphs, Options(tune=False))
        executable.write(train["images"], images.astype(np.uint8))
        executable.write(train["labels"], np.array([0, 1, 2, 3, 4, 0, 1, 2], np.int32))
        executable.write(train["order"], np.arange(8, dtype=np.int32))
        executable.write(train["rates"], np.full(4, 0.05, np.float32))
        for tensor, value in network.initial_values(1).items():
            executable.write(tensor, value)
        executable.run("train", 3)
        executable.write(graphs["infer"]["x"], x.astype(np.float32))
        executable.run("infer")
        read = (*network.learned(), graphs["infer"]["scores"])
        ends.append({tensor.name: executable.read(tensor) for tensor in read})
        executable.close()
    for name, want in ends[1].items():
        np.testing.assert_allclose(ends[0][name], want, rtol=1e-4, atol=1e-5, err_msg=name)


def test_a_term_that_is_needed_later_is_not_summed_into(onednn: OneDnnBackend) -> None:
    graph = Graph("one", 2)
    shape = (2, 16, 4, 4)
    x = graph.tensor("x", shape, role="input")
    a, b, first, second = (graph.tensor(name, shape) for name in ("a", "b", "first", "second"))
    graph.add(Activation(x=x, y=a, kind="relu"))
    graph.add(Activation(x=x, y=b, kind="tanh"))
    graph.add(Add(terms=(a, b), y=first))
    graph.add(Add(terms=(a, first), y=second))
    graph.results["second"] = second
    executable = onednn.compile({"one": graph}, Options(fusion=False))
    values = np.random.default_rng(2).standard_normal(shape).astype(np.float32)
    executable.write(x, values)
    executable.run("one")
    want = 2 * np.maximum(values, 0) + np.tanh(values)
    np.testing.assert_allclose(executable.read(second), want, rtol=1e-5, atol=1e-6)
    with pytest.raises(KeyError, match="given to a later tensor"):
        executable.read(b)
    executable.close()

"""What batch norm, local response normalisation and dropout become in oneDNN."""

from __future__ import annotations

import numpy as np
import pytest
from dnnstack.backends.base import BoundCall, Options
from dnnstack.backends.onednn.backend import OneDnnBackend
from dnnstack.backends.onednn.executable import OneDnnExecutable
from dnnstack.backends.onednn.fallback import NOT_FAST
from dnnstack.backends.onednn.library import library
from dnnstack.backends.reference.backend import ReferenceBackend
from dnnstack.backends.tuning import Tuning
from dnnstack.graph import ops
from dnnstack.graph.geometry import Window
from dnnstack.graph.graph import Graph, Op
from dnnstack.layers.build import LayerSpec, build_layers
from dnnstack.layers.losses.cross_entropy import CrossEntropyLoss
from dnnstack.optimizers.sgd import Sgd
from dnnstack.training.network import Network
from dnnstack.training.preprocessing import Preprocessing

from ...support import composed

pytestmark = pytest.mark.usefixtures("norms_by_onednn")
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
        graph = composed.train_graph(network, 4, "train", 8, 2, 4, scaling, Sgd(), seed=1)
    else:
        graph = network.infer_graph(4)
    executable = onednn.compile({graph.name: graph}, Options(fusion=fusion, tune=False))
    return graph, executable


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("size", [3, 5, 7, 9])
@pytest.mark.parametrize("channels", [4, 16, 20, 48])
def test_lrn_of_a_picture_with_channels_last(onednn, channels, size, dtype):
    """oneDNN 3.2's gradient is wrong for some of these, and it has none without AVX-512.

    They must go another way.
    """
    if dtype == "bfloat16" and not library().has_bfloat16():
        pytest.skip(f"this processor has no bfloat16 ({library().isa()})")
    by_numpy = lrn_by_numpy(channels, size, dtype, gradient=True)
    if not library().has_avx512():
        assert [type(call.op) for call in by_numpy] == [ops.Lrn, ops.LrnBackward]
        assert {call.arguments["reason"] for call in by_numpy} == {NOT_FAST}
    elif size <= 5:
        # Where the gradient in bfloat16 is wrong, that in float32 is not, and fast.
        assert not by_numpy


@pytest.mark.parametrize("channels", [4, 8, 16, 20, 48])
def test_lrn_without_a_gradient(onednn, channels):
    by_numpy = lrn_by_numpy(channels, size=5, dtype="float32", gradient=False)
    has_kernel = library().has_avx512() or channels in (16, 48)
    assert [type(call.op) for call in by_numpy] == ([] if has_kernel else [ops.Lrn])


def lrn_by_numpy(channels: int, size: int, dtype: str, gradient: bool) -> list[BoundCall]:
    """Compare a picture's normalisation with float64; what of it the library does not do."""
    shape, numbers = (2, channels, 5, 3), {"size": size, "alpha": 1.0, "beta": 0.75, "k": 1.0}
    graph = Graph("one", 1)
    given = [graph.tensor(name, shape, role="input") for name in ("x", "dy")[: 1 + gradient]]
    w = graph.tensor("w", (channels, channels, 1, 1), role="parameter")
    a, y, dx = (graph.tensor(name, shape) for name in ("a", "y", "dx"))
    graph.add(ops.Conv2d(x=given[0], w=w, y=a, window=Window((1, 1))))
    graph.add(ops.Lrn(x=a, y=y, **numbers))
    graph.results["y"] = y
    if gradient:
        graph.add(ops.LrnBackward(x=a, y=y, dy=given[1], dx=dx, **numbers))
        graph.results["dx"] = dx
    table = Tuning("onednn", choices={"": "nhwc"})
    tried = OneDnnExecutable({"one": graph}, table, 1, activations=dtype)
    exact = ReferenceBackend(1).compile({"one": graph}, Options("fp64"))
    for executable in (tried, exact):
        executable.write(w, np.eye(channels, dtype=np.float32)[:, :, None, None])
        draw = np.random.default_rng(0)
        for tensor in given:
            executable.write(tensor, draw.integers(-8, 9, shape).astype(np.float32) / 4)
        executable.run("one")
    for tensor in (y, dx)[: 1 + gradient]:
        want = exact.read(tensor)
        np.testing.assert_allclose(
            tried.read(tensor), want, 0, 0.03 if dtype == "bfloat16" else 1e-5
        )
    return [call for call in tried.calls("one") if call.library == "numpy"]


def calls(executable: OneDnnExecutable, *kinds: type[Op]) -> list[BoundCall]:
    (section,) = executable.graphs
    return [call for call in executable.calls(section) if isinstance(call.op, kinds)]


@pytest.mark.parametrize("fusion", [False, True])
def test_batch_norm_is_primitives_that_take_relu_along(onednn, fusion):
    _, executable = compiled(onednn, fusion)
    found = calls(executable, ops.BatchNorm, ops.BatchNormBackward)
    primitives = [call for call in found if call.library == "oneDNN"]
    assert "dnnl_batch_normalization_forward" in {call.function for call in primitives}
    for call in found:
        assert not call.implementation.startswith("ref")
        assert ("relu_1" in [origin.layer for origin in call.op.origin]) == fusion
    # No sum is left to NumPy, only what running statistics and gradients are made of.
    assert [call.function for call in found if call.library == "numpy"] == [
        "multiply, sqrt",
        "multiply",
        "multiply",
    ]
    executable.close()


# Primes and powers of two, pictures of one pixel, blocks that are full and not, several pieces.
SHAPES = [
    (3, 16, 5, 7),
    (2, 48, 64, 64),
    (127, 16, 1, 9),
    (2, 20, 37, 37),
    (5, 3, 11, 13),
    (7, 32, 1, 1),
    (9, 16, 128, 128),
    (2, 5, 1, 10007),
    (300, 10, 1, 1),
    (211, 1, 4, 4),
]


@pytest.mark.parametrize("layout", ["nChw16c", "nhwc", ""])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_batch_norm_of_any_size_and_layout(onednn, shape, layout):
    beside_float64(shape, layout, threads=1)


@pytest.mark.parametrize("relu", [None, "relu"])
def test_batch_norm_in_pieces_of_two_threads(onednn, relu):
    """Neither y nor dy may be written over, x only where it is read no more."""
    beside_float64((6, 16, 128, 96), "nChw16c", threads=2, activation=relu)


def beside_float64(
    shape: tuple[int, ...], layout: str, threads: int, activation: str | None = None
) -> None:
    """Compare batch norm behind a convolution in a layout, or of what comes from outside.

    From AVX2 on, none is left to NumPy, unless its values are few.
    """
    c, draw = shape[1], np.random.default_rng(5)
    graph = Graph("one", shape[0])
    outside, dy = (graph.tensor(name, shape, role="input") for name in ("outside", "dy"))
    w = graph.tensor("w", (c, c, 1, 1), role="parameter")
    weight, bias = (graph.tensor(name, (c,), role="parameter") for name in ("weight", "bias"))
    running = {n: graph.tensor(n, (c,), role="state") for n in ("running_mean", "running_var")}
    x, y, dx = (graph.tensor(name, shape) for name in ("x", "y", "dx"))
    found = {name: graph.tensor(name, (c,)) for name in ("mean", "inverse_std")}
    dw, db = (graph.tensor(name, (c,), role="gradient") for name in ("dw", "db"))
    if layout:
        graph.add(ops.Conv2d(x=outside, w=w, y=x, window=Window((1, 1))))
    else:
        x = outside
    affine = {"weight": weight, "bias": bias, "activation": activation, "eps": 1e-3}
    graph.add(ops.BatchNorm(x=x, y=y, **found, **running, **affine, momentum=0.3))
    back = {"weight": weight, "dw": dw, "db": db, "activation": activation, "eps": 1e-3}
    if activation is not None:
        back["y"] = y
    graph.add(ops.BatchNormBackward(x=x, dy=dy, dx=dx, **found, **back))
    graph.results.update(y=y, dx=dx)
    table = Tuning("onednn", choices={"": layout or "nhwc"})
    ends = []
    values = {
        outside: draw.standard_normal(shape) + 3.0,
        dy: draw.standard_normal(shape) + 0.5,
        w: np.eye(c)[:, :, None, None],
        weight: draw.uniform(0.5, 2.0, c),
        bias: draw.standard_normal(c),
        running["running_mean"]: draw.standard_normal(c),
        running["running_var"]: draw.uniform(0.5, 2.0, c),
    }
    exact = ReferenceBackend(1).compile({"one": graph}, Options("fp64"))
    for executable in (OneDnnExecutable({"one": graph}, table, threads), exact):
        for tensor in values.keys() & set(graph.tensors()):
            executable.write(tensor, values[tensor].astype(np.float32))
        executable.run("one")
        read = (y, dx, dw, db, *found.values(), *running.values())
        ends.append({tensor.name: executable.read(tensor) for tensor in read})
        if executable is not exact and library().isa() not in ("sse41", "avx"):
            assert not [call for call in executable.calls("one") if "reason" in call.arguments]
        executable.close()
    for name, want in ends[1].items():
        # A rounding of the mean moves every term of a sum.
        bound = 2e-6 * np.abs(want).max() + 2e-7 * (name in ("dw", "db")) * y.size / c
        np.testing.assert_allclose(ends[0][name], want, 0, bound, err_msg=name)


def test_inference_needs_no_host(onednn):
    _, executable = compiled(onednn, True, training=False)
    (section,) = executable.graphs
    layers = [c for c in executable.calls(section) if not isinstance(c.op, ops.Softmax)]
    assert {call.library for call in layers} == {"oneDNN"}
    executable.close()


def test_a_gradient_that_backward_wrote_over_cannot_be_read(onednn):
    graph, executable = compiled(onednn, False)
    executable.write(graph["images"], np.zeros((8, *PICTURE), np.uint8))
    executable.write(graph["labels"], np.zeros(8, np.int32))
    executable.write(graph["order"], np.arange(8, dtype=np.int32))
    executable.write(graph["rates"], np.zeros(4, np.float32))
    executable.run("train")
    back = next(op for op in graph.ops if isinstance(op, ops.BatchNormBackward))
    with pytest.raises(KeyError, match="given to a later tensor"):
        executable.read(back.dy)
    assert executable.read(back.dx).shape == back.dx.shape
    executable.close()


def test_measuring_leaves_the_statistics_alone(onednn):
    graph, executable = compiled(onednn, True)
    executable.write(graph["images"], np.full((8, *PICTURE), 9, np.uint8))
    executable.write(graph["labels"], np.zeros(8, np.int32))
    executable.write(graph["order"], np.arange(8, dtype=np.int32))
    executable.write(graph["rates"], np.zeros(4, np.float32))
    norm = next(op for op in graph.ops if isinstance(op, ops.BatchNorm))
    executable.write(norm.running_mean, np.full(16, 0.5, np.float32))
    executable.measure("train", 2)
    np.testing.assert_array_equal(executable.read(norm.running_mean), np.float32(0.5))
    executable.close()


def test_batch_norm_takes_the_layout_of_the_convolution_behind(onednn):
    """Behind a convolution of one channel, which writes channels last."""
    specs = [*STACK[:3], *STACK[:3], *STACK[5:]]
    network = Network(build_layers(specs, (1, 8, 8)), CrossEntropyLoss(), (1, 8, 8), 5)
    scaling = Preprocessing((1 / 128,), (-1.0,))
    train = composed.train_graph(network, 4, "train", 8, 2, 4, scaling, Sgd())
    draw, ends = np.random.default_rng(3), []
    images = draw.integers(0, 256, (8, 1, 8, 8)).astype(np.uint8)
    for backend in (onednn, ReferenceBackend(1)):
        executable = backend.compile({"train": train}, Options(tune=False))
        executable.write(train["images"], images)
        executable.write(train["labels"], np.array([0, 1, 2, 3, 4, 0, 1, 2], np.int32))
        executable.write(train["order"], np.arange(8, dtype=np.int32))
        executable.write(train["rates"], np.full(4, 0.05, np.float32))
        for tensor, value in network.initial_values(1).items():
            executable.write(tensor, value)
        if isinstance(executable, OneDnnExecutable) and library().has_avx512():
            for kind in (ops.BatchNorm, ops.BatchNormBackward):
                written = {call.arguments.get("dst") for call in calls(executable, kind)}
                assert "f32 nChw16c 4x16x6x6" in written
        executable.run("train", 2)
        ends.append({tensor.name: executable.read(tensor) for tensor in network.learned()})
        executable.close()
    for name, want in ends[1].items():
        np.testing.assert_allclose(ends[0][name], want, rtol=1e-4, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("relu", [[], [LayerSpec("relu")]], ids=["linear", "relu"])
@pytest.mark.parametrize("shortcut", ["identity", [LayerSpec("gelu")]], ids=["identity", "gelu"])
def test_what_is_needed_later_is_not_written_over(onednn, shortcut, relu):
    """Around batch norm goes a shortcut: its input and its dy are read once more, the input perhaps
    by the gradient of GELU."""
    around = {"body": [LayerSpec("batch_norm"), *relu], "shortcut": shortcut}
    specs = [
        LayerSpec("conv2d", options={"filters": 16, "kernel_size": 3}),
        LayerSpec("residual", options=around),
        LayerSpec("flatten"),
        LayerSpec("dense", options={"units": 5}),
    ]
    network = Network(build_layers(specs, PICTURE), CrossEntropyLoss(), PICTURE, 5)
    scaling = Preprocessing((1 / 128,) * 3, (-1.0,) * 3)
    train = composed.train_graph(network, 4, "train", 8, 2, 4, scaling, Sgd())
    kinds = [type(op) for op in train.ops]
    if ops.ActivationBackward in kinds and not relu:
        assert kinds.index(ops.BatchNormBackward) < kinds.index(ops.ActivationBackward)
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


def test_a_gradient_lies_where_something_is_not_needed_any_more(onednn):
    """Without a ReLU in place of dy; with one over y, for dy is read while it is written; if dy is
    needed once more, over x."""
    plain, fused = ([*STACK[:2], LayerSpec("gelu"), *STACK[5:]], [*STACK[:3], *STACK[5:]])
    around = LayerSpec("residual", options={"body": [LayerSpec("batch_norm")]})
    for specs, name in ((plain, "dy"), (fused, "y"), ([STACK[0], around, *STACK[5:]], "x")):
        network = Network(build_layers(specs, PICTURE), CrossEntropyLoss(), PICTURE, 5)
        scaling = Preprocessing((1.0,) * 3, (0.0,) * 3)
        train = composed.train_graph(network, 4, "train", 8, 2, 4, scaling, Sgd())
        executable = onednn.compile({"train": train}, Options(tune=False))
        graph = executable.graphs["train"]
        back = next(op for op in graph.ops if isinstance(op, ops.BatchNormBackward))
        for lost in ("dy", "y", "x"):
            tensor = getattr(back, lost)
            if lost == name:
                with pytest.raises(KeyError, match="given to a later tensor"):
                    executable.read(tensor)
            elif tensor is not None:
                assert executable.read(tensor).shape == tensor.shape
        executable.close()


def test_a_term_that_is_needed_later_is_not_summed_into(onednn):
    graph = Graph("one", 2)
    shape = (2, 16, 4, 4)
    x = graph.tensor("x", shape, role="input")
    a, b, first, second = (graph.tensor(name, shape) for name in ("a", "b", "first", "second"))
    graph.add(ops.Activation(x=x, y=a, kind="relu"))
    graph.add(ops.Activation(x=x, y=b, kind="tanh"))
    graph.add(ops.Add(terms=(a, b), y=first))
    graph.add(ops.Add(terms=(a, first), y=second))
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

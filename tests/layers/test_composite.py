"""Layers made of layers: shapes, names, shortcuts, whole nets on every backend alike."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from dnnstack.backends.base import Array, Backend, Options
from dnnstack.backends.reference.backend import ReferenceBackend
from dnnstack.common.errors import ConfigError, ShapeError
from dnnstack.graph.graph import Graph
from dnnstack.graph.ops import Activation, Add, Conv2dBackwardFilter, Softmax
from dnnstack.graph.rewrites import add_activation, bias_grad, rewritten
from dnnstack.layers.build import LayerSpec, build_layers
from dnnstack.layers.composite import walk
from dnnstack.layers.losses.cross_entropy import CrossEntropyLoss
from dnnstack.optimizers.sgd import Sgd
from dnnstack.training.network import Network
from dnnstack.training.preprocessing import Preprocessing
from hypothesis import given, settings
from hypothesis import strategies as st

from ..support import composed
from ..support.nets import stacks
from ..support.nets_composite import conv
from ..support.opened import opened

PICTURE, CLASSES, BATCH, COUNT = (2, 9, 9), 4, 3, 6
RELU, FLATTEN = LayerSpec("relu"), LayerSpec("flatten")


def residual(body: list[LayerSpec], shortcut: Any = "identity", name: str = "") -> LayerSpec:
    return LayerSpec("residual", name, {"body": body, "shortcut": shortcut})


def concat(*branches: list[LayerSpec]) -> LayerSpec:
    return LayerSpec("concat", options={"branches": list(branches)})


def sequential(*layers: LayerSpec, name: str = "") -> LayerSpec:
    return LayerSpec("sequential", name, {"layers": list(layers)})


# ---------------------------------------------------------------- built


@pytest.mark.parametrize(
    ("spec", "output", "parameters"),
    [
        (residual([conv(3), RELU]), (3, 8, 6), ["residual_1.conv2d_1.weight (3, 3, 3, 3)"]),
        (residual([conv(5, stride=2)], "padding"), (5, 4, 3), ["residual_1.conv2d_1.weight (5, 3"]),
        (
            residual([conv(5, stride=2)], "projection", "a"),
            (5, 4, 3),
            ["a.conv2d_1.weight (5, 3, 3, 3)", "a.projection.weight (5, 3, 1, 1)"],
        ),
        (
            residual([conv(4)], [conv(4, 1), RELU]),
            (4, 8, 6),
            ["residual_1.conv2d_1.weight", "residual_1.conv2d_2.weight (4, 3, 1, 1)"],
        ),
        (concat([conv(2)], [], [RELU]), (8, 8, 6), ["concat_1.conv2d_1.weight"]),
        (sequential(conv(2), FLATTEN), (96,), ["sequential_1.conv2d_1.weight"]),
    ],
)
def test_shapes_and_parameters(spec, output, parameters):
    (layer,) = build_layers([spec], (3, 8, 6))
    assert layer.output_shape == output
    found = [f"{p.tensor.name} {p.tensor.shape}" for p in layer.parameters()]
    weights = [text for text in found if ".weight " in text]
    assert len(weights) == len(parameters)
    for text, start in zip(weights, parameters, strict=True):
        assert text.startswith(start)


def test_names_count_depth_first_over_the_whole_net():
    layers = build_layers(
        [conv(3), residual([conv(3), residual([conv(3), RELU])], [conv(3, 1)], "a"), RELU, conv(1)],
        (3, 8, 6),
    )
    assert [layer.name for layer in walk(layers)] == [
        "conv2d_1",
        "a",
        "a.conv2d_2",
        "a.residual_2",
        "a.residual_2.conv2d_3",
        "a.residual_2.relu_1",
        "a.conv2d_4",
        "relu_2",
        "conv2d_5",
    ]


def test_two_layers_of_one_name():
    a = LayerSpec("relu", "a")
    build_layers([a, residual([a])], PICTURE)
    with pytest.raises(ConfigError, match=r"layer 1\.body\.2 'residual_1\.a' \(relu\): another"):
        build_layers([residual([a, a])], PICTURE)


@pytest.mark.parametrize(
    ("specs", "message"),
    [
        (
            [residual([conv(3)])],
            "layer 1 'residual_1' (residual): the body gives (3, 9, 9), the shortcut (2, 9, 9), "
            "which cannot be added; use 'shortcut: projection' or 'shortcut: padding', or let",
        ),
        (
            [FLATTEN, residual([LayerSpec("dense", options={"units": 3})])],
            "layer 2 'residual_1' (residual): the body gives (3,), the shortcut (162,), which "
            "cannot be added; let the body keep the shape, or give the shortcut layers",
        ),
        (
            [FLATTEN, residual([LayerSpec("dense", options={"units": 3})], "projection")],
            "layer 2 'residual_1' (residual): 'shortcut: projection' leads from a picture to a",
        ),
        ([residual([conv(1)], "padding")], "adds channels, but the body has fewer (1) than its"),
        (
            [residual([conv(2, padding="valid")], "padding")],
            "'shortcut: padding': no stride leads from 9 to 7 pixels; pad the body's windows",
        ),
        (
            [concat([conv(2)], [conv(2, stride=2)])],
            "layer 1 'concat_1' (concat): the branches give (2, 9, 9), (2, 5, 5), which differ in "
            "more than the channels; use 'padding: same' and the same strides",
        ),
        (
            [RELU, concat([RELU], [RELU, residual([FLATTEN, conv(2)])])],
            "layer 2.branches.2.2.body.2 'concat_1.residual_1.conv2d_1' (conv2d): expects a pict",
        ),
    ],
)
def test_shape_errors_name_the_layer_and_what_to_do(specs, message):
    with pytest.raises(ShapeError) as caught:
        build_layers(specs, PICTURE)
    assert message in str(caught.value)


def test_the_place_comes_first():
    spec = LayerSpec("conv2d", options={"filters": 1, "kernel_size": 99}, place="x.yaml:3:5")
    with pytest.raises(ShapeError, match=r"^x\.yaml:3:5: layer 1\.layers\.1 'sequential_1\.conv"):
        build_layers([sequential(spec)], PICTURE)


# ---------------------------------------------------------------- computed


def run(spec: LayerSpec, x: Array) -> tuple[Array, Array]:
    """y, and dx for a dy of 1, 2, 3, ..., with all parameters 1."""
    (layer,) = build_layers([spec], x.shape[1:])
    graph = Graph("hand", len(x))
    given = graph.tensor("x", x.shape, "float32", "input")
    y = layer.forward(graph, given)
    dy = graph.tensor("dy", y.shape, "float32", "input")
    dx = layer.backward(graph, dy)
    graph.results.update(y=y, dx=dx)
    graph.prune()
    executable = ReferenceBackend(1).compile({"hand": graph}, Options("fp64", fusion=False))
    executable.write(given, x)
    executable.write(dy, 1.0 + np.arange(y.size, dtype=np.float64).reshape(y.shape))
    for parameter in layer.parameters():
        executable.write(parameter.tensor, np.ones(parameter.tensor.shape))
    executable.run("hand")
    return executable.read(y), executable.read(dx)


NINE = np.arange(1.0, 10.0).reshape(1, 1, 3, 3)


def test_identity_shortcut():
    body = [LayerSpec("scale", options={"factor": 10.0})]
    y, dx = run(residual(body), NINE)
    np.testing.assert_allclose(y, 11.0 * NINE)
    np.testing.assert_allclose(dx, 11.0 * NINE)


def test_padding_shortcut_takes_every_second_pixel_and_adds_zeros():
    zero = conv(3, 1, 2, use_bias=False)
    y, dx = run(residual([zero, LayerSpec("scale", options={"factor": 0.0})], "padding"), NINE)
    np.testing.assert_allclose(y[0, 0], [[1.0, 3.0], [7.0, 9.0]])
    np.testing.assert_allclose(y[0, 1:], 0.0)
    np.testing.assert_allclose(dx[0, 0], [[1.0, 0.0, 2.0], [0.0, 0.0, 0.0], [3.0, 0.0, 4.0]])


def test_projection_shortcut_is_a_convolution():
    none = LayerSpec("scale", options={"factor": 0.0})
    y, _ = run(residual([conv(2, 3, 2), none], "projection"), NINE)
    np.testing.assert_allclose(y[0], [[[1.0, 3.0], [7.0, 9.0]]] * 2)


def test_concat_keeps_the_order_of_branches():
    double = LayerSpec("scale", options={"factor": 2.0})
    y, dx = run(concat([double], []), NINE)
    np.testing.assert_allclose(y[0], np.concatenate([2.0 * NINE[0], NINE[0]]))
    np.testing.assert_allclose(dx[0, 0], 2.0 * NINE[0, 0] + NINE[0, 0] + 9.0)


def network(specs: list[LayerSpec]) -> Network:
    return Network(build_layers(specs, PICTURE), CrossEntropyLoss(), PICTURE, CLASSES)


def trained(net: Network, backend: Backend, options: Options, seed: int) -> dict[str, Array]:
    """Everything that two steps leave behind."""
    pixels = Preprocessing((1 / 64, 1 / 128), (-2.0, -1.0))
    graph = composed.train_graph(
        net, BATCH, "toy", COUNT, COUNT // BATCH, 9, pixels, Sgd(momentum=0.9)
    )
    executable = backend.compile({"train": graph}, options)
    rng = np.random.default_rng(seed)
    executable.write(graph["images"], rng.integers(0, 256, (COUNT, *PICTURE)).astype(np.uint8))
    executable.write(graph["labels"], rng.integers(0, CLASSES, COUNT).astype(np.int32))
    executable.write(graph["order"], rng.permutation(COUNT).astype(np.int32))
    executable.write(graph["rates"], np.full(9, 0.05, np.float32))
    for tensor, value in net.initial_values(seed).items():
        executable.write(tensor, value)
    executable.run("train", 2)
    learned = {tensor.name: executable.read(tensor) for tensor in net.learned()}
    return {**learned, "loss": executable.read(graph["loss"])}


@pytest.fixture(scope="module")
def onednn():
    return opened("cpu")


@pytest.mark.parametrize("fusion", [False, True])
@settings(max_examples=25)
@given(specs=stacks(CLASSES), seed=st.integers(0, 1000))
def test_nets_train_alike_on_onednn(onednn, fusion, specs, seed):
    # Smooth throughout: a kink would make much of the last bit of its argument.
    smooth = [LayerSpec("tanh") if spec.kind.endswith("relu") else spec for spec in specs]
    smooth = [
        LayerSpec("avg_pool2d", options=spec.options) if spec.kind == "max_pool2d" else spec
        for spec in smooth
    ]
    net = network(smooth)
    want = trained(net, ReferenceBackend(1), Options("fp64", fusion=False), seed)
    got = trained(net, onednn, Options(fusion=fusion, tune=False), seed)
    for name, value in want.items():
        np.testing.assert_allclose(got[name], value, rtol=1e-3, atol=2e-5, err_msg=name)


def test_blocked_layouts_stay_between_blocks(onednn):
    """From the first convolution to the pool nothing is copied into another layout."""
    inner = [conv(32, 3, 2), RELU, conv(32)]
    branches = concat([conv(16, 1)], [conv(32)])
    specs = [
        conv(16),
        RELU,
        residual([conv(16), RELU, conv(16)]),
        RELU,
        residual(inner, "padding"),
        RELU,
        residual([conv(32)], "projection"),
        RELU,
        branches,
        LayerSpec("global_avg_pool2d"),
        LayerSpec("dense", options={"units": CLASSES}),
    ]
    net = network(specs)
    pixels = Preprocessing((1 / 64, 1 / 128), (-2.0, -1.0))
    graph = composed.train_graph(net, BATCH, "toy", COUNT, 2, 9, pixels, Sgd(momentum=0.9))
    executable = onednn.compile({"train": graph}, Options(tune=False))
    calls = executable.calls("train")
    if not any("nChw" in str(call.arguments) for call in calls):
        pytest.skip("oneDNN has no blocked layouts here")
    copies = [
        call.op.label()
        for call in calls
        if call.function == "dnnl_reorder" and type(call.op).__name__ != "Slice"
    ]
    around = [label for label in copies if "residual" in label or "concat" in label]
    assert not [label for label in around if "Add" in label or "Concat" in label], copies
    assert all(call.library == "oneDNN" for call in calls if "residual" in call.op.label())


# ---------------------------------------------------------------- in a network


def test_the_end_of_a_block_becomes_one_operation():
    net = network([residual([conv(2)]), RELU, concat([conv(2)], []), RELU, FLATTEN, dense()])
    pixels = Preprocessing((1.0, 1.0), (0.0, 0.0))
    plain = composed.train_graph(net, BATCH, "toy", COUNT, 2, 9, pixels, Sgd())
    fused = rewritten(plain, {"add_activation": add_activation})
    add = next(op for op in fused.ops if isinstance(op, Add))
    assert add.activation == "relu"
    assert [origin.layer for origin in add.origin] == ["residual_1", "relu_1"]
    left = [op for op in fused.ops if isinstance(op, Activation)]
    assert [op.origin[0].layer for op in left] == ["relu_2"]


def test_bias_gradients_stay_with_their_layer_where_several_have_one_dy():
    specs = [residual([conv(2, use_bias=False)], [conv(2, 1)]), FLATTEN, dense()]
    pixels = Preprocessing((1.0, 1.0), (0.0, 0.0))
    plain = composed.train_graph(network(specs), BATCH, "toy", COUNT, 2, 9, pixels, Sgd())
    fused = rewritten(plain, {"bias_grad": bias_grad})
    back = {op.dw.name: op for op in fused.ops if isinstance(op, Conv2dBackwardFilter)}
    shortcut = back["residual_1.conv2d_2.weight.grad"]
    assert len({op.dy for op in back.values()}) == 1
    assert back["residual_1.conv2d_1.weight.grad"].bias_grad is None
    assert shortcut.bias_grad is not None
    assert [origin.layer for origin in shortcut.origin] == ["residual_1.conv2d_2"]


def test_a_sum_that_backward_reads_is_not_fused():
    net = network([residual([conv(2)]), LayerSpec("gelu"), FLATTEN, dense()])
    pixels = Preprocessing((1.0, 1.0), (0.0, 0.0))
    plain = composed.train_graph(net, BATCH, "toy", COUNT, 2, 9, pixels, Sgd())
    assert rewritten(plain, {"add_activation": add_activation}).ops == plain.ops
    infer = rewritten(net.infer_graph(1), {"add_activation": add_activation})
    assert not [op for op in infer.ops if isinstance(op, Activation)]


def dense() -> LayerSpec:
    return LayerSpec("dense", options={"units": CLASSES})


@pytest.mark.parametrize("nested", [False, True])
def test_a_final_softmax_belongs_to_the_loss_wherever_it_stands(nested):
    end = [FLATTEN, dense(), LayerSpec("softmax")]
    net = network([sequential(conv(2), sequential(*end))] if nested else [conv(2), *end])
    pixels = Preprocessing((1.0, 1.0), (0.0, 0.0))
    train = composed.train_graph(net, BATCH, "toy", COUNT, 2, 9, pixels, Sgd())
    assert len([op for op in train.ops if isinstance(op, Softmax)]) == 1
    (softmax,) = [op for op in net.infer_graph(1).ops if isinstance(op, Softmax)]
    assert softmax.origin[0].layer.endswith("softmax_1")


def test_a_sequential_softmax_with_another_loss_stays():
    net = network([sequential(FLATTEN, dense(), LayerSpec("softmax")), LayerSpec("tanh")])
    pixels = Preprocessing((1.0, 1.0), (0.0, 0.0))
    train = composed.train_graph(net, BATCH, "toy", COUNT, 2, 9, pixels, Sgd())
    assert len([op for op in train.ops if isinstance(op, Softmax)]) == 2

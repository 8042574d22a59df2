from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from dnnstack.backends.base import Executable
from dnnstack.backends.reference.backend import ReferenceBackend
from dnnstack.common.errors import ConfigError, ShapeError
from dnnstack.graph import ops
from dnnstack.graph.graph import Graph
from dnnstack.layers.build import LayerSpec, build_layers
from dnnstack.layers.losses.cross_entropy import CrossEntropyLoss
from dnnstack.layers.losses.loss import Loss
from dnnstack.layers.losses.mean_squared_error import MeanSquaredErrorLoss
from dnnstack.optimizers.sgd import Sgd
from dnnstack.training.network import Network
from dnnstack.training.preprocessing import Preprocessing

from ..support import composed

PICTURE, CLASSES = (1, 6, 6), 3
PLAIN = Preprocessing((1 / 255,), (0.0,))


def spec(kind: str, name: str = "", **options: Any) -> LayerSpec:
    return LayerSpec(kind, name, options)


STACK = [
    spec("conv2d", filters=2, kernel_size=3),
    spec("relu"),
    spec("max_pool2d"),
    spec("flatten"),
    spec("dense", units=CLASSES),
    spec("softmax"),
]


def network(specs: list[LayerSpec], loss: Loss | None = None) -> Network:
    return Network(build_layers(specs, PICTURE), loss or CrossEntropyLoss(), PICTURE, CLASSES)


def train_graph(net: Network, batch_size: int = 4, count: int = 8) -> Graph:
    steps = count // batch_size
    return composed.train_graph(net, batch_size, "toy", count, steps, 10, PLAIN, Sgd())


# ---------------------------------------------------------------- building


def test_a_softmax_that_other_layers_follow_is_doubted():
    assert list(network(STACK).doubts()) == []
    inner = spec("sequential", layers=[spec("dense", units=CLASSES), spec("softmax")])
    assert list(network([spec("flatten"), inner]).doubts()) == []
    after = [spec("dense", units=CLASSES), spec("softmax")]
    for name, stack in (
        ("softmax_1", [*STACK, *after]),
        ("sequential_1.softmax_1", [spec("flatten"), inner, *after]),
    ):
        assert list(network(stack).doubts()) == [
            f"layer '{name}' (softmax) is not the last layer: what follows it sees "
            "probabilities, from which it learns slowly; remove it, or move it to the end"
        ]


def test_layers_are_named_by_type_and_number():
    specs = [spec("relu"), spec("conv2d", filters=1, kernel_size=1), spec("relu"), spec("flatten")]
    assert [layer.name for layer in build_layers(specs, PICTURE)] == [
        "relu_1",
        "conv2d_1",
        "relu_2",
        "flatten_1",
    ]


def test_a_named_layer_counts_too():
    specs = [spec("flatten"), spec("dense", "hidden", units=4), spec("dense", units=3)]
    names = [layer.name for layer in build_layers(specs, PICTURE)]
    assert names == ["flatten_1", "hidden", "dense_2"]


def test_names_used_twice():
    specs = [spec("relu", "a"), spec("flatten", "a")]
    message = r"layer 2 'a' \(flatten\): another layer has this name; give one of them another"
    with pytest.raises(ConfigError, match=message):
        build_layers(specs, PICTURE)
    with pytest.raises(ConfigError, match="layer 2 'relu_2'"):
        build_layers([spec("relu", "relu_2"), spec("relu")], PICTURE)


def test_wrong_geometry_names_layer_and_fix():
    specs = [spec("conv2d", filters=50, kernel_size=3), spec("relu"), spec("dense", units=3)]
    message = (
        r"layer 3 'dense_1' \(dense\): expects a flat input, got \(50, 4, 4\); "
        "insert 'flatten' before it"
    )
    with pytest.raises(ShapeError, match=message):
        build_layers(specs, PICTURE)


def test_shapes_follow_from_layer_to_layer():
    shapes = [layer.output_shape for layer in build_layers(STACK, PICTURE)]
    assert shapes == [(2, 4, 4), (2, 4, 4), (2, 2, 2), (8,), (3,), (3,)]


def test_scores_must_fit_the_classes():
    with pytest.raises(ShapeError, match=r"the last layer gives \(8,\), the data has 3 classes"):
        network(STACK[:4])
    with pytest.raises(ShapeError, match=r"gives \(1, 6, 6\), the data has 3 classes"):
        network([])


# ---------------------------------------------------------------- initial values


def test_initial_values_depend_on_seed_and_own_name_alone():
    net = network(STACK)
    first, again, other = (net.initial_values(seed) for seed in (1, 1, 2))
    longer = network([spec("relu"), *STACK]).initial_values(1)
    assert [t.name for t in first] == [
        "conv2d_1.weight",
        "conv2d_1.bias",
        "dense_1.weight",
        "dense_1.bias",
    ]
    for tensor, value in first.items():
        assert value.shape == tensor.shape
        np.testing.assert_array_equal(value, again[tensor])
        np.testing.assert_array_equal(value, longer[tensor])
        drawn = tensor.name.endswith("weight")
        assert np.array_equal(value, other[tensor]) == (not drawn)


def test_two_layers_of_one_shape_start_differently():
    specs = [spec("flatten"), spec("dense", units=36), spec("dense", units=36)]
    net = network([*specs, spec("dense", units=3)])
    values = list(net.initial_values(1).values())
    assert not np.array_equal(values[0], values[2])


# ---------------------------------------------------------------- graphs


def test_results_by_name():
    net = network(STACK)
    train = {"images", "labels", "order", "step", "x", "target", "scores", "loss", "sums"}
    assert set(train_graph(net).results) == train | {"rates"}
    evaluate = net.evaluate_graph(4, "toy", 8, 2, PLAIN)
    assert set(evaluate.results) == train | {"probabilities"}
    assert set(net.infer_graph(1).results) == {"x", "scores", "probabilities"}


def test_nothing_is_computed_for_the_input():
    """Nobody needs the gradient of the pictures: the first layer has none of the data."""
    kinds = [type(op) for op in train_graph(network(STACK)).ops]
    assert ops.Conv2dBackwardFilter in kinds
    assert ops.Conv2dBackwardData not in kinds
    dense = network([spec("flatten"), spec("dense", units=CLASSES)])
    assert sum(isinstance(op, ops.MatMul) for op in train_graph(dense).ops) == 2


def test_sections_share_what_they_should():
    net = network(STACK)
    train, evaluate = train_graph(net), net.evaluate_graph(2, "toy", 8, 4, PLAIN)
    parameters = {p.tensor for p in net.parameters()}
    assert parameters < set(train.tensors())
    assert parameters < set(evaluate.tensors())
    assert train["images"] == evaluate["images"]
    for name in ("step", "order", "sums", "x", "scores", "loss"):
        assert train[name] != evaluate[name], name


@pytest.mark.parametrize("softmax", [False, True])
def test_softmax_is_applied_once(softmax):
    """A final softmax layer is the loss's own: the same operations with it and without."""
    net = network(STACK if softmax else STACK[:-1])
    graph = train_graph(net)
    assert sum(isinstance(op, ops.Softmax) for op in graph.ops) == 1
    assert sum(isinstance(op, ops.SoftmaxBackward) for op in graph.ops) == 1
    assert graph["scores"].name == "dense_1.y"
    infer = net.infer_graph(2)
    assert sum(isinstance(op, ops.Softmax) for op in infer.ops) == 1
    assert infer.ops[-1].origin[0].layer == ("softmax_1" if softmax else "loss")


def test_squared_error_of_a_softmax_goes_through_it():
    net = network(STACK, MeanSquaredErrorLoss())
    graph = train_graph(net)
    assert graph["scores"].name == "softmax_1.y"
    assert sum(isinstance(op, ops.SoftmaxBackward) for op in graph.ops) == 1
    assert [op.name for op in graph.ops if isinstance(op, ops.RowLoss)] == ["MeanSquaredError"]
    infer = net.infer_graph(2)
    assert infer["probabilities"] == infer["scores"]


def test_every_operation_says_for_whom_it_works():
    origins = {op.origin[0] for op in train_graph(network(STACK)).ops}
    named = {f"{origin.layer}/{origin.phase}" for origin in origins}
    assert named >= {
        "data/data",
        "conv2d_1/forward",
        "dense_1/backward",
        "loss/loss",
        "loss/backward",
        "sgd/update",
    }
    assert not any(name.startswith("/") for name in named)


def test_preprocessing():
    pixels = Preprocessing.standardize((0.5, 0.25), (0.25, 0.5))
    np.testing.assert_allclose(np.array(pixels.scale) * 255 + pixels.shift, [2.0, 1.5])
    np.testing.assert_allclose(pixels.shift, [-2.0, -0.5])


# ---------------------------------------------------------------- run


def loaded(net: Network, graphs: dict[str, Graph], images: np.ndarray) -> Executable:
    executable = ReferenceBackend(1).compile(graphs)
    for tensor, value in net.initial_values(3).items():
        executable.write(tensor, value)
    for graph in graphs.values():
        if "images" in graph.results:
            executable.write(graph["images"], images)
            executable.write(graph["labels"], (np.arange(len(images)) % CLASSES).astype(np.int32))
    return executable


IMAGES = np.random.default_rng(0).integers(0, 256, (7, *PICTURE)).astype(np.uint8)


def test_evaluation_counts_every_sample_once():
    """Seven samples in batches of three: the last one is padded with masked samples."""
    net = network(STACK)
    evaluate, infer = net.evaluate_graph(3, "toy", 7, 3, PLAIN), net.infer_graph(7)
    executable = loaded(net, {"evaluate": evaluate, "infer": infer}, IMAGES)
    order = np.array([0, 1, 2, 3, 4, 5, 6, -1, -1], np.int32)
    executable.write(evaluate["order"], order)
    executable.run("evaluate", 3)
    total, right, count = executable.read(evaluate["sums"])

    executable.write(infer["x"], IMAGES.astype(np.float32) / 255)
    executable.run("infer")
    p, labels = executable.read(infer["probabilities"]), np.arange(7) % CLASSES
    assert count == 7
    assert right == (p.argmax(1) == labels).sum()
    assert total == pytest.approx(-np.log(p[np.arange(7), labels]).sum(), rel=1e-5)


def test_training_learns_four_pictures_by_heart():
    net = network([STACK[0], spec("tanh"), *STACK[2:]])
    graph = composed.train_graph(net, 4, "toy", 4, 1, 300, PLAIN, Sgd(momentum=0.9))
    executable = loaded(net, {"train": graph}, IMAGES[:4])
    executable.write(graph["order"], np.arange(4, dtype=np.int32))
    executable.write(graph["rates"], np.full(300, 0.1, np.float32))
    executable.run("train")
    first = executable.read(graph["loss"])[0]
    executable.run("train", 299)
    assert executable.read(graph["loss"])[0] < 0.05 * first
    assert executable.read(graph["step"])[0] == 300
    assert executable.read(graph["sums"])[2] == 1200

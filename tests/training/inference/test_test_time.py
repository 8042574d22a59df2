"""Views of a picture that are averaged when a network is judged."""

from __future__ import annotations

import pytest
from dnnstack.common.errors import ConfigError, ShapeError
from dnnstack.configs import parse_config
from dnnstack.datasets import describe
from dnnstack.training.assemble import build_network
from dnnstack.training.augmentation import TEST_TIME, views_of
from dnnstack.training.preprocessing import Preprocessing


@pytest.mark.parametrize(
    ("share", "count", "seen"),
    [(0.25, 2000, 500), (0.07, 100, 7), (0.07, 101, 8), (0.01, 3, 1), (1e-9, 9, 1), (1.0, 12, 12)],
)
def test_a_share_is_rounded_up(share, count, seen):
    assert views_of("mirror", share).seen(count) == seen
    assert views_of("none", share).seen(count) == count


def test_the_same_layers_come_twice_whatever_their_names(reference):
    """A layer inside one that is called ``views`` has the name of another behind it."""
    one = "conv2d: {filters: 2, kernel_size: 1, name: one}"
    layers = f"[sequential: {{name: views, layers: [{one}]}}, {one}, flatten, dense: {{units: 10}}]"
    text = f"data: {{dataset: mnist}}\nlayers: {layers}\n"
    rest = "optimizer: {type: sgd, lr: 0.1}\ntrain: {epochs: 1}\n"
    network = build_network(parse_config(text + rest, "x.yaml"), describe("mnist"))
    views = views_of("mirror", 0.5)
    graph = network.evaluate_graph(4, "x", 4, 1, Preprocessing((1.0,), (0.0,)), views)
    names = [tensor.name for op in graph.ops for tensor in op.tensors(op.outputs)]
    assert {"views.one.y", "one.y", "views/one.y", "views/views.one.y"} <= {*names}


def test_a_share_needs_two_classes(reference):
    text = "data: {dataset: mnist}\nlayers: [flatten, dense: {units: 10}]\n"
    rest = "optimizer: {type: sgd, lr: 0.1}\ntrain: {epochs: 1}\n"
    network = build_network(parse_config(text + rest, "x.yaml"), describe("mnist"))
    network.classes = 1
    with pytest.raises(
        ConfigError, match=r"^evaluate\.tta_share: compares the scores of two class"
    ):
        network.evaluate_graph(2, "x", 2, 1, Preprocessing((1.0,), (0.0,)), views_of("mirror", 0.5))


def test_pictures_too_small_to_be_moved(reference):
    text = "data: {dataset: mnist}\nlayers: [flatten, dense: {units: 10}]\n"
    rest = "optimizer: {type: sgd, lr: 0.1}\ntrain: {epochs: 1}\n"
    config = parse_config(text + rest, "x.yaml")
    info = describe("mnist")
    network = build_network(config, info)
    scaling = Preprocessing((1.0,), (0.0,))
    for shape, views, said in (
        ((1, 5, 1), "mirror+translate", r"by 1 pixel .* have 5x1 pixels; use 'mirror'"),
        ((1, 1, 5), "mirror", "views are of pictures, but the samples are sequences; use 'none'"),
    ):
        network.input_shape = shape
        with pytest.raises(ShapeError, match=said):
            network.evaluate_graph(2, "x", 2, 1, scaling, TEST_TIME[views])

"""A config becomes a network, preprocessing and optimizer, and its mistakes have places."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from dnnstack.common.errors import ConfigError, ShapeError
from dnnstack.configs import load_config, packaged_configs, parse_config
from dnnstack.configs.schema.layers import layer_names
from dnnstack.datasets import DatasetInfo, describe
from dnnstack.graph.ops import CrossEntropy
from dnnstack.layers.losses.cross_entropy import CrossEntropyLoss
from dnnstack.layers.losses.mean_squared_error import MeanSquaredErrorLoss
from dnnstack.optimizers.sgd import Sgd
from dnnstack.training.assemble import assigned, build_network, describe_data, load_data
from dnnstack.training.normalization import preprocessing
from dnnstack.training.sections import Composition, composition

from ..support.stored import beside

MNIST = describe("mnist")
REST = "optimizer: {type: sgd, lr: 0.1}\ntrain: {epochs: 1}\n"


def config(layers: str, more: str = "", data: str = "{dataset: mnist}"):
    return parse_config(f"data: {data}\nlayers: {layers}\n{REST}{more}", "x.yaml")


@pytest.mark.parametrize("name", packaged_configs())
def test_every_packaged_config_gives_a_network(name):
    loaded = load_config(name)
    info = describe_data(loaded.config)
    network = build_network(loaded.config, info, loaded.path)
    assert network.layers[-1].output_shape == (len(info.classes),)
    assert len(preprocessing(loaded.config, info).scale) == info.shape[0]


SHORTCUT_FIRST = beside(__file__, "assemble_shortcut_first.yaml")


def test_a_body_is_counted_before_its_shortcut_whichever_is_written_first():
    made = config(SHORTCUT_FIRST)
    shapes = {p.tensor.name: p.tensor.shape for p in build_network(made, MNIST).parameters()}
    assert shapes["residual_1.conv2d_2.weight"] == (6, 4, 3, 3)
    assert shapes["residual_1.conv2d_3.weight"] == (6, 4, 1, 1)
    inside = [name for name in layer_names(made.layers) if name.startswith("residual_1.")]
    assert inside == ["residual_1.conv2d_2", "residual_1.relu_1", "residual_1.conv2d_3"]
    change = "layers.residual_1.shortcut.conv2d_3.use_bias=false"
    changed = parse_config(
        f"data: {{dataset: mnist}}\nlayers: {SHORTCUT_FIRST}\n{REST}", "x.yaml", [change]
    )
    found = {p.tensor.name for p in build_network(changed, MNIST).parameters()}
    assert shapes.keys() - found == {"residual_1.conv2d_3.bias"}


def test_options_reach_their_layer():
    made = config(
        """
  - conv2d: {filters: 6, kernel_size: [3, 5], stride: 2, padding: same, groups: 1, name: first}
  - leaky_relu: {negative_slope: 0.25}
  - avg_pool2d: {pool_size: 3, stride: 1, padding: 1}
  - elu: {alpha: 0.5}
  - gelu: {approximate: true}
  - flatten
  - dense: {units: 10, use_bias: false}"""
    )
    network = build_network(made, describe_data(made))
    shapes = {p.tensor.name: p.tensor.shape for p in network.parameters()}
    assert shapes == {
        "first.weight": (6, 1, 3, 5),
        "first.bias": (6,),
        "dense_1.weight": (10, 6 * 14 * 14),
    }
    assert [layer.name for layer in network.layers][:3] == ["first", "leaky_relu_1", "avg_pool2d_1"]
    assert network.layers[1].alpha == 0.25
    assert network.layers[3].alpha == 0.5
    assert network.layers[4].op_kind == "gelu_tanh"


def test_initialisers_with_their_numbers():
    made = config(
        "[flatten, {dense: {units: 10, kernel_initializer: {normal: {mean: 3.0, std: 0.5}}, "
        "bias_initializer: {constant: {value: 0.75}}}}]"
    )
    weight, bias = build_network(made, describe_data(made)).initial_values(1).values()
    assert weight.mean() == pytest.approx(3.0, abs=0.05)
    assert weight.std() == pytest.approx(0.5, abs=0.05)
    assert (bias == np.float32(0.75)).all()
    uniform = config(
        "[flatten, {dense: {units: 10, kernel_initializer: {uniform: {limit: 0.125}}}}]"
    )
    drawn = next(iter(build_network(uniform, describe_data(uniform)).initial_values(1).values()))
    assert 0.12 < np.abs(drawn).max() <= 0.125


def test_loss_and_optimizer():
    smooth = config(
        "[flatten, {dense: {units: 10}}]", "loss: {type: cross_entropy, label_smoothing: 0.1}\n"
    )
    loss = build_network(smooth, describe_data(smooth)).loss
    assert isinstance(loss, CrossEntropyLoss)
    assert loss.formula == CrossEntropy(0.1)
    squared = config("[flatten, {dense: {units: 10}}]", "loss: mse\n")
    assert isinstance(build_network(squared, describe_data(squared)).loss, MeanSquaredErrorLoss)
    text = (
        "data: {dataset: mnist}\nlayers: [flatten, {dense: {units: 10}}]\ntrain: {epochs: 1}\n"
        "optimizer: {type: sgd, lr: 0.1, momentum: 0.9, nesterov: true, weight_decay: 0.01, "
        "weight_decay_on: weights, clip_norm: 5.0}\n"
    )
    found = composition(parse_config(text, "x.yaml"))
    assert found == Composition(
        Sgd(0.9, True, weight_decay=0.01, weight_decay_on="weights"), clip_norm=5.0
    )


def test_the_wrong_number_of_classes_is_told():
    made = config("[flatten, {dense: {units: 7}}]")
    with pytest.raises(ShapeError, match="10 classes"):
        build_network(made, describe_data(made))


COLOUR = DatasetInfo("colours", (3, 8, 8), ("a", "b"), None, None)


def test_preprocessing_one_number_serves_all_channels():
    made = config(
        "[flatten]", data="{dataset: mnist, normalize: {mean: 0.5, std: [0.25, 0.5, 1.0]}}"
    )
    scaling = preprocessing(made, COLOUR)
    pixel = 255.0
    found = [pixel * a + b for a, b in zip(scaling.scale, scaling.shift, strict=True)]
    assert found == pytest.approx([2.0, 1.0, 0.5])


@pytest.mark.parametrize(
    ("normalize", "wanted"),
    [
        ("{mean: [0.1, 0.2]}", "data.normalize.mean: has 2 numbers"),
        ("{std: [0.1, 0.2]}", "data.normalize.std: has 2 numbers"),
    ],
)
def test_normalize_with_the_wrong_number_of_channels(normalize, wanted):
    made = config("[flatten]", data=f"{{dataset: mnist, normalize: {normalize}}}")
    with pytest.raises(ConfigError, match="3 channels; give one number, or 3") as caught:
        preprocessing(made, COLOUR)
    assert wanted in str(caught.value)


def test_options_reach_the_data_set():
    made = config("[flatten]", data="{dataset: {strokes: {train_count: 30, test_count: 12}}}")
    assert describe_data(made).train_count == 30
    assert len(load_data(made, "test", Path("unused"))) == 12


def test_the_coefficient_of_a_subsampling_is_a_scale_and_does_not_decay_with_weights():
    made = parse_config(
        "data: {dataset: mnist}\nlayers: [scaled_subsampling, flatten, dense: {units: 10}]\n"
        "optimizer: {type: sgd, lr: 0.1, weight_decay: 0.5, weight_decay_on: weights,\n"
        "            groups: [{kind: scale, lr_factor: 3}]}\ntrain: {epochs: 1}\n",
        "x.yaml",
    )
    found = assigned(made, build_network(made, MNIST))
    assert {one.parameter.tensor.name: (one.lr_factor, one.weight_decay) for one in found} == {
        "scaled_subsampling_1.weight": (3.0, 0.0),
        "scaled_subsampling_1.bias": (1.0, 0.0),
        "dense_1.weight": (1.0, 0.5),
        "dense_1.bias": (1.0, 0.0),
    }


def test_softmax_is_over_a_flat_input():
    made = config("[softmax, flatten, dense: {units: 10}]")
    with pytest.raises(ShapeError, match=r"'softmax_1' .* expects a flat input, got \(1, 28, 28\)"):
        build_network(made, MNIST)

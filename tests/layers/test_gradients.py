from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from dnnstack.backends.base import Array
from dnnstack.graph.ops import ACTIVATIONS
from dnnstack.layers.build import LAYERS, LayerSpec, build_layers
from dnnstack.layers.freezing import freeze_layers
from dnnstack.layers.losses.cross_entropy import CrossEntropyLoss
from dnnstack.layers.losses.mean_squared_error import MeanSquaredErrorLoss
from dnnstack.optimizers.sgd import Sgd
from dnnstack.training.network import Network
from dnnstack.training.preprocessing import Preprocessing
from hypothesis import given, settings
from hypothesis import strategies as st

from ..support import composed
from ..support.formulas import VARIANTS, drawn_targets, fitted
from ..support.gradcheck import check_layer, check_loss, compare, compile_exact, spread
from ..support.nets import DRAWN, layers
from ..support.specs import layers_of

SEEDS = st.integers(0, 2**32 - 1)


def test_every_layer_is_drawn():
    assert set(DRAWN) == set(LAYERS) - {"heaviside"}


@pytest.mark.parametrize("kind", DRAWN)
@settings(max_examples=30)
@given(data=st.data(), batch_size=st.integers(1, 3), seed=SEEDS)
def test_layer(kind, data, batch_size, seed):
    # One sample alone may give a channel one value, which has no variance.
    check_layer(data.draw(layers(kind)), batch_size + (kind == "batch_norm"), seed)


# Rosenblatt's rule is no gradient; what it returns is tested with the perceptron.
@pytest.mark.parametrize("fusion", [False, True])
@pytest.mark.parametrize(
    "name", sorted(name for name in VARIANTS if name.partition("-")[0] != "perceptron")
)
@settings(max_examples=30)
@given(
    masks=st.lists(st.booleans(), min_size=1, max_size=5),
    reduction=st.sampled_from(["mean", "sum"]),
    seed=SEEDS,
)
def test_loss(name, fusion, masks, reduction, seed):
    loss = replace(fitted(VARIANTS[name], 5), reduction=reduction)
    target = drawn_targets(loss.target, (len(masks), 5), np.random.default_rng(seed))
    target[masks] = -1 if loss.target == "class" else np.nan
    check_loss(loss, 5, target, seed, fusion=fusion)


@pytest.mark.parametrize("fusion", [False, True])
@pytest.mark.parametrize("loss", [CrossEntropyLoss(label_smoothing=0.1), MeanSquaredErrorLoss()])
def test_whole_net(loss, fusion):
    """From the pixels to the loss. Smooth layers throughout, but for max-pooling, whose inputs are
    far apart."""
    specs = layers_of(
        "[conv2d: {filters: 4, kernel_size: 3, padding: same}, tanh, max_pool2d, "
        "conv2d: {filters: 6, kernel_size: 2, groups: 2}, silu, "
        "avg_pool2d: {pool_size: 2, stride: 1, padding: same}, flatten, "
        "dense: {units: 7, use_bias: false}, gelu, dense: {units: 5}, softmax]"
    )
    check_net(specs, loss, fusion)


@pytest.mark.parametrize("kind", [kind for kind in ACTIVATIONS if "relu" not in kind])
def test_batch_norm_with_an_activation(kind):
    """One operation by a rewrite; elu alone has a kink, in its second derivative."""
    tanh = kind == "gelu_tanh"
    layer = LayerSpec("gelu", options={"approximate": True}) if tanh else LayerSpec(kind)
    specs = [
        LayerSpec("conv2d", options={"filters": 3, "kernel_size": 3, "use_bias": False}),
        LayerSpec("batch_norm"),
        layer,
        LayerSpec("flatten"),
        LayerSpec("dense", options={"units": 5}),
        LayerSpec("batch_norm", options={"scale": False}),
        layer,
        LayerSpec("dense", options={"units": 5}),
        LayerSpec("softmax"),
    ]
    check_net(specs, CrossEntropyLoss(), True)


@pytest.mark.parametrize("fusion", [False, True])
@pytest.mark.parametrize("options", [{}, {"scale": False, "center": False}])
def test_frozen_batch_norm(options, fusion):
    """What is in front of it trains, through the derivative for given statistics."""
    specs = [
        LayerSpec("conv2d", options={"filters": 3, "kernel_size": 3}),
        LayerSpec("batch_norm", options=options),
        LayerSpec("silu"),
        LayerSpec("flatten"),
        LayerSpec("dense", options={"units": 5}),
        LayerSpec("batch_norm"),
        LayerSpec("dense", options={"units": 5}),
        LayerSpec("softmax"),
    ]
    check_net(specs, CrossEntropyLoss(), fusion, frozen=["batch_norm_*", "dense_2"])


def check_net(
    specs: list[LayerSpec],
    loss: CrossEntropyLoss | MeanSquaredErrorLoss,
    fusion: bool,
    frozen: Sequence[str] = (),
) -> None:
    """The gradients that the update receives, parameter by parameter, for pictures (2, 6, 6)."""
    built = build_layers(specs, (2, 6, 6))
    freeze_layers(built, frozen)
    network = Network(built, loss, (2, 6, 6), 5)
    pixels = Preprocessing((1 / 255, 1 / 128), (-0.4, 0.1))
    graph = composed.train_graph(network, 3, "toy", 6, 2, 2, pixels, Sgd())
    tensors = [p.tensor for p in network.parameters() if not p.frozen]
    gradients = {tensor: graph.gradient(tensor) for tensor in tensors}
    graph.results.update({g.name: g for g in gradients.values()})
    executable = compile_exact(graph, fusion)
    rng = np.random.default_rng(5)
    executable.write(graph["images"], rng.integers(0, 256, (6, 2, 6, 6)).astype(np.uint8))
    executable.write(graph["labels"], np.array([0, 4, 2, 1, 1, 3], np.int32))
    executable.write(graph["order"], np.array([5, 0, 2, 1, 3, 4], np.int32))
    # A rate of zero: the parameters stay where the difference wants them.
    executable.write(graph["rates"], np.zeros(2, np.float32))

    def along() -> Array:
        executable.write(graph["step"], np.array([1], np.int64))
        executable.run("train")
        return executable.read(graph["loss"])

    for tensor in set(network.learned()) - set(tensors):
        still = np.abs(spread(tensor.shape, rng))
        executable.write(tensor, still)
    values = {tensor: 0.5 * spread(tensor.shape, rng) for tensor in tensors}
    compare(executable, values, gradients, along, rng, "net")

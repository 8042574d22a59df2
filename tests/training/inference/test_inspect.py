"""Activations and gradients of trained networks against central differences in float64."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from dnnstack.backends.base import Options
from dnnstack.backends.onednn.backend import OneDnnBackend
from dnnstack.backends.reference.backend import ReferenceBackend
from dnnstack.common.errors import UsageError
from dnnstack.graph.ops import Quantization
from dnnstack.training.inference.inspect import (
    activations,
    compiled,
    parameter_gradients,
    score_gradients,
)
from dnnstack.training.inference.trained import Trained

from ...support.untrained import untrained

# Smooth, apart from the first two.
NETS = {
    "fused": "[conv2d: {filters: 3, kernel_size: 3}, relu, max_pool2d: {pool_size: 2}, flatten, "
    "dense: {units: 4}, softmax]",
    "flat": "[dense: {units: 5}, relu, dense: {units: 4}]",
    "convolutions": "[conv2d: {filters: 3, kernel_size: 3}, tanh, avg_pool2d: {pool_size: 2}, "
    "flatten, dense: {units: 4}, softmax]",
    "norms": "[conv2d: {filters: 2, kernel_size: 3, padding: 1, name: first}, batch_norm, dropout, "
    "residual: {body: [conv2d: {filters: 2, kernel_size: 1}, batch_norm]}, sequential: {layers: "
    "[sigmoid, global_avg_pool2d]}, dense: {units: 4}]",
    "rows": "[dense: {units: 5}, softplus, dense: {units: 4}]",
}
SMOOTH = ("convolutions", "norms", "rows")
STEP = 2.0**-9


class Exact(ReferenceBackend):
    """Computes in float64."""

    def compile(self, sections: Any, options: Options | None = None) -> Any:
        return super().compile(sections, replace(options or Options(), precision="fp64"))


def net(name: str) -> Trained:
    shape = (1, 6, 1) if name in ("flat", "rows") else (2, 6, 5)
    layers = NETS[name]
    if name in ("flat", "rows"):
        layers = layers.replace("[", "[flatten, ", 1)
    return untrained(layers, shape, 4)


def inputs(trained: Trained, count: int = 3) -> np.ndarray[Any, Any]:
    return np.random.default_rng(7).standard_normal((count, *trained.input_shape)).astype("f4")


@pytest.mark.parametrize("name", NETS)
def test_every_layer_is_read_and_backends_agree(name: str) -> None:
    trained = net(name)
    x = inputs(trained)
    found = activations(trained, Exact(1), x)
    layers = {layer.name: layer for layer in trained.network.scoring()}
    assert [n for n in found if n in layers] == list(layers)
    assert all(found[n].shape == (3, *layers[n].output_shape) for n in found if n in layers)
    # The last layer, from what comes before it.
    *_, before, last, probabilities = found
    weight, bias = (trained.checkpoint.arrays[f"{last}.{part}"] for part in ("weight", "bias"))
    np.testing.assert_allclose(found[last], found[before] @ weight.T + bias, rtol=1e-6)
    shares = np.exp(found[last])
    np.testing.assert_allclose(found[probabilities], shares / shares.sum(1, keepdims=True))
    if name == "norms":
        assert (
            found["residual_1.batch_norm_2"] + found["batch_norm_1"] == found["residual_1"]
        ).all()
        assert found["sequential_1.sigmoid_1"].shape == (3, 2, 6, 5)
    other = activations(trained, OneDnnBackend(1), x)
    assert list(other) == list(found)
    for key, value in found.items():
        np.testing.assert_allclose(other[key], value, atol=2e-5, err_msg=key)
    exact, rounded = (
        score_gradients(trained, backend, x, np.array([1, 0, 3]))
        for backend in (Exact(1), OneDnnBackend(1))
    )
    np.testing.assert_allclose(rounded[2], exact[2], atol=2e-5)
    for layer, upon in exact[1].items():
        assert upon.shape == exact[0][layer].shape
        np.testing.assert_allclose(rounded[1][layer], upon, atol=2e-5, err_msg=layer)
    # A small change of any layer's output changes the score as the gradient upon it says.
    np.testing.assert_allclose(exact[1][last], np.eye(4)[[1, 0, 3]])
    np.testing.assert_allclose(exact[1][before], weight[[1, 0, 3]], rtol=1e-6)


@pytest.mark.parametrize("name", SMOOTH)
def test_the_gradient_upon_the_input(name: str) -> None:
    trained = net(name)
    x, rng = inputs(trained).astype("f8"), np.random.default_rng(3)
    classes, along = np.array([2, 0, 3]), rng.standard_normal(x.shape)
    *_, found = score_gradients(trained, Exact(1), x, classes)
    graph, executable = compiled(trained, Exact(1), 3, slopes=False)
    run = executable.function(graph.name, graph["x"], graph["scores"])
    up, down = (run(x + h * along)[range(3), classes] for h in (1e-5, -1e-5))
    np.testing.assert_allclose((found * along).sum((1, 2, 3)), (up - down) / 2e-5, rtol=1e-6)


def test_a_network_without_gradient_is_refused() -> None:
    trained = net("flat")
    integers = replace(trained.checkpoint, quantization={"dense_1": Quantization(0.1, 0)})
    with pytest.raises(UsageError, match=r"no gradients; .*occlusion"):
        compiled(replace(trained, checkpoint=integers), ReferenceBackend(1), 1, True)
    stepped = untrained("[flatten, dense: {units: 2}, heaviside]", classes=2, loss="perceptron")
    with pytest.raises(UsageError, match="no gradients"):
        score_gradients(stepped, ReferenceBackend(1), inputs(stepped), np.zeros(3, int))


@pytest.mark.parametrize("name", SMOOTH)
def test_the_gradients_upon_parameters(name: str) -> None:
    trained, targets = net(name), np.array([1, 3, 3], np.int32)
    samples = np.random.default_rng(7).integers(0, 256, (3, *trained.input_shape), np.uint8)
    found = parameter_gradients(trained, Exact(1), samples, targets)
    assert list(found) == [p.tensor.name for p in trained.network.parameters()]
    rng = np.random.default_rng(5)
    for key, gradient in found.items():
        along = rng.choice([-STEP, STEP], gradient.shape).astype(np.float32)
        up, down = (_loss(trained, key, sign * along, samples, targets) for sign in (1, -1))
        assert (gradient * along).sum() == pytest.approx((up - down) / 2, abs=1e-6), key


def _loss(trained: Trained, name: str, by: Any, samples: Any, targets: Any) -> float:
    arrays = {**trained.checkpoint.arrays}
    arrays[name] = arrays[name] + by
    other = replace(trained, checkpoint=replace(trained.checkpoint, arrays=arrays))
    scaling, count = other.checkpoint.provenance.preprocessing, len(samples)
    graph = other.network.plain_graph("loss", count, "given", count, 1, scaling, other.config.seed)
    executable = other.compile(Exact(1), graph)
    for key, array in (("images", samples), ("labels", targets), ("order", np.arange(3))):
        executable.write(graph[key], array.astype(graph[key].dtype))
    executable.run(graph.name)
    return float(executable.read(graph["loss"])[0])

"""Heat over pictures, against what a person computes of known weights."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dnnstack.backends.reference.backend import ReferenceBackend
from dnnstack.common.errors import UsageError
from dnnstack.graph.ops.quantized import Quantization
from dnnstack.training.inference.inspect import activations
from dnnstack.training.inference.parts import load_part
from dnnstack.training.inference.trained import Trained, find_trained
from dnnstack.training.inference.why import grad_cam, heat, last_maps
from dnnstack.training.trainer import train

from ...support.untrained import untrained

BACKEND = ReferenceBackend(1)
LINEAR = "[flatten, dense: {units: 3}]"
POOLED = "[conv2d: {filters: 4, kernel_size: 3}, relu, global_avg_pool2d, dense: {units: 3}]"


def drawn(shape: tuple[int, ...]) -> Any:
    return np.random.default_rng(4).integers(0, 256, shape, np.uint8)


@pytest.mark.parametrize(
    ("shape", "side", "rows", "columns"),
    [
        ((1, 10, 11), 2, range(9), range(10)),
        ((2, 31, 34), 6, [*range(0, 25, 2), 25], [*range(0, 28, 2), 28]),
        ((1, 2, 3), 1, range(2), range(3)),
    ],
)
def test_occlusion_of_a_linear_network(
    shape: tuple[int, int, int], side: int, rows: Any, columns: Any
) -> None:
    """A square takes away its weights times what its pixels have above the median."""
    trained, picture = untrained(LINEAR, shape, 3), drawn(shape)
    weight = trained.checkpoint.arrays["dense_1.weight"][2].reshape(shape)
    scale = np.array(trained.checkpoint.provenance.preprocessing.scale)[:, None, None]
    above = picture - np.floor(np.median(picture, (1, 2), keepdims=True))
    share = (weight * scale * above).sum(0)
    total, count = np.zeros((2, *shape[1:]))
    for top in rows:
        for left in columns:
            square = np.s_[top : top + side, left : left + side]
            total[square] += share[square].sum()
            count[square] += 1
    found = heat(trained, BACKEND, "occlusion", picture, 2)
    np.testing.assert_allclose(found, total / count, atol=2e-5)


def test_gradient_times_input_of_a_linear_network() -> None:
    trained, picture = untrained(LINEAR, (2, 4, 5), 3), drawn((2, 4, 5))
    weight = trained.checkpoint.arrays["dense_1.weight"][1].reshape(2, 4, 5)
    x = trained.checkpoint.provenance.preprocessing(picture)
    found = heat(trained, BACKEND, "gradient", picture, 1)
    np.testing.assert_allclose(found, np.maximum((weight * x).sum(0), 0), rtol=1e-5)
    assert (found == 0).any()
    assert (found > 0).any()


def test_grad_cam_weighs_maps_by_their_mean_gradients() -> None:
    trained, picture = untrained(POOLED, (1, 6, 7), 3), drawn((1, 6, 7))
    x = trained.checkpoint.provenance.preprocessing(picture[None])
    maps = activations(trained, BACKEND, x)["relu_1"][0]
    # Each pixel of a map counts as much in its mean, which the dense layer weighs.
    weights = trained.checkpoint.arrays["dense_1.weight"][2] / 20
    wanted = np.maximum((weights[:, None, None] * maps).sum(0), 0)
    assert wanted.any()
    np.testing.assert_allclose(heat(trained, BACKEND, "grad-cam", picture, 2), wanted, rtol=1e-5)
    slopes = np.stack([np.full((4, 5), -1.0), np.arange(20).reshape(4, 5)])
    maps = np.stack([np.full((4, 5), 9.5), np.eye(4, 5)])
    np.testing.assert_array_equal(grad_cam(maps, slopes), np.zeros((4, 5)))
    np.testing.assert_array_equal(grad_cam(maps[1:], slopes[1:]), 9.5 * np.eye(4, 5))


def quantized(trained: Trained) -> Trained:
    name = {"dense_1": Quantization(0.1, 0)}
    return replace(trained, checkpoint=replace(trained.checkpoint, quantization=name))


@pytest.mark.parametrize(
    ("layers", "chosen"),
    [
        (POOLED, "relu_1"),
        ("[conv2d: {filters: 2, kernel_size: 3}, max_pool2d: {pool_size: 2}, flatten, "
         "dense: {units: 3}]", "conv2d_1"),
        ("[avg_pool2d: {pool_size: 2}, conv2d: {filters: 2, kernel_size: 1}, residual: {body: "
         "[conv2d: {filters: 2, kernel_size: 3, padding: 1}]}, tanh, flatten, dense: {units: 3}]",
         "tanh_1"),
        ("[conv2d: {filters: 2, kernel_size: 3}, relu, conv2d: {filters: 3, kernel_size: [4, 5]}, "
         "relu, flatten, dense: {units: 3}]", "relu_1"),
        ("[avg_pool2d: {pool_size: 2}, flatten, dense: {units: 3}]", None),
    ],
)  # fmt: skip
def test_the_maps_of_grad_cam(layers: str, chosen: str | None) -> None:
    trained = untrained(layers, (1, 6, 7), 3)
    assert last_maps(trained) == chosen
    assert last_maps(quantized(trained)) is None
    if chosen is None:
        with pytest.raises(UsageError, match=r"no conv2d with maps .* the method occlusion"):
            heat(trained, BACKEND, "grad-cam", drawn((1, 6, 7)), 0)


def test_heat_lies_on_the_digit_and_not_on_clutter(tiny: Any, tmp_path: Path) -> None:
    """Beside each of ten digits lies a block of noise that says nothing about its class."""
    config = tiny("run.device=numpy", "train.epochs=6", "data.dataset.strokes.train_count=600")
    train(config, BACKEND, tmp_path)
    trained = find_trained(None, None, tmp_path / "runs", lambda text: None)
    images, rows = load_part(trained, "test", tmp_path)
    noise = np.random.default_rng(6).integers(0, 256, (5, 5), np.uint8)
    found: dict[str, list[tuple[float, float]]] = {}
    for row in rows[:10]:
        picture = images.images[row].copy()
        picture[0, :6, :6], picture[0, :5, :5] = 0, noise
        for method in ("grad-cam", "gradient", "occlusion"):
            hot = heat(trained, BACKEND, method, picture, int(images.labels[row]))
            hot = np.kron(hot, np.ones((28 // len(hot), 28 // len(hot))))
            ink = picture[0, : len(hot), : len(hot)] > 60
            ink[:6, :6] = False
            found.setdefault(method, []).append((hot[ink].mean(), hot[:5, :5].mean()))
    for method, means in found.items():
        digit, clutter = np.mean(means, 0)
        assert digit > max(0.0, 1.5 * clutter), method

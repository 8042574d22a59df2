"""Layers made of layers: shapes, names, shortcuts, whole nets on every backend alike."""

from __future__ import annotations

from typing import Any

import pytest
from dnnstack.common.errors import ConfigError, ShapeError
from dnnstack.layers.build import LayerSpec, build_layers

from ..support.nets_composite import conv

PICTURE = (2, 9, 9)
RELU, FLATTEN = LayerSpec("relu"), LayerSpec("flatten")


def residual(body: list[LayerSpec], shortcut: Any = "identity", name: str = "") -> LayerSpec:
    return LayerSpec("residual", name, {"body": body, "shortcut": shortcut})


def concat(*branches: list[LayerSpec]) -> LayerSpec:
    return LayerSpec("concat", options={"branches": list(branches)})


def sequential(*layers: LayerSpec, name: str = "") -> LayerSpec:
    return LayerSpec("sequential", name, {"layers": list(layers)})


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

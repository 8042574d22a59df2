"""Layers made of layers: shapes, names, shortcuts, whole nets on every backend alike."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from dnnstack.backends.base import Array, Backend, Options
from dnnstack.backends.reference.backend import ReferenceBackend
from dnnstack.common.errors import ConfigError, ShapeError
from dnnstack.layers.build import LayerSpec, build_layers
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

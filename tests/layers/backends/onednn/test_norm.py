"""What batch norm, local response normalisation and dropout become in oneDNN."""

from __future__ import annotations

import numpy as np
import pytest
from dnnstack.layers.backends.base import BoundCall, Options
from dnnstack.layers.backends.onednn.backend import OneDnnBackend
from dnnstack.layers.backends.onednn.executable import OneDnnExecutable
from dnnstack.layers.build import LayerSpec, build_layers
from dnnstack.layers.graph import Graph, Op
from dnnstack.layers.losses import CrossEntropyLoss
from dnnstack.layers.ops import BatchNorm, BatchNormBackward
from dnnstack.training.network import Network, Preprocessing
from dnnstack.training.sgd import Sgd

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
        graph = network.train_graph(4, "train", 8, 2, 4, scaling, Sgd(), seed=1)
    else:
        graph = network.infer_graph(4)
    executable = onednn.compile({graph.name: graph}, Options(fusion=fusion, tune=False))
    return graph, executable


def calls(executable: OneDnnExecutable, *kinds: type[Op]) -> list[BoundCall]:
    (section,) = executable.graphs
    return [call for call in executable.calls(section) if isinstance(call.op, kinds)]


@pytest.mark.parametrize("fusion", [False, True])
def test_batch_norm_is_a_primitive_that_takes_relu_along(
    onednn: OneDnnBackend, fusion: bool
) -> None:
    _, executable = compiled(onednn, fusion)
    found = calls(executable, BatchNorm, BatchNormBackward)
    primitives = [call for call in found if call.library == "oneDNN"]
    functions = [call.function for call in primitives if call.function != "dnnl_reorder"]
    forward, backward = (f"dnnl_batch_normalization_{way}" for way in ("forward", "backward"))
    assert functions == [forward, backward]
    for call in primitives:
        assert not call.implementation.startswith("ref")
        if call.function != "dnnl_reorder":
            assert ("workspace" in call.arguments) == fusion
            assert ("relu_1" in [origin.layer for origin in call.op.origin]) == fusion
    executable.close()


def test_inference_needs_no_host(onednn: OneDnnBackend) -> None:
    _, executable = compiled(onednn, True, training=False)
    (section,) = executable.graphs
    assert {call.library for call in executable.calls(section)} == {"oneDNN"}
    executable.close()


def test_a_gradient_that_backward_wrote_over_cannot_be_read(onednn: OneDnnBackend) -> None:
    graph, executable = compiled(onednn, False)
    executable.write(graph["images"], np.zeros((8, *PICTURE), np.uint8))
    executable.write(graph["labels"], np.zeros(8, np.int32))
    executable.write(graph["order"], np.arange(8, dtype=np.int32))
    executable.write(graph["rates"], np.zeros(4, np.float32))
    executable.run("train")
    back = next(op for op in graph.ops if isinstance(op, BatchNormBackward))
    with pytest.raises(KeyError, match="given to a later tensor"):
        executable.read(back.dy)
    assert executable.read(back.dx).shape == back.dx.shape
    executable.close()


def test_measuring_leaves_the_statistics_alone(onednn: OneDnnBackend) -> None:
    graph, executable = compiled(onednn, True)
    executable.write(graph["images"], np.full((8, *PICTURE), 9, np.uint8))
    executable.write(graph["labels"], np.zeros(8, np.int32))
    executable.write(graph["order"], np.arange(8, dtype=np.int32))
    executable.write(graph["rates"], np.zeros(4, np.float32))
    norm = next(op for op in graph.ops if isinstance(op, BatchNorm))
    executable.write(norm.running_mean, np.full(16, 0.5, np.float32))
    executable.measure("train", 2)
    np.testing.assert_array_equal(executable.read(norm.running_mean), np.float32(0.5))
    executable.close()

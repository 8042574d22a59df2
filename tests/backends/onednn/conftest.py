from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from dnnstack.backends.base import Executable, Options
from dnnstack.common.errors import BackendUnavailableError
from dnnstack.graph.graph import Graph
from dnnstack.layers.build import LayerSpec, build_layers
from dnnstack.layers.losses.cross_entropy import CrossEntropyLoss
from dnnstack.optimizers.sgd import Sgd
from dnnstack.training.network import Network
from dnnstack.training.preprocessing import Preprocessing

from ...support import composed

COUNT, BATCH = 64, 16
CONV_NET = (
    LayerSpec("conv2d", options={"filters": 20, "kernel_size": 3}),
    LayerSpec("relu"),
    LayerSpec("max_pool2d"),
    LayerSpec("conv2d", options={"filters": 18, "kernel_size": 3}),
    LayerSpec("flatten"),
    LayerSpec("dense", options={"units": 10}),
    LayerSpec("softmax"),
)

Make = Callable[..., tuple[Network, dict[str, Graph], Executable]]


@pytest.fixture
def onednn():
    from dnnstack.backends.onednn.backend import OneDnnBackend

    try:
        return OneDnnBackend(1)
    except BackendUnavailableError as error:
        pytest.skip(f"oneDNN cannot be used here: {error}")


@pytest.fixture
def make(onednn):
    """Compile a small network for pictures of 3 x 12 x 12, with data and initial values written."""

    def compile_net(
        specs=CONV_NET, options: Options | None = None, rule: Sgd | None = None, evaluate=False
    ):
        shape = (3, 12, 12)
        network = Network(build_layers(specs, shape), CrossEntropyLoss(), shape, 10)
        scaling = Preprocessing.standardize([0.4, 0.5, 0.6], [0.2, 0.3, 0.25])
        rule = rule or Sgd(momentum=0.9, weight_decay=0.01)
        graphs = {
            "train": composed.train_graph(
                network, BATCH, "train", COUNT, COUNT // BATCH, 50, scaling, rule
            )
        }
        if evaluate:
            graphs["evaluate"] = network.evaluate_graph(BATCH, "train", COUNT, 2, scaling)
        executable = onednn.compile(graphs, options or Options(tune=False))
        draw = np.random.default_rng(3)
        train = graphs["train"]
        executable.write(train["images"], draw.integers(0, 256, (COUNT, *shape), dtype=np.uint8))
        executable.write(train["labels"], draw.integers(0, 10, COUNT).astype(np.int32))
        executable.write(train["order"], draw.permutation(COUNT).astype(np.int32))
        executable.write(train["rates"], np.full(50, 0.05, np.float32))
        for tensor, values in network.initial_values(1).items():
            executable.write(tensor, values)
        return network, graphs, executable

    return compile_net

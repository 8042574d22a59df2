from __future__ import annotations

from collections.abc import Callable

import pytest
from dnnstack.backends.base import Executable, Options
from dnnstack.common.errors import BackendUnavailableError
from dnnstack.graph.graph import Graph
from dnnstack.optimizers.sgd import Sgd
from dnnstack.training.network import Network
from dnnstack.training.preprocessing import Preprocessing

from ...support import composed
from ...support.feeding import feed
from ...support.specs import layers_of, network_of

COUNT, BATCH = 64, 16
CONV_NET = layers_of(
    "[conv2d: {filters: 20, kernel_size: 3}, relu, max_pool2d, "
    "conv2d: {filters: 18, kernel_size: 3}, flatten, dense: {units: 10}, softmax]"
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
        network = network_of(specs, (3, 12, 12))
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
        feed(executable, network, graphs["train"], 0.05, shuffled=True)
        return network, graphs, executable

    return compile_net

"""The first losses of small nets against those that another library computed in float64."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dnnstack.backends.base import Array, Backend, Options
from dnnstack.backends.reference.backend import ReferenceBackend
from dnnstack.layers.build import LayerSpec, build_layers
from dnnstack.layers.losses import LOSSES
from dnnstack.optimizers.sgd import Sgd
from dnnstack.training.network import Network
from dnnstack.training.preprocessing import Preprocessing

from ..support import composed
from ..support.golden import golden_nets
from ..support.golden.golden_nets import NETS
from ..support.opened import opened

LOSSES_OF = json.loads(
    (Path(__file__).parents[1] / "support" / "golden" / "losses.json").read_text()
)["losses"]


def specified(layers: list[tuple[str, dict[str, Any]]]) -> list[LayerSpec]:
    """The layers as specifications, however deep."""
    found = []
    for kind, options in layers:
        made = dict(options)
        for key in {"body", "shortcut"} & options.keys():
            if isinstance(options[key], list):
                made[key] = specified(options[key])
        if "branches" in options:
            made["branches"] = [specified(branch) for branch in options["branches"]]
        found.append(LayerSpec(kind, options=made))
    return found


def train(net: golden_nets.Net, backend: Backend, options: Options) -> list[float]:
    """The loss of every step, the whole run as one list of operations a step."""
    specs = specified(net.layers)
    smoothing = {"label_smoothing": net.label_smoothing} if net.loss == "cross_entropy" else {}
    loss = LOSSES[net.loss](**smoothing)
    network = Network(build_layers(specs, net.picture), loss, net.picture, golden_nets.CLASSES)
    channels = net.picture[0]
    graph = composed.train_graph(
        network,
        golden_nets.BATCH,
        "golden",
        golden_nets.COUNT,
        golden_nets.STEPS,
        golden_nets.STEPS,
        Preprocessing((golden_nets.SCALE,) * channels, (golden_nets.SHIFT,) * channels),
        Sgd(net.momentum, net.nesterov, weight_decay=net.weight_decay),
    )
    executable = backend.compile({"train": graph}, options)
    for place, parameter in enumerate(network.parameters()):
        tensor = parameter.tensor
        executable.write(tensor, golden_nets.weights(tensor.shape, place))
    written: dict[str, Array] = {
        "images": golden_nets.images(net.picture),
        "labels": golden_nets.labels(),
        "order": golden_nets.order(),
        "rates": np.full(golden_nets.STEPS, net.lr, np.float32),
    }
    for name, array in written.items():
        executable.write(graph[name], array)
    found = []
    for _ in range(golden_nets.STEPS):
        executable.run("train")
        found.append(float(executable.read(graph["loss"])[0]))
    executable.close()
    return found


@pytest.mark.parametrize("fusion", [False, True])
@pytest.mark.parametrize("name", NETS)
def test_float64(name, fusion):
    got = train(NETS[name], ReferenceBackend(1), Options("fp64", fusion=fusion))
    np.testing.assert_allclose(got, LOSSES_OF[name], rtol=1e-12)


@pytest.mark.parametrize("fusion", [False, True])
@pytest.mark.parametrize("name", NETS)
@pytest.mark.parametrize("backend", ["numpy", "cpu"])
def test_float32(backend, name, fusion):
    got = train(NETS[name], opened(backend, 2), Options(fusion=fusion, tune=False))
    np.testing.assert_allclose(got, LOSSES_OF[name], rtol=1e-5)


def test_tuned_layouts():
    got = train(NETS["lenet"], opened("cpu", 2), Options())
    np.testing.assert_allclose(got, LOSSES_OF["lenet"], rtol=1e-5)

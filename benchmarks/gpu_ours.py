"""dnnstack's training step for gpu_peers.py, through its Python interface."""

from __future__ import annotations

import os
from math import inf

import numpy as np
from dnnstack.backends.base import Options
from dnnstack.backends.select import open_backend
from dnnstack.configs import load_config
from dnnstack.datasets import describe
from dnnstack.layers.build import LayerSpec, build_layers
from dnnstack.layers.losses.cross_entropy import CrossEntropyLoss
from dnnstack.optimizers.sgd import Sgd
from dnnstack.training.assemble import build_network
from dnnstack.training.network import Network
from dnnstack.training.preprocessing import Preprocessing
from gpu_worker import CLASSES, DECAY, MOMENTUM, Built, Net, data, order, rate

STEPS = 1 << 18


def described(net: Net) -> Network:
    if net.config:
        config = load_config(net.config).config
        return build_network(config, describe(config.data.dataset.type))
    specs = [LayerSpec(kind, options=options) for kind, options in net.layers]
    return Network(build_layers(specs, net.shape), CrossEntropyLoss(), net.shape, CLASSES)


def build(peer: str, net: Net, variant: str, device: str) -> Built:
    """``variant``: tf32, bf16, fp32; with /plain library calls alone, with /calls no graph.

    The environment's TUNE: "search" leaves no plan out, "none" times nothing.
    """
    precision, _, way = variant.partition("/")
    network = described(net)
    scaling = Preprocessing.standardize([0.0] * net.shape[0], [1.0] * net.shape[0])
    batches = order(net)
    rule = Sgd(momentum=MOMENTUM, weight_decay=DECAY)
    graph = network.train_graph(net.batch, "train", net.count, len(batches), STEPS, scaling, rule)
    backend = open_backend("cuda" if device == "cuda" else "cpu", capture=way != "calls")
    tune = os.environ.get("TUNE", "")
    options = Options(
        precision if device == "cuda" else "auto",  # type: ignore[arg-type]
        fusion=way != "plain",
        tune=tune != "none",
        tune_seconds=inf if tune == "search" else None,
    )
    executable = backend.compile({"train": graph}, options)
    images, labels = data(net)
    executable.write(graph["images"], images)
    executable.write(graph["labels"], labels)
    executable.write(graph["order"], batches.reshape(-1))
    executable.write(graph["rates"], np.array([rate(t) for t in range(STEPS)], np.float32))
    for tensor, values in network.initial_values(1).items():
        executable.write(tensor, values)

    def run(steps: int) -> int:
        executable.run("train", steps)
        return steps

    def loss() -> float:
        return float(executable.read(graph["loss"])[0])

    versions = ", ".join(f"{name} {version}" for name, version in backend.versions().items())
    return Built(run, loss, versions, executable.tuning.choices)

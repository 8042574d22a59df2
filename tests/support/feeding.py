"""What a small network on a backend is given, and the losses of its steps."""

from __future__ import annotations

import numpy as np
from dnnstack.backends.base import Executable
from dnnstack.graph.graph import Graph
from dnnstack.training.network import Network


def feed(
    executable: Executable, network: Network, graph: Graph, rate: float, shuffled: bool = False
) -> None:
    """Write drawn pictures and labels, an order, one rate and fresh parameters."""
    draw = np.random.default_rng(3)
    shape = graph["images"].shape
    executable.write(graph["images"], draw.integers(0, 256, shape, dtype=np.uint8))
    executable.write(graph["labels"], draw.integers(0, network.classes, shape[0]).astype(np.int32))
    order = draw.permutation(shape[0]) if shuffled else np.arange(shape[0])
    executable.write(graph["order"], order.astype(np.int32))
    executable.write(graph["rates"], np.full(graph["rates"].shape, rate, np.float32))
    for tensor, values in network.initial_values(1).items():
        executable.write(tensor, values)


def losses_of(executable: Executable, graph: Graph, steps: int) -> list[float]:
    """Those of so many steps of the section "train", one after the other."""
    losses = []
    for _ in range(steps):
        executable.run("train")
        losses.append(float(executable.read(graph["loss"])[0]))
    return losses

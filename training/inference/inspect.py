"""What a trained network computes inside: activations, and gradients of its scores."""

from __future__ import annotations

import copy
from contextlib import closing
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...backends.base import Backend, Executable
from ...common.errors import UsageError
from ...graph.graph import Graph
from ...layers.composite import backward_all, mapped
from ...layers.layer import Layer
from .trained import Trained

Array = NDArray[Any]
Named = dict[str, Array]


def activations(trained: Trained, backend: Backend, x: Array) -> Named:
    """The output of every layer, (N, *shape), by name, in order; at last ``probabilities``.

    x: (N, C, H, W), normalised.
    """
    graph, executable = compiled(trained, backend, len(x), slopes=False)
    with closing(executable):
        executable.function(graph.name, graph["x"], graph["probabilities"])(x)
        found = {**graph.outputs, "probabilities": graph["probabilities"]}
        return {name: executable.read(tensor) for name, tensor in found.items()}


def score_gradients(
    trained: Trained, backend: Backend, x: Array, classes: Array
) -> tuple[Named, Named, Array]:
    """Of scores[n, classes[n]], before a softmax: activations, gradients upon these and upon x.

    x: (N, C, H, W), normalised. Layers compute as in inference. Raises UsageError.
    """
    graph, executable = compiled(trained, backend, len(x), slopes=True)
    with closing(executable):
        executable.write(graph["slope"], np.eye(len(trained.classes), dtype=np.float32)[classes])
        dx = executable.function(graph.name, graph["x"], graph["dx"])(x).reshape(x.shape)
        found = {n: executable.read(t) for n, t in graph.outputs.items()}
        return found, {n: executable.read(t) for n, t in graph.output_gradients.items()}, dx


def compiled(
    trained: Trained, backend: Backend, count: int, slopes: bool
) -> tuple[Graph, Executable]:
    """``infer_graph`` that keeps every layer's output, and with ``slopes`` computes ``dx`` too.

    Raises UsageError for a network that has no gradients of its scores.
    """
    exact = all(layer.differentiable for layer in trained.network.every_layer())
    if slopes and (not exact or trained.checkpoint.quantization):
        raise UsageError(f"{trained.path}: has no gradients; use --method occlusion")
    network = trained.network.computed_by(mapped(trained.network.layers, _fixed))
    graph = network.infer_graph(count)
    if slopes:
        slope = graph.tensor("slope", graph["scores"].shape, "float32", "input")
        graph.results |= {"slope": slope, "dx": backward_all(network.scoring(), graph, slope)}
    for what in (graph.outputs, graph.output_gradients):
        graph.results |= {f"{t.name} of {name}": t for name, t in what.items()}
    graph.prune()
    return graph, trained.compile(backend, graph)


def _fixed(layer: Layer) -> Layer:
    """One with running statistics, so that its backward takes them as constants, too."""
    if layer.running_statistics():
        layer = copy.copy(layer)
        layer.frozen = True
    return layer

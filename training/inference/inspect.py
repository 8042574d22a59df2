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


def parameter_gradients(
    trained: Trained, backend: Backend, samples: Array, targets: Array
) -> Named:
    """The gradient of a batch's loss upon every parameter that is trained, by its name.

    samples: (N, C, H, W) as training reads them, bytes of pictures; targets: those of the loss.
    Layers compute as in training: batch norm with the statistics of this batch.
    """
    count, scaling = len(samples), trained.checkpoint.provenance.preprocessing
    given = ("gradients", count, "given", count, 1, scaling, trained.config.seed)
    graph = trained.network.plain_graph(*given)
    parameters = [p.tensor for p in trained.network.parameters() if not p.frozen]
    graph.results |= {tensor.name: graph.gradient(tensor) for tensor in parameters}
    with closing(trained.compile(backend, graph, "device")) as executable:
        order = np.arange(count, dtype=np.int32)
        for name, array in {"images": samples, "labels": targets, "order": order}.items():
            executable.write(graph[name], array)
        executable.run(graph.name)
        return {tensor.name: executable.read(graph[tensor.name]) for tensor in parameters}


def compiled(
    trained: Trained, backend: Backend, count: int, slopes: bool
) -> tuple[Graph, Executable]:
    """``infer_graph`` that keeps every layer's output, and with ``slopes`` computes ``dx`` too.

    Raises UsageError for a network that has no gradients of its scores.
    """
    exact = all(layer.differentiable for layer in trained.network.every_layer())
    if slopes and (not exact or trained.checkpoint.quantization):
        raise UsageError(f"{trained.path}: has no gradients; the method occlusion needs none")
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

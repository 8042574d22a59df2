"""What a trained network computes inside: activations, and gradients of scores and of the loss."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...backends.base import Backend
from ...common.errors import UsageError
from .trained import Trained

Array = NDArray[Any]
Named = dict[str, Array]


def activations(trained: Trained, backend: Backend, x: Array) -> Named:
    """The output of every layer, (N, *shape), by name and in their order.

    x: (N, C, H, W), normalised. ``probabilities`` are what a final softmax or sigmoid gives.
    """
    graph = trained.network.infer_graph(len(x))
    outputs = {name: t for name, t in graph.outputs.items() if t.role != "input"}
    outputs["probabilities"] = graph["probabilities"]
    graph.results |= {f"of {name}": tensor for name, tensor in outputs.items()}
    executable = trained.compile(backend, graph)
    try:
        executable.function(graph.name, graph["x"], graph["probabilities"])(x)
        return {name: executable.read(tensor) for name, tensor in outputs.items()}
    finally:
        executable.close()


def parameter_gradients(trained: Trained, backend: Backend, x: Array, target: Array) -> Named:
    """The gradient of a batch's loss upon every trained parameter, by its name.

    x: (N, C, H, W), normalised; target: (N,) int32 classes, or the loss's (N, K) float32. Layers
    compute as in training: batch norm with the statistics of this batch. Raises UsageError.
    """
    check_gradients(trained)
    network = trained.network
    graph = network.gradient_graph(len(x), trained.config.seed)
    executable = trained.compile(backend, graph)
    try:
        executable.write(graph["target"], target)
        executable.function(graph.name, graph["x"], graph["loss"])(x)
        trainable = (p.tensor.name for p in network.parameters() if not p.frozen)
        return {name: executable.read(graph[name]) for name in trainable}
    finally:
        executable.close()


def input_gradient(trained: Trained, backend: Backend, x: Array, classes: Array) -> Array:
    """d scores[n, classes[n]] / dx, (N, C, H, W): of the scores before a softmax. x: normalised."""
    scores = Scores(trained, backend, len(x))
    try:
        return scores.gradient(x, np.eye(len(trained.classes), dtype=np.float32)[classes])
    finally:
        scores.close()


def check_gradients(trained: Trained) -> None:
    """Raise UsageError for a network that has no gradient."""
    stuck = [layer for layer in trained.network.every_layer() if not layer.differentiable]
    why = f"layer '{stuck[0].name}' ({stuck[0].kind}) has none" if stuck else ""
    if trained.checkpoint.quantization:
        why = "it computes with 8-bit integers"
    if why:
        raise UsageError(f"{trained.path}: has no gradient: {why}; use --method occlusion")


class Scores:
    """The scores of ``count`` inputs before a softmax, and their gradients; compiled once.

    ``layer``: one whose output and the gradient upon it can be read, too. Raises UsageError for a
    network without gradient.
    """

    def __init__(
        self, trained: Trained, backend: Backend, count: int = 1, layer: str | None = None
    ) -> None:
        check_gradients(trained)
        self.graph = graph = trained.network.score_graph(count)
        if layer is not None:
            ends = {"output": graph.outputs[layer], "slopes": graph.output_gradients[layer]}
            graph.results |= ends
        self._executable = trained.compile(backend, graph)
        self._executable.write(graph["slope"], np.zeros(graph["slope"].shape, np.float32))

    def __call__(self, x: Array) -> Array:
        """(N, C, H, W), normalised -> (N, K)."""
        return self._executable.function(self.graph.name, self.graph["x"], self.graph["scores"])(x)

    def gradient(self, x: Array, slope: Array) -> Array:
        """d sum(slope * scores) / dx, (N, C, H, W); slope: (N, K)."""
        self._executable.write(self.graph["slope"], slope)
        self(x)
        return self._executable.read(self.graph["dx"]).reshape(x.shape)

    def read(self, name: str) -> Array:
        """A result of the last call: ``output`` or ``slopes`` of the layer."""
        return self._executable.read(self.graph[name])

    def close(self) -> None:
        """Free it."""
        self._executable.close()

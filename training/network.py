"""Network: a stack of layers with its loss, and the graphs of its three sections."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..common import random
from ..common.errors import ConfigError, ShapeError
from ..layers.catalog import LAYERS
from ..layers.graph import Graph, Shape, Tensor
from ..layers.layer import Layer, Parameter, Statistic
from ..layers.losses import CrossEntropyLoss, Loss
from ..layers.ops import Advance, GatherBatch, Softmax
from ..layers.softmax import SoftmaxLayer
from .sgd import Sgd


@dataclass(frozen=True)
class LayerSpec:
    """A layer as a config names it; ``name`` "" takes ``<kind>_<n>``."""

    kind: str
    name: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Preprocessing:
    """x = pixel * scale + shift, one number a channel; pixels are 0 to 255."""

    scale: tuple[float, ...]
    shift: tuple[float, ...]

    @classmethod
    def standardize(cls, mean: Sequence[float], std: Sequence[float]) -> Preprocessing:
        """x = (pixel / 255 - mean) / std."""
        scale = tuple(1.0 / (255.0 * s) for s in std)
        return cls(scale, tuple(-m / s for m, s in zip(mean, std, strict=True)))


def build_layers(specs: Sequence[LayerSpec], input_shape: Shape) -> list[Layer]:
    """Layers with all shapes worked out, input_shape: (C, H, W).

    Raises ShapeError with the layer's place and name, ConfigError for a name used twice.
    """
    layers: list[Layer] = []
    counts: Counter[str] = Counter()
    seen: set[str] = set()
    shape = input_shape
    for position, spec in enumerate(specs, 1):
        counts[spec.kind] += 1
        name = spec.name or f"{spec.kind}_{counts[spec.kind]}"
        if name in seen:
            raise ConfigError(
                f"layer {position} '{name}' ({spec.kind}): another layer has this name; "
                "give one of them another 'name:'"
            )
        seen.add(name)
        try:
            layers.append(LAYERS[spec.kind](name, shape, **spec.options))
        except ShapeError as error:
            raise ShapeError(f"layer {position} '{name}' ({spec.kind}): {error}") from None
        shape = layers[-1].output_shape
    return layers


class Network:
    """A stack of layers with its loss, for pictures of input_shape (C, H, W) and so many classes.

    Raises ShapeError where the last layer does not give one score a class.
    """

    def __init__(
        self, layers: Sequence[Layer], loss: Loss, input_shape: Shape, classes: int
    ) -> None:
        self.layers = tuple(layers)
        self.loss = loss
        self.input_shape = input_shape
        self.classes = classes
        loss.check(layers[-1].output_shape if layers else input_shape, classes)

    def parameters(self) -> tuple[Parameter, ...]:
        """All trained tensors in the order of the layers."""
        return tuple(p for layer in self.layers for p in layer.parameters())

    def statistics(self) -> tuple[Statistic, ...]:
        """All running statistics in the order of the layers."""
        return tuple(s for layer in self.layers for s in layer.statistics())

    def learned(self) -> tuple[Tensor, ...]:
        """What a trained network consists of: all parameters, then all running statistics."""
        trained = tuple(parameter.tensor for parameter in self.parameters())
        return (*trained, *(statistic.tensor for statistic in self.statistics()))

    def initial_values(self, seed: int) -> dict[Tensor, NDArray[np.float32]]:
        """Fresh values of all that is learned; each depends on the seed and its own name alone."""
        drawn = {
            p.tensor: p.initializer.draw(
                p.tensor.shape, p.fan_in, p.fan_out, random.key(seed, "initialize", p.tensor.name)
            )
            for p in self.parameters()
        }
        for statistic in self.statistics():
            tensor = statistic.tensor
            drawn[tensor] = np.full(tensor.shape, statistic.initial, np.float32)
        return drawn

    def train_graph(
        self,
        batch_size: int,
        source: str,
        data_count: int,
        steps_per_epoch: int,
        total_steps: int,
        preprocessing: Preprocessing,
        optimizer: Sgd,
        seed: int = 0,
    ) -> Graph:
        """One training step on batches gathered from the data set ``source``.

        ``seed`` keys what layers draw at random, such as the masks of dropout.
        Results: images, labels, order, step, x, target, scores, loss, sums, rates.
        """
        graph = Graph("train", batch_size, training=True, seed=seed)
        x, target = self._gather(graph, source, data_count, steps_per_epoch, preprocessing, "step")
        scores = self._forward(graph, x, self._scoring())
        self._loss(graph, scores, target)
        with graph.at("loss", "backward"):
            dy = self.loss.backward(graph)
        for layer in reversed(self._scoring()):
            with graph.at(layer.name, "backward"):
                dy = layer.backward(graph, dy)
        with graph.at("sgd", "update"):
            rates = graph.tensor("rates", (total_steps,), "float32", "data")
            graph.results["rates"] = rates
            optimizer.update(graph, self.parameters(), rates, graph["step"])
            graph.add(Advance(step=graph["step"]))
        graph.prune()
        return graph

    def evaluate_graph(
        self,
        batch_size: int,
        source: str,
        data_count: int,
        steps: int,
        preprocessing: Preprocessing,
    ) -> Graph:
        """Forward, loss and metrics on batches gathered from ``source``.

        Results: images, labels, order, step, x, target, scores, probabilities, loss, sums.
        """
        graph = Graph("evaluate", batch_size)
        x, target = self._gather(
            graph, source, data_count, steps, preprocessing, "evaluate.step", "evaluate.order"
        )
        scores = self._forward(graph, x, self._scoring())
        self._loss(graph, scores, target)
        self._probabilities(graph, scores)
        with graph.at("metrics", "update"):
            graph.add(Advance(step=graph["step"]))
        graph.prune()
        return graph

    def infer_graph(self, batch_size: int) -> Graph:
        """Forward alone on x: (N, C, H, W) as it is written. Results: x, scores, probabilities."""
        graph = Graph("infer", batch_size)
        x = graph.tensor("x", (batch_size, *self.input_shape), "float32", "input")
        graph.results["x"] = x
        self._probabilities(graph, self._forward(graph, x, self._scoring()))
        graph.prune()
        return graph

    def _scoring(self) -> tuple[Layer, ...]:
        """The layers up to the scores that the loss takes: a final softmax belongs to the loss."""
        if isinstance(self.loss, CrossEntropyLoss) and isinstance(self.layers[-1], SoftmaxLayer):
            return self.layers[:-1]
        return self.layers

    def _gather(
        self,
        graph: Graph,
        source: str,
        data_count: int,
        steps: int,
        preprocessing: Preprocessing,
        step_name: str,
        order_name: str = "order",
    ) -> tuple[Tensor, Tensor]:
        n = graph.batch_size
        shape = self.input_shape
        images = graph.tensor(f"{source}.images", (data_count, *shape), "uint8", "data")
        labels = graph.tensor(f"{source}.labels", (data_count,), "int32", "data")
        order = graph.tensor(order_name, (steps * n,), "int32", "data")
        step = graph.tensor(step_name, (1,), "int64", "state")
        x = graph.tensor("x", (n, *shape))
        target = graph.tensor("target", (n,), "int32")
        with graph.at("data", "data"):
            graph.add(
                GatherBatch(
                    images=images,
                    labels=labels,
                    order=order,
                    step=step,
                    x=x,
                    target=target,
                    scale=preprocessing.scale,
                    shift=preprocessing.shift,
                )
            )
        graph.results.update(images=images, labels=labels, order=order)
        graph.results.update(step=step, x=x, target=target)
        return x, target

    def _forward(self, graph: Graph, x: Tensor, layers: Sequence[Layer]) -> Tensor:
        for layer in layers:
            with graph.at(layer.name, "forward"):
                x = layer.forward(graph, x)
        graph.results["scores"] = x
        return x

    def _loss(self, graph: Graph, scores: Tensor, target: Tensor) -> None:
        with graph.at("loss", "loss"):
            graph.results["loss"] = self.loss.forward(graph, scores, target)
            graph.results["sums"] = self.loss.metrics(graph, scores, target, graph["loss"])

    def _probabilities(self, graph: Graph, scores: Tensor) -> None:
        if not isinstance(self.loss, CrossEntropyLoss):
            graph.results["probabilities"] = scores
            return
        last = self.layers[-1]
        with graph.at(last.name if isinstance(last, SoftmaxLayer) else "loss", "forward"):
            p = graph.tensor("probabilities", scores.shape)
            graph.add(Softmax(x=scores, y=p))
        graph.results["probabilities"] = p

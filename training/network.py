"""Network: a stack of layers with its loss, and the graphs of its sections."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ..common import random
from ..common.records import dataclass
from ..graph.augmentations import Augmentation
from ..graph.graph import DType, Graph, Origin, Shape, Tensor
from ..graph.ops import Activation, Advance, MatMul, Reshape, Scale, Softmax
from ..layers.activation import Sigmoid
from ..layers.composite import Sequential, backward_all, forward_all, walk
from ..layers.layer import Layer, Parameter, Statistic
from ..layers.losses.loss import Loss
from ..layers.softmax import SoftmaxLayer
from ..layers.whitening import Pictures, Whiten, check_whitening
from .augmentation import PLAIN, TestTime, gather
from .preprocessing import Preprocessing
from .records.formats.provenance import BegunFrom

SEEN = ("features", "logits")
MOST_FEATURES = 4096
"""Of a network's last dense layer, for their covariance to be known."""
FirstPictures = Callable[[int], Pictures]
TEACHER = "teacher:"
"""What the names of its layers begin with, as no name of the student's does."""


class Network:
    """A stack of layers with its loss, for samples of input_shape (C, H, W) and ``classes``.

    ``classes``: the number of classes, or of the other targets that the loss is of; floats: samples
    are float32, not bytes. Raises ShapeError if the last layer does not give one score for each.
    """

    def __init__(
        self,
        layers: Sequence[Layer],
        loss: Loss,
        input_shape: Shape,
        classes: int,
        floats: bool = False,
    ) -> None:
        self.layers = tuple(layers)
        self.loss, self.input_shape, self.classes, self.floats = loss, input_shape, classes, floats
        self.temperature, self.featured = 1.0, False
        self.teacher: Teacher | None = None
        loss.check(layers[-1].output_shape if layers else input_shape, classes)
        loss.check_layers(tuple(self.every_layer()))
        check_whitening(self.layers)

    def every_layer(self) -> Iterator[Layer]:
        """All layers, each composite before its inner layers."""
        return walk(self.layers)

    def computed_by(self, layers: Sequence[Layer]) -> Network:
        """The same network, whose layers compute it as one of several processes does."""
        network = copy.copy(self)
        network.layers = tuple(layers)
        return network

    def judged(self, temperature: float, featured: bool) -> Network:
        """The same network, whose scores are divided by ``temperature`` for its probabilities.

        ``featured``: graphs have the results ``features``, see ``_features``, and ``logits``, the
        scores of each view; those of the pictures as they are come first.
        """
        network = copy.copy(self)
        network.temperature, network.featured = temperature, featured
        return network

    @property
    def has_logits(self) -> bool:
        """Whether its probabilities are the softmax or the sigmoid of its scores."""
        loss = self.loss
        free = loss.unbounded and loss.target in ("class", "distribution") and not self._last()
        return loss.sigmoid or loss.softmax or free

    def parameters(self) -> tuple[Parameter, ...]:
        """All trained tensors in the order of the layers."""
        return tuple(p for layer in self.layers for p in layer.parameters())

    def running_statistics(self) -> tuple[Statistic, ...]:
        """All running statistics in the order of the layers."""
        return tuple(s for layer in self.layers for s in layer.running_statistics())

    def running(self) -> tuple[Tensor, ...]:
        """The tensors of the running statistics of layers that are not frozen."""
        return tuple(each.tensor for each in self.running_statistics() if not each.frozen)

    def learned(self) -> tuple[Tensor, ...]:
        """What a trained network consists of: all parameters, then all running statistics."""
        trained = (parameter.tensor for parameter in self.parameters())
        return (*trained, *(each.tensor for each in self.running_statistics()))

    def doubts(self) -> Iterator[str]:
        """What is allowed but hardly meant: a softmax that other layers follow."""
        _, last = _ending(self.layers, SoftmaxLayer)
        for layer in self.every_layer():
            if isinstance(layer, SoftmaxLayer) and layer is not last:
                yield (
                    f"layer '{layer.name}' (softmax) is not the last layer: what follows it sees "
                    "probabilities, from which it learns slowly; remove it, or move it to the end"
                )

    def initial_values(
        self, seed: int, pictures: FirstPictures | None = None, threads: int = 1
    ) -> dict[Tensor, NDArray[np.float32]]:
        """Initial values of all learned tensors; each depends only on the seed and its own name.

        Those of ``whiten`` also depend on the first normalised training pictures, ``pictures(n)``,
        and are computed with ``threads`` threads.
        """
        drawn = {
            p.tensor: p.initializer.from_pictures(
                p.tensor.shape, pictures(p.initializer.samples), threads
            )
            if isinstance(p.initializer, Whiten) and pictures is not None
            else p.initializer.draw(
                p.tensor.shape, p.fan_in, p.fan_out, random.key(seed, "initialize", p.tensor.name)
            )
            for p in self.parameters()
        }
        for statistic in self.running_statistics():
            tensor = statistic.tensor
            drawn[tensor] = np.full(tensor.shape, statistic.initial, np.float32)
        return drawn

    def plain_graph(
        self,
        name: str,
        batch_size: int,
        source: str,
        data_count: int,
        steps: int,
        preprocessing: Preprocessing,
        seed: int = 0,
        augment: Sequence[Augmentation] = (),
    ) -> Graph:
        """Data, forward, loss and backward of a training step; ``sections`` adds all else.

        Batches are gathered from the data set ``source``, in ``steps`` steps. ``seed`` is the key
        of random numbers: of ``augment``, and of layers such as dropout.
        Results: images, labels, order, step, x, target, scores, loss, sums.
        """
        graph = Graph(name, batch_size, training=True, seed=seed)
        x, target = self._gather(
            graph, source, data_count, steps, preprocessing, "step", augment=augment
        )
        scores = self._forward(graph, x)
        if self.teacher is not None:
            graph.keep("teacher", scores=self.teacher.scores(graph, x))
        self._loss(graph, scores, target)
        with graph.at("loss", "backward"):
            dy = self.loss.backward(graph)
        backward_all(self.scoring(), graph, dy)
        return graph

    def evaluate_graph(
        self,
        batch_size: int,
        source: str,
        data_count: int,
        steps: int,
        preprocessing: Preprocessing,
        test_time: TestTime = PLAIN,
    ) -> Graph:
        """Forward, loss and metrics on batches gathered from ``source``.

        Scores are averaged over the views of ``test_time`` first.
        Results: images, labels, order, step, x, target, scores, probabilities, loss, sums.
        """
        graph = Graph("evaluate", batch_size)
        x, target = self._gather(
            graph, source, data_count, steps, preprocessing, "evaluate.step", "evaluate.order"
        )
        scores = self._viewed(graph, x, test_time, target)
        self._loss(graph, scores, target)
        self._probabilities(graph, scores)
        with graph.at("metrics", "update"):
            graph.add(Advance(step=graph["step"]))
        graph.prune()
        return graph

    def infer_graph(self, batch_size: int, test_time: TestTime = PLAIN) -> Graph:
        """Forward only, on x: (N, C, H, W) as written. Results: x, scores, probabilities."""
        graph = Graph("infer", batch_size)
        x = graph.tensor("x", (batch_size, *self.input_shape), "float32", "input")
        graph.results["x"] = x
        self._probabilities(graph, self._viewed(graph, x, test_time))
        graph.prune()
        return graph

    def classify_graph(
        self, batch_size: int, preprocessing: Preprocessing, test_time: TestTime = PLAIN
    ) -> Graph:
        """Forward only, on bytes: a batch gathered from a data set that is written each time.

        Results: images, labels, order, step, x, scores, probabilities.
        """
        graph = Graph("classify", batch_size)
        x, _ = self._gather(
            graph, "given", batch_size, 1, preprocessing, "classify.step", "classify.order"
        )
        # Nobody asks for the labels, so that no backend need bring them.
        del graph.results["target"]
        self._probabilities(graph, self._viewed(graph, x, test_time))
        graph.prune()
        return graph

    def scoring(self) -> tuple[Layer, ...]:
        """The layers up to the scores that enter the loss, of which a final softmax or sigmoid may
        be a part."""
        before, last = _ending(self.layers, Sigmoid if self.loss.sigmoid else SoftmaxLayer)
        merged = (self.loss.softmax or self.loss.sigmoid) and last is not None
        return before if merged else self.layers

    def _gather(
        self,
        graph: Graph,
        source: str,
        data_count: int,
        steps: int,
        preprocessing: Preprocessing,
        step_name: str,
        order_name: str = "order",
        augment: Sequence[Augmentation] = (),
    ) -> tuple[Tensor, Tensor]:
        n, shape = graph.batch_size, self.input_shape
        pixel: DType = "float32" if self.floats else "uint8"
        one: Shape = () if self.loss.target == "class" else (self.classes,)
        each: DType = "float32" if one else "int32"
        data = {
            "images": graph.tensor(f"{source}.images", (data_count, *shape), pixel, "data"),
            "labels": graph.tensor(f"{source}.labels", (data_count, *one), each, "data"),
            "order": graph.tensor(order_name, (steps * n,), "int32", "data"),
            "step": graph.tensor(step_name, (1,), "int64", "state"),
            "x": (x := graph.tensor("x", (n, *shape))),
            "target": (target := graph.tensor("target", (n, *one), each)),
        }
        with graph.at("data", "data"):
            gather(graph, data, preprocessing, augment)
        graph.results.update(data)
        return x, target

    def _forward(self, graph: Graph, x: Tensor) -> Tensor:
        if self.layers and len(self.layers[0].input_shape) == 1:
            # A row, as the layers take it.
            with graph.at("data", "data"):
                x = graph.add(
                    Reshape(x=x, y=graph.tensor("row", (x.shape[0], x.size // x.shape[0])))
                )
        x = forward_all(self.scoring(), graph, x)
        graph.results["scores"] = x
        if self.featured and "features" not in graph.results:
            graph.results |= {"features": _features(graph, x), "logits": x}
        return x

    def _viewed(
        self, graph: Graph, x: Tensor, test_time: TestTime, target: Tensor | None = None
    ) -> Tensor:
        """The scores of a batch, averaged over the views of its pictures."""
        test_time.check(self.input_shape, self.classes)
        scores = test_time.scores(graph, x, target, lambda x: self._forward(graph, x))
        graph.results["scores"] = scores
        return scores

    def _loss(self, graph: Graph, scores: Tensor, target: Tensor) -> None:
        # What is measured is the same whatever a training gives weight to.
        loss = self.loss if graph.training else self.loss.unweighted()
        with graph.at("loss", "loss"):
            graph.results["loss"] = loss.forward(graph, scores, target)
            graph.results["sums"] = loss.metrics(graph, scores, target, graph["loss"])

    def _probabilities(self, graph: Graph, scores: Tensor) -> None:
        """Add what is shown of the scores: probabilities, or the scores themselves."""
        if not self.has_logits:
            graph.results["probabilities"] = scores
            return
        loss, last = self.loss, self._last()
        with graph.at(last.name if last is not None else "loss", "forward"):
            if self.temperature != 1.0:
                y = graph.tensor("calibrated", scores.shape)
                scores = graph.add(Scale(x=scores, y=y, factor=1 / self.temperature))
            p = graph.tensor("probabilities", scores.shape)
            graph.add(
                Activation(x=scores, y=p, kind="sigmoid")
                if loss.sigmoid
                else Softmax(x=scores, y=p)
            )
        graph.results["probabilities"] = p

    def _last(self) -> Layer | None:
        """The final softmax or sigmoid that makes probabilities of the scores."""
        return _ending(self.layers, Sigmoid if self.loss.sigmoid else SoftmaxLayer)[1]


@dataclass(frozen=True)
class Teacher:
    """A trained network that another learns from, and does not change.

    ``values``: what it has learned, by names that begin with TEACHER; ``scaling``: of the pixels
    that it was trained on.
    """

    network: Network
    values: Mapping[str, NDArray[np.float32]]
    file: BegunFrom
    scaling: Preprocessing

    def scores(self, graph: Graph, x: Tensor) -> Tensor:
        """Add its scores of x: (N, C, H, W), as outside training; returns them: (N, K)."""
        own = Graph("teacher", x.shape[0])
        given = own.tensor("x", x.shape, "float32", "input")
        scores = self.network._forward(own, given)
        others = {
            t: replace(t, name=f"{TEACHER}{t.name}", section=t.section and graph.name)
            for t in own.tensors()
        }
        others[given] = x
        for op in own.ops:
            origin = tuple(Origin(f"{TEACHER}{each.layer}", "forward") for each in op.origin)
            graph.add(replace(op.on(others), origin=origin))
        return others[scores]


def _features(graph: Graph, scores: Tensor) -> Tensor:
    """(N, D): what the last dense layer makes the scores (N, K) of; else, or of too many, these."""
    products = (op for op in reversed(graph.ops) if isinstance(op, MatMul))
    found = next((op.a for op in products if op.c.shape == scores.shape), scores)
    return found if found.shape[1] <= MOST_FEATURES else scores


def _ending(layers: tuple[Layer, ...], kind: type[Layer]) -> tuple[tuple[Layer, ...], Layer | None]:
    """The layers before a final one of a kind, and that one, which may end a sequential layer."""
    if not layers:
        return layers, None
    *before, last = layers
    if isinstance(last, kind):
        return tuple(before), last
    if isinstance(last, Sequential):
        inner, found = _ending(last.children, kind)
        if found is not None:
            return (*before, *inner), found
    return layers, None

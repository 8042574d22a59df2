"""Network: a stack of layers with its loss, and the graphs of its sections."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ..common import random
from ..graph.augmentations import Augmentation
from ..graph.graph import Graph, Shape, Tensor
from ..graph.ops import Advance, KeepStatistics, Softmax
from ..layers.composite import Sequential, backward_all, forward_all, walk
from ..layers.layer import Layer, Parameter, Statistic
from ..layers.losses.loss import Loss
from ..layers.parallel import Splittable
from ..layers.softmax import SoftmaxLayer
from ..layers.space import check_space, in_bands, stretch
from ..layers.whitening import Pictures, Whiten, check_whitening
from ..optimizers.optimizer import Optimizer, as_optimizer
from ..optimizers.rules import Rule
from .augmentation import PLAIN, TestTime, gather
from .parts import add_parts, keep_parts
from .preprocessing import Preprocessing
from .renewal import KEPT, RENEW, ROWS, Renewal, measured

FirstPictures = Callable[[int], Pictures]


def section_name(kind: str, first_step: int) -> str:
    """The name of a training section in the stretch that begins with this step."""
    return kind if first_step == 0 else f"{kind}-{first_step}"


class Network:
    """A stack of layers with its loss, for pictures of input_shape (C, H, W) and ``classes``.

    Raises ShapeError if the last layer does not give one score per class.
    """

    def __init__(
        self, layers: Sequence[Layer], loss: Loss, input_shape: Shape, classes: int
    ) -> None:
        self.layers = tuple(layers)
        self.loss = loss
        self.input_shape = input_shape
        self.classes = classes
        loss.check(layers[-1].output_shape if layers else input_shape, classes)
        loss.check_layers(tuple(self.every_layer()))
        check_whitening(self.layers)

    def every_layer(self) -> Iterator[Layer]:
        """All layers, each composite before its inner layers."""
        return walk(self.layers)

    def parameters(self, ranks: int = 1) -> tuple[Parameter, ...]:
        """All trained tensors in the order of the layers, as one of so many ranks has them."""
        count = stretch(self.layers)
        return tuple(
            replace(p.on(ranks), banded=number < count)
            for number, layer in enumerate(self.layers)
            for p in layer.parameters()
        )

    def bands(self, ranks: int) -> int:
        """How many bands of rows so many ranks make of pictures; 1: they share out pictures."""
        return ranks if stretch(self.layers) else 1

    def check_ranks(self, ranks: int) -> None:
        """Raise ShapeError for a layer that so many ranks cannot share out."""
        for layer in self.every_layer():
            if isinstance(layer, Splittable):
                layer.check_split(ranks)
        check_space(self.layers, ranks)

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
        _, last = _ending(self.layers)
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

    def train_graph(
        self,
        batch_size: int,
        source: str,
        data_count: int,
        steps_per_epoch: int,
        total_steps: int,
        preprocessing: Preprocessing,
        optimizer: Optimizer | Rule,
        seed: int = 0,
        augment: Sequence[Augmentation] = (),
        first_step: int = 0,
    ) -> Graph:
        """One training step on batches gathered from the data set ``source``.

        ``seed`` is the key of random numbers: of ``augment``, and of layers such as dropout.
        ``first_step`` selects the stretch of the optimizer's groups. If the batch is computed in
        parts, this is one part, without the update, and steps count parts; see ``update_graph``.
        Results: images, labels, order, step, x, target, scores, loss, sums, rates.
        """
        optimizer = as_optimizer(optimizer)
        parts, ranks = optimizer.parts, optimizer.ranks
        name, size = section_name("train", first_step), batch_size // parts
        apart = optimizer.separate
        shared = {"ranks": ranks, "bands": optimizer.bands}
        graph = Graph(name, size, training=True, seed=seed, parts=parts, apart=apart, **shared)
        steps = steps_per_epoch * parts
        x, target = self._gather(
            graph, source, data_count, steps, preprocessing, "step", augment=augment
        )
        scores = self._forward(graph, x)
        self._loss(graph, scores, target)
        with graph.at("loss", "backward"):
            dy = self.loss.backward(graph)
        backward_all(self._computed(graph), graph, dy)
        with graph.at(optimizer.name, "update"):
            if graph.apart:
                keep_parts(graph, ranks)
                scale = 1.0 / parts if self.loss.reduction == "mean" else 1.0
                trained = self.parameters(ranks)
                optimizer.sum_up(graph, trained, steps_per_epoch, first_step, scale)
            else:
                optimizer.update(
                    graph,
                    self.parameters(),
                    self.running(),
                    graph["step"],
                    total_steps,
                    steps_per_epoch,
                    first_step,
                )
            graph.add(Advance(step=graph["step"]))
        graph.prune()
        return graph

    def update_graph(
        self,
        optimizer: Optimizer,
        total_steps: int,
        steps_per_epoch: int,
        first_step: int = 0,
        train: Graph | None = None,
        parameters: Sequence[Parameter] | None = None,
    ) -> Graph:
        """The update alone, after all parts of a batch. Results: update.step, rates.

        train: the section of a part, that of ``train_graph``, which leaves statistics to it, and
        what other ranks computed. None: it leaves nothing. ``parameters``: what to update in place
        of all parameters and running statistics.
        """
        graph = Graph(section_name("update", first_step), 1, training=True)
        step = graph.tensor("update.step", (1,), "int64", "state")
        graph.results["update.step"] = step
        with graph.at(optimizer.name, "update"):
            statistics = self.running() if parameters is None or train is not None else ()
            parameters = self.parameters(optimizer.ranks) if parameters is None else parameters
            if train is not None:
                add_parts(graph, train, optimizer.ranks)
            optimizer.update(
                graph, parameters, statistics, step, total_steps, steps_per_epoch, first_step
            )
            graph.add(Advance(step=step))
        graph.prune()
        return graph

    def renewal(
        self,
        batch_size: int,
        source: str,
        data_count: int,
        steps: int,
        preprocessing: Preprocessing,
        optimizer: Optimizer,
        first: int,
        seed: int = 0,
        augment: Sequence[Augmentation] = (),
    ) -> Renewal | None:
        """What measures the statistics of batch norm for averaged weights, if there are any.

        Batches, of ``batch_size``, and arguments are those of ``train_graph``, in ``steps`` steps;
        ``first``: the step from which on there are averages. Results: images, labels, order, step.
        """
        ranks = optimizer.ranks
        graph = Graph(RENEW, batch_size, training=True, seed=seed, ranks=ranks, apart=True)
        x, _ = self._gather(
            graph, source, data_count, steps, preprocessing, "step", augment=augment
        )
        forward_all(self._scoring(), graph, x)
        averages = optimizer.evaluation_averages(self.parameters(ranks), self.running())
        moved = tuple(graph.moved)
        if not averages or not moved:
            return None
        kept = graph.tensor(KEPT, (ROWS, sum(m.value.size for m in moved)), "float32", "state")
        with graph.at(optimizer.name, "update"):
            values = tuple(each.value for each in moved)
            graph.add(KeepStatistics(values=values, step=graph["step"], kept=kept, parts=ROWS))
            graph.add(Advance(step=graph["step"]))
        # The counter and the order of the training stand still meanwhile.
        own = {
            tensor: replace(tensor, name=f"{RENEW}.{tensor.name}")
            for tensor in (graph["step"], graph["order"])
        }
        graph.results = {name: graph[name] for name in ("images", "labels", "order", "step")}
        graph.prune()
        graph = graph.substituted({**averages, **own})
        graph.results |= {name: own.get(tensor, tensor) for name, tensor in graph.results.items()}
        return Renewal(graph, kept, measured(moved, averages), steps, first)

    def evaluate_graph(
        self,
        batch_size: int,
        source: str,
        data_count: int,
        steps: int,
        preprocessing: Preprocessing,
        test_time: TestTime = PLAIN,
        ranks: int = 1,
    ) -> Graph:
        """Forward, loss and metrics on batches gathered from ``source``, one for each rank.

        Scores are averaged over the views of ``test_time`` first.
        Results: images, labels, order, step, x, target, scores, probabilities, loss, sums.
        """
        graph = Graph("evaluate", batch_size, ranks=ranks)
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

    def _scoring(self) -> tuple[Layer, ...]:
        """The layers up to the scores that enter the loss: a final softmax is part of the loss."""
        before, softmax = _ending(self.layers)
        return before if self.loss.softmax and softmax is not None else self.layers

    def _computed(self, graph: Graph) -> tuple[Layer, ...]:
        """These layers as one of the graph's processes computes them."""
        layers = self._scoring()
        return in_bands(layers, graph.bands) if graph.bands > 1 else layers

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
        data = {
            "images": graph.tensor(f"{source}.images", (data_count, *shape), "uint8", "data"),
            "labels": graph.tensor(f"{source}.labels", (data_count,), "int32", "data"),
            "order": graph.tensor(order_name, (steps * n,), "int32", "data"),
            "step": graph.tensor(step_name, (1,), "int64", "state"),
            "x": (x := graph.tensor("x", (n, *shape))),
            "target": (target := graph.tensor("target", (n,), "int32")),
        }
        with graph.at("data", "data"):
            gather(graph, data, preprocessing, augment)
        graph.results.update(data)
        return x, target

    def _forward(self, graph: Graph, x: Tensor) -> Tensor:
        x = forward_all(self._computed(graph), graph, x)
        graph.results["scores"] = x
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
        _, softmax = _ending(self.layers)
        if not self.loss.softmax and (softmax is not None or not self.loss.unbounded):
            graph.results["probabilities"] = scores
            return
        with graph.at(softmax.name if softmax is not None else "loss", "forward"):
            p = graph.tensor("probabilities", scores.shape)
            graph.add(Softmax(x=scores, y=p))
        graph.results["probabilities"] = p


def _ending(layers: tuple[Layer, ...]) -> tuple[tuple[Layer, ...], SoftmaxLayer | None]:
    """The layers before a final softmax, and the softmax, which may end a sequential layer."""
    if not layers:
        return layers, None
    *before, last = layers
    if isinstance(last, SoftmaxLayer):
        return tuple(before), last
    if isinstance(last, Sequential):
        inner, softmax = _ending(last.children)
        if softmax is not None:
            return (*before, *inner), softmax
    return layers, None

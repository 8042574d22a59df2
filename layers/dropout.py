"""Dropout: sets a share of the values, or of the samples, to 0 in training."""

from __future__ import annotations

from math import prod
from typing import Annotated

from ..common import random
from ..common.options import Share
from ..graph.graph import Graph, Tensor
from ..graph.ops import Dropout, DropoutBackward
from .layer import Layer


class DropoutLayer(Layer):
    """In training, sets a random share of the values to 0 and scales up the rest to compensate;
    outside training, does nothing.

    y = x / (1 - rate) if a random word allows it, else 0. The word of a value is a function of
    the graph's seed, the layer's name, the training step and the value's place in the batch alone
    (see ops.Dropout), so a resumed run and another device drop the same values. Forward keeps its
    mask, one byte per value: drawing it again would cost more than reading it. x, y: any shape.
    Source: Srivastava et al. 2014.
    """

    kind = "dropout"
    rate: Annotated[Share, "Share of the values that is dropped, chosen anew at each step."] = 0.5

    def build(self) -> None:
        self.scale = 1.0 / (1.0 - self.rate)
        self.alike = 1
        # A word is dropped with this many chances in 2^32; the largest word must stay.
        self.threshold = min(round(self.rate * 2**32), 2**32 - 1)

    def forward(self, graph: Graph, x: Tensor) -> Tensor:
        if not graph.training or not self.threshold:
            return x
        y = self.output(graph, x)
        mask = graph.tensor(f"{self.name}.mask", x.shape, "uint8")
        graph.keep(self.name, mask=mask)
        return graph.add(
            Dropout(
                x=x,
                step=graph.tensor("step", (1,), "int64", "state"),
                y=y,
                mask=mask,
                key=random.key(graph.seed, "dropout", self.name),
                threshold=self.threshold,
                scale=self.scale,
                alike=self.alike,
            )
        )

    def backward(self, graph: Graph, dy: Tensor) -> Tensor:
        if not graph.training or not self.threshold:
            return dy
        dx = self.input_gradient(graph, dy)
        mask = graph.kept(self.name)["mask"]
        return graph.add(DropoutBackward(dy=dy, mask=mask, dx=dx, scale=self.scale))


class StochasticDepth(DropoutLayer):
    """In training, sets all values of a random share of the samples to 0 and scales up the rest to
    compensate; outside training, does nothing. At the end of the body of a residual.

    y[n] = x[n] / (1 - rate) if a random word allows it, else 0; the word is keyed as dropout's, by
    the sample's place in the batch. x, y: any shape. Source: Huang et al. 2016, with the scaling.
    """

    kind = "stochastic_depth"
    rate: Annotated[Share, "Share of the samples that is dropped, chosen anew at each step."] = 0.1

    def build(self) -> None:
        super().build()
        self.alike = prod(self.input_shape)

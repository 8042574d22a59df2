"""PReLU: a ReLU whose slope for negative inputs is trained."""

from __future__ import annotations

from typing import Annotated

from ..graph import ops
from ..graph.graph import Graph, Tensor
from .initializers import Initializer
from .layer import Layer


class Prelu(Layer):
    """x where positive, slope * x elsewhere; one trained slope per channel.

    y = relu(x) - a relu(-x). x, y: (N, C, H, W) or (N, C), a: (C,). Source: He et al. 2015,
    "Delving deep into rectifiers", eq. 1.
    """

    kind = "prelu"
    by_pixel = True
    initial_slope: Annotated[float, "Initial value of the slopes."] = 0.25

    def build(self) -> None:
        constant = Initializer("constant", self.initial_slope)
        self.slope = self.parameter("slope", self.input_shape[:1], "scale", constant)

    def forward(self, graph: Graph, x: Tensor) -> Tensor:
        names = ("above", "minus", "below", "sloped")
        above, minus, below, sloped = (self.tensor(graph, name, x.shape) for name in names)
        graph.keep(self.name, above=above, below=below)
        graph.add(ops.Activation(x=x, y=above, kind="relu"))
        graph.add(ops.Scale(x=x, y=minus, factor=-1.0))
        graph.add(ops.Activation(x=minus, y=below, kind="relu"))
        graph.add(ops.ChannelScale(x=below, s=self.slope, y=sloped, factor=-1.0))
        return graph.add(ops.Add(terms=(above, sloped), y=self.output(graph, x)))

    def backward(self, graph: Graph, dy: Tensor) -> Tensor:
        above, below = graph.kept(self.name)["above"], graph.kept(self.name)["below"]
        ds = graph.gradient(self.slope)
        names = ("left", "right", "turned", "passed", "inner")
        left, right, turned, passed, inner = (self.tensor(graph, n, dy.shape) for n in names)
        graph.add(ops.ActivationBackward(value=above, dy=dy, dx=right, kind="relu"))
        graph.add(
            ops.ChannelScaleBackward(x=below, s=self.slope, dy=dy, dx=inner, ds=ds, factor=-1.0)
        )
        graph.add(ops.ActivationBackward(value=above, dy=inner, dx=passed, kind="relu"))
        graph.add(ops.Scale(x=inner, y=turned, factor=-1.0))
        # All less what passes the ReLU of x: that of -x would leave nothing where x is 0.
        graph.add(ops.Add(terms=(turned, passed), y=left))
        return graph.add(ops.Add(terms=(right, left), y=self.input_gradient(graph, dy)))

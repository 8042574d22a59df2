"""Scale: a fixed factor. LayerScale: a trained one for each channel."""

from __future__ import annotations

from typing import Annotated

from ..graph.graph import Graph, Tensor
from ..graph.ops import ChannelScale, ChannelScaleBackward, Scale
from .initializers import Initializer
from .layer import Layer, SingleLayer


class ScaleLayer(SingleLayer):
    """factor * x."""

    kind = "scale"
    by_pixel = True
    op = Scale
    factor: Annotated[float, "The factor."]


class LayerScale(Layer):
    """A trained factor for each channel, small at first, so that a residual begins near identity.

    y = weight x. x, y: (N, C, H, W) or (N, C), weight: (C,). Source: Touvron et al. 2021, eq. 4.
    """

    kind = "layer_scale"
    by_pixel = True
    initial_factor: Annotated[float, "Initial value of the factors."] = 1e-6

    def build(self) -> None:
        constant = Initializer("constant", self.initial_factor)
        self.weight = self.parameter("weight", self.input_shape[:1], "scale", constant)

    def forward(self, graph: Graph, x: Tensor) -> Tensor:
        graph.keep(self.name, x=x)
        return graph.add(ChannelScale(x=x, s=self.weight, y=self.output(graph, x)))

    def backward(self, graph: Graph, dy: Tensor) -> Tensor:
        dx, ds = self.input_gradient(graph, dy), graph.gradient(self.weight)
        x = graph.kept(self.name)["x"]
        return graph.add(ChannelScaleBackward(x=x, s=self.weight, dy=dy, dx=dx, ds=ds))

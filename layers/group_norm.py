"""Norms of each sample by itself: GroupNorm and LayerNorm, as a batch norm of other groups."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Annotated, Any

from ..common.errors import ShapeError
from ..common.options import Count, Positive
from ..graph import ops
from ..graph.graph import Graph, Tensor
from .conv import PIXEL
from .initializers import ONES, ZEROS, Initializer
from .layer import Layer


class _SampleNorm(Layer):
    eps: Annotated[Positive, "Added to the variance before the square root."] = 1e-5
    scale_initializer: Annotated[Initializer, "Initial values of the factors."] = ONES
    bias_initializer: Annotated[Initializer, "Initial values of the offsets."] = ZEROS

    def define(self, groups: int, values: int) -> None:
        """The parameters, for groups of so many values."""
        if values < 2:
            raise ShapeError(
                f"would normalise each value of {self.input_shape} by itself, which leaves 0; "
                "a norm needs at least two values"
            )
        self.number, shape = groups, self.input_shape[:1]
        self.weight = self.parameter("weight", shape, "scale", self.scale_initializer)
        self.bias = self.parameter("bias", shape, "shift", self.bias_initializer)

    def forward(self, graph: Graph, x: Tensor) -> Tensor:
        return self.normalise(graph, x, self.output(graph, x))

    def backward(self, graph: Graph, dy: Tensor) -> Tensor:
        return self.normalise_backward(graph, dy, self.input_gradient(graph, dy))

    def normalise(self, graph: Graph, x: Tensor, y: Tensor) -> Tensor:
        """The norm of one picture, whose channels are the groups of all samples."""
        samples, channels, *pixels = x.shape
        shape = 1, samples * self.number, channels // self.number, prod(pixels)
        rows, normal = self.reshaped(graph, x, "rows", shape), self.tensor(graph, "normal", shape)
        found: dict[str, Any] = {
            name: self.tensor(graph, name, shape[1:2]) for name in ("mean", "inverse_std", "var")
        }
        graph.add(ops.BatchNorm(x=rows, y=normal, **found, momentum=1.0, eps=self.eps))
        found.pop("var")
        same = self.reshaped(graph, normal, "normalised", x.shape)
        graph.keep(self.name, x=rows, **found, same=same)
        scaled = self.tensor(graph, "scaled", x.shape)
        graph.add(ops.ChannelScale(x=same, s=self.weight, y=scaled))
        return graph.add(ops.BiasAdd(x=scaled, b=self.bias, y=y))

    def normalise_backward(self, graph: Graph, dy: Tensor, dx: Tensor) -> Tensor:
        kept = dict(graph.kept(self.name))
        same, dsame = kept.pop("same"), self.tensor(graph, "dsame", dy.shape)
        ds, shape = graph.gradient(self.weight), kept["x"].shape
        graph.add(ops.BiasGrad(dy=dy, db=graph.gradient(self.bias)))
        graph.add(ops.ChannelScaleBackward(x=same, s=self.weight, dy=dy, dx=dsame, ds=ds))
        dnormal, drows = (
            self.reshaped(graph, dsame, "dnormal", shape),
            self.tensor(graph, "drows", shape),
        )
        graph.add(ops.BatchNormBackward(**kept, dy=dnormal, dx=drows, eps=self.eps))
        return graph.add(ops.Reshape(x=drows, y=dx))


class GroupNorm(_SampleNorm):
    """Normalises groups of channels of each sample to mean 0 and deviation 1, then scales and
    shifts each channel.

    y = weight (x - mean) / sqrt(var + eps) + bias, mean and var over the channels of a group and
    all pixels of one sample, in training and outside it. x, y: (N, C, H, W) or (N, C); weight,
    bias: (C,). Raises ShapeError for groups that do not divide C, or that have one value each.
    Source: Wu and He 2018.
    """

    kind = "group_norm"
    groups: Annotated[Count, "Number of groups, which divides the channels; 1: all together."]

    def build(self) -> None:
        channels, groups = self.input_shape[0], self.groups
        if channels % groups:
            raise ShapeError(f"groups must divide channels: {groups} does not divide {channels}")
        self.define(groups, prod(self.input_shape) // groups)


class LayerNorm(_SampleNorm):
    """Normalises the channels of each pixel, or the values of a row, to mean 0 and deviation 1,
    then scales and shifts each channel.

    y = weight (x - mean) / sqrt(var + eps) + bias, mean and var over the channels of one pixel.
    x, y: (N, C, H, W) or (N, C); weight, bias: (C,). Raises ShapeError for a single channel. One
    norm over the whole picture is ``group_norm`` with one group. Source: Ba et al. 2016.
    """

    kind = "layer_norm"
    by_pixel = True

    def build(self) -> None:
        self.define(1, self.input_shape[0])

    def normalise(self, graph: Graph, x: Tensor, y: Tensor) -> Tensor:
        return self._by_pixel(graph, x, y, "columns", super().normalise)

    def normalise_backward(self, graph: Graph, dy: Tensor, dx: Tensor) -> Tensor:
        return self._by_pixel(graph, dy, dx, "dcolumns", super().normalise_backward)

    def _by_pixel(
        self, graph: Graph, x: Tensor, y: Tensor, name: str, make: Callable[..., Tensor]
    ) -> Tensor:
        """y = what is made of x with a row of channels for each pixel."""
        if len(x.shape) == 2:
            return make(graph, x, y)
        shape = x.size // x.shape[1], x.shape[1]
        columns, made = (self.tensor(graph, each, shape) for each in (name, f"{name}.y"))
        graph.add(ops.Im2col(x=x, columns=columns, window=PIXEL))
        return graph.add(ops.Col2im(columns=make(graph, columns, made), x=y, window=PIXEL))

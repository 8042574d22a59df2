"""The trainable subsampling of LeNet-5, and the border around its pictures."""

from __future__ import annotations

from typing import Annotated, Literal

from ..common.options import Border
from ..graph import ops
from ..graph.geometry import fit_window, pair
from ..graph.graph import Graph, Tensor
from .conv import WindowSize, picture_shape
from .initializers import ONES, ZEROS, Initializer
from .layer import BiasInitializer, Layer
from .pool import PoolStride


class ScaledSubsampling(Layer):
    """Coefficient * sum over the window + bias, both trained, one per map: LeNet-5's subsampling.

    y[n,c,p,q] = w[c] sum of x[n,c] over the window + b[c]; with ``pooling`` average the mean
    replaces the sum. x: (N, C, H, W), w, b: (C,), y: (N, C, P, Q). Source: LeCun et al. 1998,
    section II.B.
    """

    kind = "scaled_subsampling"
    pool_size: WindowSize = 2
    stride: PoolStride = None
    pooling: Annotated[
        Literal["sum", "average"], "What the coefficient multiplies: sum or average of the window."
    ] = "sum"
    kernel_initializer: Annotated[Initializer, "Initial values of the coefficients."] = ONES
    bias_initializer: BiasInitializer = ZEROS

    def build(self) -> None:
        channels, height, width = picture_shape(self.input_shape)
        step = self.pool_size if self.stride is None else self.stride
        self.window = fit_window((height, width), self.pool_size, step)
        self.factor = float(self.window.area) if self.pooling == "sum" else 1.0
        self.output_shape = (channels, *self.window.output(height, width))
        shape, fan_in = (channels,), self.window.area
        self.weight = self.parameter("weight", shape, "scale", self.kernel_initializer, fan_in)
        self.bias = self.parameter("bias", shape, "bias", self.bias_initializer, fan_in)

    def forward(self, graph: Graph, x: Tensor) -> Tensor:
        y = self.output(graph, x)
        mean = graph.tensor(f"{self.name}.mean", y.shape)
        scaled = graph.tensor(f"{self.name}.scaled", y.shape)
        graph.keep(self.name, x=mean)
        graph.add(ops.Pool2d(x=x, y=mean, window=self.window, kind="avg"))
        graph.add(ops.ChannelScale(x=mean, s=self.weight, y=scaled, factor=self.factor))
        return graph.add(ops.BiasAdd(x=scaled, b=self.bias, y=y))

    def backward(self, graph: Graph, dy: Tensor) -> Tensor:
        graph.add(ops.BiasGrad(dy=dy, db=graph.gradient(self.bias)))
        dmean, ds = graph.tensor(f"{self.name}.dmean", dy.shape), graph.gradient(self.weight)
        fields = {"s": self.weight, "factor": self.factor, **graph.kept(self.name)}
        graph.add(ops.ChannelScaleBackward(**fields, dy=dy, dx=dmean, ds=ds))
        dx = self.input_gradient(graph, dy)
        return graph.add(ops.Pool2dBackward(dy=dmean, dx=dx, window=self.window, kind="avg"))


class Pad2dLayer(Layer):
    """Adds a border of one value around the picture.

    x: (N, C, H, W), y: (N, C, H + 2 ph, W + 2 pw).
    """

    kind = "pad2d"
    padding: Annotated[
        Border, "Width on either side: number or [height, width], of which one may be 0."
    ]
    value: Annotated[float, "Value of the border, after normalisation."] = 0.0

    def build(self) -> None:
        channels, height, width = picture_shape(self.input_shape)
        rows, columns = pair(self.padding)
        self.ends = (rows, rows, columns, columns)
        self.output_shape = (channels, height + 2 * rows, width + 2 * columns)

    def forward(self, graph: Graph, x: Tensor) -> Tensor:
        y = self.output(graph, x)
        return graph.add(ops.Pad2d(x=x, y=y, padding=self.ends, value=self.value))

    def backward(self, graph: Graph, dy: Tensor) -> Tensor:
        dx = self.input_gradient(graph, dy)
        return graph.add(ops.Pad2dBackward(dy=dy, dx=dx, padding=self.ends))

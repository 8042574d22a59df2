"""Dense: y = x W^T + b."""

from __future__ import annotations

from typing import Annotated

from ..common.errors import ShapeError
from ..common.options import Count
from ..graph.graph import Graph, Shape, Tensor
from ..graph.ops import BiasAdd, BiasGrad, MatMul
from .initializers import GLOROT_UNIFORM, ZEROS
from .layer import BiasInitializer, KernelInitializer, Layer, UseBias


def flat_size(input_shape: Shape) -> int:
    """The number of inputs; raises ShapeError if they are not flat."""
    if len(input_shape) != 1:
        raise ShapeError(f"expects a flat input, got {input_shape}; insert 'flatten' before it")
    return input_shape[0]


class Dense(Layer):
    """Fully connected layer: y = W x + b. Expects a flat input.

    x: (N, inputs), W: (units, inputs), b: (units,), y: (N, units): y = x W^T + b. Backward:
    dx = dy W, dW = dy^T x, db = sum over n of dy.
    """

    kind = "dense"
    units: Annotated[Count, "Number of outputs."]
    use_bias: UseBias = True
    kernel_initializer: KernelInitializer = GLOROT_UNIFORM
    bias_initializer: BiasInitializer = ZEROS

    def build(self) -> None:
        self.output_shape = (self.units,)
        fans = flat_size(self.input_shape), self.units
        self.weight = self.parameter("weight", fans[::-1], "kernel", self.kernel_initializer, *fans)
        self.bias = None
        if self.use_bias:
            self.bias = self.parameter("bias", fans[1:], "bias", self.bias_initializer, *fans)

    def forward(self, graph: Graph, x: Tensor) -> Tensor:
        graph.keep(self.name, x=x)
        y = self.output(graph, x)
        product = y if self.bias is None else graph.tensor(f"{self.name}.product", y.shape)
        graph.add(MatMul(a=x, b=self.weight, transpose_b=True, c=product))
        return y if self.bias is None else graph.add(BiasAdd(x=product, b=self.bias, y=y))

    def backward(self, graph: Graph, dy: Tensor) -> Tensor:
        x = graph.kept(self.name)["x"]
        graph.add(MatMul(a=dy, transpose_a=True, b=x, c=graph.gradient(self.weight)))
        if self.bias is not None:
            graph.add(BiasGrad(dy=dy, db=graph.gradient(self.bias)))
        return graph.add(MatMul(a=dy, b=self.weight, c=self.input_gradient(graph, dy)))

"""Dense: y = x W^T + b."""

from __future__ import annotations

from typing import Annotated

from ..common.errors import ShapeError
from ..common.options import Count
from ..graph.graph import Graph, Shape, Tensor
from ..graph.ops import BiasAdd, BiasGrad, MatMul
from .initializers import GLOROT_UNIFORM, ZEROS, Initializer
from .layer import Layer, Parameter, parameter_tensor


class Dense(Layer):
    """Fully connected layer: y = W x + b. Expects a flat input.

    x: (N, inputs), W: (units, inputs), b: (units,), y: (N, units): y = x W^T + b. Backward:
    dx = dy W, dW = dy^T x, db = sum over n of dy.
    """

    kind = "dense"

    def __init__(
        self,
        name: str,
        input_shape: Shape,
        *,
        units: Annotated[Count, "Number of outputs."],
        use_bias: Annotated[bool, "Add a trained bias to each output."] = True,
        kernel_initializer: Annotated[
            Initializer, "Initial values of the weights."
        ] = GLOROT_UNIFORM,
        bias_initializer: Annotated[Initializer, "Initial values of the bias."] = ZEROS,
    ) -> None:
        if len(input_shape) != 1:
            raise ShapeError(f"expects a flat input, got {input_shape}; insert 'flatten' before it")
        if units < 1:
            raise ShapeError(f"units must be at least 1, got {units}")
        super().__init__(name, input_shape, (units,))
        inputs = input_shape[0]
        weight = parameter_tensor(name, "weight", (units, inputs))
        self.weight = Parameter(weight, "kernel", kernel_initializer, inputs, units)
        bias = parameter_tensor(name, "bias", (units,))
        self.bias = Parameter(bias, "bias", bias_initializer, inputs, units) if use_bias else None

    def parameters(self) -> tuple[Parameter, ...]:
        return (self.weight,) if self.bias is None else (self.weight, self.bias)

    def forward(self, graph: Graph, x: Tensor) -> Tensor:
        graph.keep(self.name, x=x)
        y = self.output(graph, x)
        if self.bias is None:
            graph.add(MatMul(a=x, b=self.weight.tensor, transpose_b=True, c=y))
            return y
        product = graph.tensor(f"{self.name}.product", y.shape)
        graph.add(MatMul(a=x, b=self.weight.tensor, transpose_b=True, c=product))
        graph.add(BiasAdd(x=product, b=self.bias.tensor, y=y))
        return y

    def backward(self, graph: Graph, dy: Tensor) -> Tensor:
        x = graph.kept(self.name)["x"]
        weight = self.weight.tensor
        graph.add(MatMul(a=dy, transpose_a=True, b=x, c=graph.gradient(weight)))
        if self.bias is not None:
            graph.add(BiasGrad(dy=dy, db=graph.gradient(self.bias.tensor)))
        dx = self.input_gradient(graph, dy)
        graph.add(MatMul(a=dy, b=weight, c=dx))
        return dx

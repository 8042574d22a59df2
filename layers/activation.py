"""Elementwise activations."""

from __future__ import annotations

from ..graph.graph import Graph, Shape, Tensor
from ..graph.ops import FROM_OUTPUT, Activation, ActivationBackward
from .layer import Layer


class ActivationLayer(Layer):
    """y = f(x), dx = f'(x) dy, elementwise; the formulas stand at ops.Activation."""

    op_kind: str

    def __init__(self, name: str, input_shape: Shape, *, alpha: float = 0.0) -> None:
        super().__init__(name, input_shape, input_shape)
        self.alpha = alpha

    def forward(self, graph: Graph, x: Tensor) -> Tensor:
        y = self.output(graph, x)
        graph.keep(self.name, value=y if self.op_kind in FROM_OUTPUT else x)
        graph.add(Activation(x=x, y=y, kind=self.op_kind, alpha=self.alpha))
        return y

    def backward(self, graph: Graph, dy: Tensor) -> Tensor:
        value = graph.kept(self.name)["value"]
        dx = self.input_gradient(graph, dy)
        graph.add(
            ActivationBackward(value=value, dy=dy, dx=dx, kind=self.op_kind, alpha=self.alpha)
        )
        return dx


class Relu(ActivationLayer):
    """y = max(x, 0)."""

    kind = op_kind = "relu"


class LeakyRelu(ActivationLayer):
    """y = x where x > 0, else negative_slope x (Maas et al. 2013); the slope is 0 or more."""

    kind = op_kind = "leaky_relu"

    def __init__(self, name: str, input_shape: Shape, *, negative_slope: float = 0.01) -> None:
        super().__init__(name, input_shape, alpha=negative_slope)


class Sigmoid(ActivationLayer):
    """y = 1 / (1 + e^-x)."""

    kind = op_kind = "sigmoid"


class Tanh(ActivationLayer):
    """y = tanh(x)."""

    kind = op_kind = "tanh"


class ScaledTanh(ActivationLayer):
    """y = 1.7159 tanh(2 x / 3) (LeCun et al. 1998, appendix A)."""

    kind = op_kind = "scaled_tanh"


class Elu(ActivationLayer):
    """y = x where x > 0, else alpha (e^x - 1) (Clevert et al. 2016); alpha is 0 or more."""

    kind = op_kind = "elu"

    def __init__(self, name: str, input_shape: Shape, *, alpha: float = 1.0) -> None:
        super().__init__(name, input_shape, alpha=alpha)


class Softplus(ActivationLayer):
    """y = log(1 + e^x)."""

    kind = op_kind = "softplus"


class Silu(ActivationLayer):
    """y = x sigmoid(x) (Elfwing et al. 2018)."""

    kind = op_kind = "silu"


class Gelu(ActivationLayer):
    """y = x Phi(x) (Hendrycks and Gimpel 2016), or its tanh approximation."""

    kind = "gelu"

    def __init__(self, name: str, input_shape: Shape, *, approximate: bool = False) -> None:
        super().__init__(name, input_shape)
        self.op_kind = "gelu_tanh" if approximate else "gelu"

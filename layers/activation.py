"""Elementwise activations."""

from __future__ import annotations

from typing import Annotated

from ..common.options import NotNegative, Positive
from ..graph.graph import Graph, Tensor
from ..graph.ops import FROM_OUTPUT, Activation, ActivationBackward
from .layer import Layer


class ActivationLayer(Layer):
    """y = f(x), dx = f'(x) dy, elementwise; the formulas are in ops.Activation."""

    by_pixel = True
    alpha = 0.0

    @property
    def op_kind(self) -> str:
        """The activation as the operations call it."""
        return self.kind

    def forward(self, graph: Graph, x: Tensor) -> Tensor:
        y = self.output(graph, x)
        graph.keep(self.name, value=y if self.op_kind in FROM_OUTPUT else x)
        return graph.add(Activation(x=x, y=y, kind=self.op_kind, alpha=self.alpha))

    def backward(self, graph: Graph, dy: Tensor) -> Tensor:
        value = graph.kept(self.name)["value"]
        dx = self.input_gradient(graph, dy)
        return graph.add(
            ActivationBackward(value=value, dy=dy, dx=dx, kind=self.op_kind, alpha=self.alpha)
        )


class Relu(ActivationLayer):
    """max(x, 0)."""

    kind = "relu"


class Relu6(ActivationLayer):
    """min(max(x, 0), 6).

    Source: Krizhevsky 2010, "Convolutional deep belief networks on CIFAR-10".
    """

    kind = "relu6"


class LeakyRelu(ActivationLayer):
    """x where positive, negative_slope * x elsewhere.

    Source: Maas et al. 2013.
    """

    kind = "leaky_relu"
    negative_slope: Annotated[NotNegative, "Slope for negative inputs."] = 0.01

    def build(self) -> None:
        self.alpha = self.negative_slope


class Sigmoid(ActivationLayer):
    """1 / (1 + exp(-x))."""

    kind = "sigmoid"


class Tanh(ActivationLayer):
    """Hyperbolic tangent."""

    kind = "tanh"


class ScaledTanh(ActivationLayer):
    """1.7159 * tanh(2 * x / 3).

    Source: LeCun et al. 1998, appendix A.
    """

    kind = "scaled_tanh"


class Elu(ActivationLayer):
    """x where positive, alpha * (exp(x) - 1) elsewhere.

    Source: Clevert et al. 2016.
    """

    kind = "elu"
    alpha: Annotated[Positive, "Limit for very negative inputs is -alpha."] = 1.0


class Softplus(ActivationLayer):
    """log(1 + exp(x))."""

    kind = "softplus"


class Silu(ActivationLayer):
    """x * sigmoid(x).

    Source: Elfwing et al. 2018.
    """

    kind = "silu"


class HardSigmoid(ActivationLayer):
    """min(max(x + 3, 0), 6) / 6.

    Source: Howard et al. 2019, section 5.2.
    """

    kind = "hardsigmoid"


class HardSwish(ActivationLayer):
    """x * min(max(x + 3, 0), 6) / 6.

    Source: Howard et al. 2019, section 5.2.
    """

    kind = "hardswish"


class Mish(ActivationLayer):
    """x * tanh(log(1 + exp(x))).

    Source: Misra 2019.
    """

    kind = "mish"


class Gelu(ActivationLayer):
    """x * Phi(x), Phi the normal distribution function.

    Source: Hendrycks and Gimpel 2016, who also give the approximation by tanh.
    """

    kind = "gelu"
    approximate: Annotated[bool, "Use the tanh approximation of Phi."] = False

    @property
    def op_kind(self) -> str:
        return "gelu_tanh" if self.approximate else "gelu"

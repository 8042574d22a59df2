"""Conv2d: filters slid over a picture."""

from __future__ import annotations

from ..common.errors import ShapeError
from .geometry import PaddingSpec, Pair, fit_window, pair
from .graph import Graph, Shape, Tensor
from .initializers import GLOROT_UNIFORM, ZEROS, Initializer
from .layer import Layer, Parameter, parameter_tensor
from .ops import BiasAdd, BiasGrad, Conv2d, Conv2dBackwardData, Conv2dBackwardFilter


def picture_shape(input_shape: Shape) -> tuple[int, int, int]:
    """(C, H, W); raises ShapeError where the input is flat."""
    if len(input_shape) != 3:
        raise ShapeError(
            f"expects a picture (channels, height, width), got {input_shape}; "
            "put it before 'flatten' and the dense layers"
        )
    return input_shape[0], input_shape[1], input_shape[2]


class Conv2dLayer(Layer):
    """y[n,o] = sum over c of x[n,c] correlated with W[o,c], + b[o].

    x: (N, C, H, W), W: (filters, C / groups, kh, kw), b: (filters,), y: (N, filters, P, Q).
    """

    kind = "conv2d"

    def __init__(
        self,
        name: str,
        input_shape: Shape,
        *,
        filters: int,
        kernel_size: int | Pair,
        stride: int | Pair = 1,
        padding: PaddingSpec = "valid",
        dilation: int | Pair = 1,
        groups: int = 1,
        use_bias: bool = True,
        kernel_initializer: Initializer = GLOROT_UNIFORM,
        bias_initializer: Initializer = ZEROS,
    ) -> None:
        channels, height, width = picture_shape(input_shape)
        if filters < 1 or groups < 1:
            raise ShapeError(f"filters and groups must be at least 1, got {filters} and {groups}")
        if channels % groups or filters % groups:
            raise ShapeError(
                f"groups must divide channels and filters: {groups} does not divide "
                f"{channels} channels and {filters} filters"
            )
        self.window = fit_window((height, width), kernel_size, stride, padding, dilation)
        self.groups = groups
        super().__init__(name, input_shape, (filters, *self.window.output(height, width)))
        inner, area = channels // groups, self.window.area
        fans = inner * area, filters // groups * area
        weight = parameter_tensor(name, "weight", (filters, inner, *pair(kernel_size)))
        self.weight = Parameter(weight, "kernel", kernel_initializer, *fans)
        bias = parameter_tensor(name, "bias", (filters,))
        self.bias = Parameter(bias, "bias", bias_initializer, *fans) if use_bias else None

    def parameters(self) -> tuple[Parameter, ...]:
        return (self.weight,) if self.bias is None else (self.weight, self.bias)

    def forward(self, graph: Graph, x: Tensor) -> Tensor:
        graph.keep(self.name, x=x)
        y = self.output(graph, x)
        filtered = y if self.bias is None else graph.tensor(f"{self.name}.filtered", y.shape)
        weight = self.weight.tensor
        graph.add(Conv2d(x=x, w=weight, y=filtered, window=self.window, groups=self.groups))
        if self.bias is not None:
            graph.add(BiasAdd(x=filtered, b=self.bias.tensor, y=y))
        return y

    def backward(self, graph: Graph, dy: Tensor) -> Tensor:
        x = graph.kept(self.name)["x"]
        weight = self.weight.tensor
        dw = graph.gradient(weight)
        graph.add(Conv2dBackwardFilter(x=x, dy=dy, dw=dw, window=self.window, groups=self.groups))
        if self.bias is not None:
            graph.add(BiasGrad(dy=dy, db=graph.gradient(self.bias.tensor)))
        dx = self.input_gradient(graph, dy)
        graph.add(
            Conv2dBackwardData(dy=dy, w=weight, dx=dx, window=self.window, groups=self.groups)
        )
        return dx

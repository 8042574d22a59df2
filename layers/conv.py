"""Conv2d: filters slid over a picture."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Annotated, Any, ClassVar, Literal

from ..common.errors import ShapeError
from ..common.options import Check, Count, OptionError, Padding, Size
from ..graph import ops
from ..graph.geometry import Window, fit_window
from ..graph.graph import Graph, Shape, Tensor
from .connections import Connections, connected
from .initializers import GLOROT_UNIFORM, ZEROS, FanIn
from .layer import BiasInitializer, KernelInitializer, Layer, UseBias


def picture_shape(input_shape: Shape) -> tuple[int, int, int]:
    """(C, H, W); raises ShapeError if the input is flat."""
    if len(input_shape) != 3:
        raise ShapeError(
            f"expects a picture (channels, height, width), got {input_shape}; "
            "put it before 'flatten' and the dense layers"
        )
    return input_shape[0], input_shape[1], input_shape[2]


PIXEL = Window((1, 1))
WindowSize = Annotated[Size, "Size of the window: number or [height, width]."]


def _divides_filters(groups: int, others: Mapping[str, Any]) -> None:
    filters = others.get("filters", groups)
    if filters % groups:
        raise OptionError(f"expected a number that divides filters, which is {filters}")


class Conv2dLayer(Layer):
    """Convolution (cross-correlation) over height and width.

    y[n,o] = sum over c of x[n,c] correlated with W[o,c], + b[o]. x: (N, C, H, W),
    W: (filters, C / groups, kh, kw), b: (filters,), y: (N, filters, P, Q). ``algorithm`` im2col
    gives the same sums in another order. With ``connections`` W is (connections, kh, kw), filter by
    filter in the order of its list.
    """

    kind = "conv2d"
    fit: ClassVar[Callable[..., Window]] = staticmethod(fit_window)
    filters: Annotated[Count, "Number of output channels."]
    kernel_size: WindowSize
    stride: Annotated[Size, "Step of the window: number or [height, width]."] = 1
    padding: Annotated[
        Padding,
        "Zeros added on either side: number, [height, width], same or valid (none). "
        "same gives ceil(input / stride) outputs, an odd zero goes to the bottom and right.",
    ] = "valid"
    dilation: Annotated[Size, "Distance between the window's elements."] = 1
    groups: Annotated[
        Count,
        Check(_divides_filters),
        "Channels are split into this many groups, which are convolved separately.",
    ] = 1
    algorithm: Annotated[
        Literal["auto", "im2col"],
        "auto: the library's convolution; im2col: unroll the picture into a matrix, then "
        "multiply matrices; not with groups.",
    ] = "auto"
    connections: Annotated[
        Connections | None,
        "The input maps that each filter sees, a list of them for each filter, or lenet5, "
        "table I of LeCun et al. 1998; default: all. Not with groups.",
    ] = None
    use_bias: UseBias = True
    kernel_initializer: KernelInitializer = GLOROT_UNIFORM
    bias_initializer: BiasInitializer = ZEROS

    def build(self) -> None:
        channels, height, width = picture_shape(self.input_shape)
        filters, groups, connections = self.filters, self.groups, self.connections
        if channels % groups or filters % groups:
            raise ShapeError(
                f"groups must divide channels and filters: {groups} does not divide "
                f"{channels} channels and {filters} filters"
            )
        if groups > 1 and (self.algorithm == "im2col" or connections is not None):
            what = "connections" if connections is not None else "algorithm: im2col"
            raise ShapeError(f"{what} cannot be combined with groups; leave one of them out")
        picture = height, width
        self.window = self.fit(picture, self.kernel_size, self.stride, self.padding, self.dilation)
        self.output_shape = (filters, *self.window.output(*picture))
        inner, area = channels // groups, self.window.area
        shape: Shape = (filters, inner, *self.window.kernel)
        self.filters_shape = shape
        fans = inner * area, filters // groups * area
        fan_in: FanIn
        fan_in, fan_out = fans
        self.pairs: tuple[tuple[int, int], ...] = ()
        if connections is not None:
            table = connected(connections, filters, channels)
            self.pairs = tuple((o, c) for o, maps in enumerate(table) for c in maps)
            shape = (len(self.pairs), *self.window.kernel)
            fan_in = tuple(len(table[o]) * area for o, _ in self.pairs)
            fan_out = max(1, len(self.pairs) * area // channels)
        initializer = self.kernel_initializer
        self.weight = self.parameter("weight", shape, "kernel", initializer, fan_in, fan_out)
        self.bias = None
        if self.use_bias:
            self.bias = self.parameter("bias", (filters,), "bias", self.bias_initializer, *fans)

    def forward(self, graph: Graph, x: Tensor) -> Tensor:
        w = self.weight
        if self.pairs:
            filters = graph.tensor(f"{self.name}.filters", self.filters_shape)
            w = graph.add(ops.ConnectFilters(weights=w, filters=filters, pairs=self.pairs))
        y = self.output(graph, x)
        if self.algorithm == "im2col":
            return self._forward_unrolled(graph, x, w, y)
        graph.keep(self.name, x=x, w=w)
        filtered = y if self.bias is None else graph.tensor(f"{self.name}.filtered", y.shape)
        graph.add(ops.Conv2d(x=x, w=w, y=filtered, window=self.window, groups=self.groups))
        return y if self.bias is None else graph.add(ops.BiasAdd(x=filtered, b=self.bias, y=y))

    def backward(self, graph: Graph, dy: Tensor) -> Tensor:
        kept = graph.kept(self.name)
        weights = graph.gradient(self.weight)
        dw = graph.tensor(f"{self.name}.dfilters", self.filters_shape) if self.pairs else weights
        dx = self.input_gradient(graph, dy)
        if self.algorithm == "im2col":
            self._backward_unrolled(graph, dy, dw, dx)
        else:
            window, groups = self.window, self.groups
            graph.add(
                ops.Conv2dBackwardFilter(x=kept["x"], dy=dy, dw=dw, window=window, groups=groups)
            )
            if self.bias is not None:
                graph.add(ops.BiasGrad(dy=dy, db=graph.gradient(self.bias)))
            graph.add(
                ops.Conv2dBackwardData(dy=dy, w=kept["w"], dx=dx, window=window, groups=groups)
            )
        if self.pairs:
            graph.add(ops.ConnectFiltersBackward(dfilters=dw, dweights=weights, pairs=self.pairs))
        return dx

    def _forward_unrolled(self, graph: Graph, x: Tensor, w: Tensor, y: Tensor) -> Tensor:
        """y as rows of pixels = columns W^T + b, then turned back into pictures."""
        filters, pixels = y.shape[1], y.size // y.shape[1]
        inputs = prod(w.shape[1:])
        columns = graph.tensor(f"{self.name}.columns", (pixels, inputs))
        graph.add(ops.Im2col(x=x, columns=columns, window=self.window))
        matrix = self.reshaped(graph, w, "matrix", (filters, inputs))
        graph.keep(self.name, columns=columns, matrix=matrix)
        rows = product = graph.tensor(f"{self.name}.product", (pixels, filters))
        graph.add(ops.MatMul(a=columns, b=matrix, transpose_b=True, c=product))
        if self.bias is not None:
            rows = graph.tensor(f"{self.name}.rows", product.shape)
            graph.add(ops.BiasAdd(x=product, b=self.bias, y=rows))
        return graph.add(ops.Col2im(columns=rows, x=y, window=PIXEL))

    def _backward_unrolled(self, graph: Graph, dy: Tensor, dw: Tensor, dx: Tensor) -> None:
        """dW = dy^T columns, dcolumns = dy W, dy as rows of pixels."""
        kept = graph.kept(self.name)
        columns, matrix = kept["columns"], kept["matrix"]
        drows = graph.tensor(f"{self.name}.drows", (columns.shape[0], matrix.shape[0]))
        graph.add(ops.Im2col(x=dy, columns=drows, window=PIXEL))
        dmatrix = graph.tensor(f"{self.name}.dmatrix", matrix.shape)
        graph.add(ops.MatMul(a=drows, transpose_a=True, b=columns, c=dmatrix))
        graph.add(ops.Reshape(x=dmatrix, y=dw))
        if self.bias is not None:
            graph.add(ops.BiasGrad(dy=drows, db=graph.gradient(self.bias)))
        dcolumns = graph.tensor(f"{self.name}.dcolumns", columns.shape)
        graph.add(ops.MatMul(a=drows, b=matrix, c=dcolumns))
        graph.add(ops.Col2im(columns=dcolumns, x=dx, window=self.window))

"""Max, average and global average pooling."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, ClassVar

from ..common.errors import ShapeError
from ..common.options import Check, DefaultOf, OptionError, Padding, Size
from ..graph.geometry import Window, fit_window, pair
from ..graph.graph import Graph, Tensor
from ..graph.ops import Pool2d, Pool2dBackward, PoolKind, Reshape
from .conv import WindowSize, picture_shape
from .layer import Layer, SingleLayer

PoolStride = Annotated[
    Size | None, DefaultOf("pool_size"), "Step of the window; default: pool_size."
]


def at_most_half(padding: Any, others: Mapping[str, Any]) -> None:
    """Raise OptionError for a window that could lie outside the picture."""
    size = others.get("pool_size")
    if size and not isinstance(padding, str):
        rows, columns = (side // 2 for side in pair(size))
        if pair(padding)[0] > rows or pair(padding)[1] > columns:
            most = rows if rows == columns else [rows, columns]
            raise OptionError(f"expected at most {most}, half of pool_size")


class Pooling(SingleLayer):
    """y = max, or mean over the pixels inside the picture, of x in each window.

    x: (N, C, H, W), y: (N, C, P, Q). ``stride`` is the pool size unless given.
    """

    op = Pool2d
    backward_op = Pool2dBackward
    pool: ClassVar[PoolKind]
    fit: ClassVar[Callable[..., Window]] = staticmethod(fit_window)

    pool_size: WindowSize = 2
    stride: PoolStride = None
    padding: Annotated[
        Padding,
        Check(at_most_half),
        "Padding on either side, at most half of pool_size: number, [height, width], same or "
        "valid (none); it is never the maximum and does not count in an average.",
    ] = "valid"
    ceil_mode: Annotated[bool, "Round the output size up, as Caffe does."] = False

    def build(self) -> None:
        channels, height, width = picture_shape(self.input_shape)
        try:
            at_most_half(self.padding, {"pool_size": self.pool_size})
        except OptionError as error:
            raise ShapeError(f"padding: {error}") from None
        step = self.pool_size if self.stride is None else self.stride
        self.window = self.fit(
            (height, width), self.pool_size, step, self.padding, 1, self.ceil_mode
        )
        self.output_shape = (channels, *self.window.output(height, width))

    def fields(self) -> dict[str, Any]:
        return {"window": self.window, "kind": self.pool}


class MaxPool2d(Pooling):
    """Largest value of each window; ties go to the first.

    Backward sends dy to the first occurrence of the largest value.
    """

    kind = "max_pool2d"
    pool = "max"
    keeps = ("x", "y")


class AvgPool2d(Pooling):
    """Mean of the values of each window that lie inside the picture."""

    kind = "avg_pool2d"
    pool = "avg"


class GlobalAvgPool2d(Layer):
    """Mean of each channel; the output is flat.

    x: (N, C, H, W), y: (N, C).
    """

    kind = "global_avg_pool2d"

    def build(self) -> None:
        channels, height, width = picture_shape(self.input_shape)
        self.output_shape = (channels,)
        self.window = Window((height, width), (height, width))

    def forward(self, graph: Graph, x: Tensor) -> Tensor:
        pooled = graph.tensor(f"{self.name}.pooled", (*x.shape[:2], 1, 1))
        graph.add(Pool2d(x=x, y=pooled, window=self.window, kind="avg"))
        return graph.add(Reshape(x=pooled, y=self.output(graph, x)))

    def backward(self, graph: Graph, dy: Tensor) -> Tensor:
        spread = self.reshaped(graph, dy, "dpooled", (*dy.shape, 1, 1))
        dx = self.input_gradient(graph, dy)
        return graph.add(Pool2dBackward(dy=spread, dx=dx, window=self.window, kind="avg"))

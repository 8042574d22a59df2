"""Max, average and global average pooling."""

from __future__ import annotations

from ..common.errors import ShapeError
from ..graph.geometry import PaddingSpec, Pair, Window, fit_window, pair
from ..graph.graph import Graph, Shape, Tensor
from ..graph.ops import Pool2d, Pool2dBackward, PoolKind, Reshape
from .conv import picture_shape
from .layer import Layer


class Pooling(Layer):
    """y = max, or mean over the pixels inside the picture, of x in each window.

    x: (N, C, H, W), y: (N, C, P, Q). ``stride`` is the pool size unless given.
    """

    pool: PoolKind

    def __init__(
        self,
        name: str,
        input_shape: Shape,
        *,
        pool_size: int | Pair = 2,
        stride: int | Pair | None = None,
        padding: PaddingSpec = "valid",
        ceil_mode: bool = False,
    ) -> None:
        channels, height, width = picture_shape(input_shape)
        kernel = pair(pool_size)
        largest = kernel[0] // 2, kernel[1] // 2
        if not isinstance(padding, str) and any(
            p > most for p, most in zip(pair(padding), largest, strict=True)
        ):
            raise ShapeError(
                f"padding {pair(padding)} is more than half of the pool size {kernel}: "
                f"a window could lie outside the picture; use {largest} at most"
            )
        step = pool_size if stride is None else stride
        self.window = fit_window((height, width), kernel, step, padding, 1, ceil_mode)
        super().__init__(name, input_shape, (channels, *self.window.output(height, width)))

    def forward(self, graph: Graph, x: Tensor) -> Tensor:
        y = self.output(graph, x)
        graph.keep(self.name, x=x, y=y)
        graph.add(Pool2d(x=x, y=y, window=self.window, kind=self.pool))
        return y

    def backward(self, graph: Graph, dy: Tensor) -> Tensor:
        dx = self.input_gradient(graph, dy)
        kept = graph.kept(self.name)
        x, y = (kept["x"], kept["y"]) if self.pool == "max" else (None, None)
        graph.add(Pool2dBackward(x=x, y=y, dy=dy, dx=dx, window=self.window, kind=self.pool))
        return dx


class MaxPool2d(Pooling):
    """y[n,c,p,q] = the largest x in the window; backward sends dy to its first occurrence."""

    kind = "max_pool2d"
    pool = "max"


class AvgPool2d(Pooling):
    """y[n,c,p,q] = the mean of x over the window's pixels inside the picture."""

    kind = "avg_pool2d"
    pool = "avg"


class GlobalAvgPool2d(Layer):
    """y[n,c] = mean over h, w of x[n,c,h,w]; x: (N, C, H, W), y: (N, C)."""

    kind = "global_avg_pool2d"

    def __init__(self, name: str, input_shape: Shape) -> None:
        channels, height, width = picture_shape(input_shape)
        super().__init__(name, input_shape, (channels,))
        self.window = Window((height, width), (height, width))

    def forward(self, graph: Graph, x: Tensor) -> Tensor:
        pooled = graph.tensor(f"{self.name}.pooled", (*x.shape[:2], 1, 1))
        graph.add(Pool2d(x=x, y=pooled, window=self.window, kind="avg"))
        y = self.output(graph, x)
        graph.add(Reshape(x=pooled, y=y))
        return y

    def backward(self, graph: Graph, dy: Tensor) -> Tensor:
        spread = graph.tensor(f"{self.name}.dpooled", (*dy.shape, 1, 1))
        graph.add(Reshape(x=dy, y=spread))
        dx = self.input_gradient(graph, dy)
        graph.add(Pool2dBackward(dy=spread, dx=dx, window=self.window, kind="avg"))
        return dx

"""Local response normalisation, across channels and within a channel."""

from __future__ import annotations

from ..common.errors import ShapeError
from ..graph.graph import Graph, Shape, Tensor
from ..graph.ops import DivisiveNorm, DivisiveNormBackward, Lrn, LrnBackward
from .conv import picture_shape
from .layer import Layer

# The bounds of cudnnSetLRNDescriptor; its widest window is 16, but an even one has no middle.
LARGEST_SIZE, LEAST_BETA, LEAST_K = 15, 0.01, 1e-5


class _LocalNorm(Layer):
    forward_op: type[Lrn] | type[DivisiveNorm]
    backward_op: type[LrnBackward] | type[DivisiveNormBackward]

    def __init__(
        self,
        name: str,
        input_shape: Shape,
        *,
        size: int = 5,
        alpha: float = 1e-4,
        beta: float = 0.75,
        k: float = 2.0,
    ) -> None:
        picture_shape(input_shape)
        if size % 2 == 0 or not 1 <= size <= LARGEST_SIZE:
            raise ShapeError(f"size must be odd, from 1 to {LARGEST_SIZE}, got {size}")
        if alpha < 0.0 or beta < LEAST_BETA or k < LEAST_K:
            raise ShapeError(
                f"alpha must be at least 0, beta {LEAST_BETA:g} and k {LEAST_K:g}, "
                f"got {alpha:g}, {beta:g} and {k:g}"
            )
        super().__init__(name, input_shape, input_shape)
        self.size, self.alpha, self.beta, self.k = size, alpha, beta, k

    def forward(self, graph: Graph, x: Tensor) -> Tensor:
        y = self.output(graph, x)
        graph.keep(self.name, x=x, y=y)
        graph.add(
            self.forward_op(x=x, y=y, size=self.size, alpha=self.alpha, beta=self.beta, k=self.k)
        )
        return y

    def backward(self, graph: Graph, dy: Tensor) -> Tensor:
        kept = graph.kept(self.name)
        dx = self.input_gradient(graph, dy)
        graph.add(
            self.backward_op(
                x=kept["x"],
                y=kept["y"],
                dy=dy,
                dx=dx,
                size=self.size,
                alpha=self.alpha,
                beta=self.beta,
                k=self.k,
            )
        )
        return dx


class LrnLayer(_LocalNorm):
    """y[c] = x[c] / (k + (alpha / size) sum of x^2 over ``size`` neighbouring channels)^beta.

    x, y: (N, C, H, W). Krizhevsky et al. 2012, who do not divide alpha by the size.
    """

    kind = "lrn"
    forward_op = Lrn
    backward_op = LrnBackward


class LcnLayer(_LocalNorm):
    """y[p,q] = x[p,q] / (k + (alpha / size^2) sum of x^2 over size x size neighbours)^beta.

    Each channel apart; x, y: (N, C, H, W). cuDNN's divisive normalisation (see ops.DivisiveNorm),
    after Jarrett et al. 2009.
    """

    kind = "lcn"
    forward_op = DivisiveNorm
    backward_op = DivisiveNormBackward

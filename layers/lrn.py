"""Local response normalisation, across channels and within a channel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from annotated_types import Interval

from ..common.errors import ShapeError
from ..common.options import Check, NotNegative, OptionError
from ..graph.graph import Graph, Shape, Tensor
from ..graph.ops import DivisiveNorm, DivisiveNormBackward, Lrn, LrnBackward
from .conv import picture_shape
from .layer import Layer

# The bounds of cudnnSetLRNDescriptor; its widest window is 16, but an even one has no middle.
LARGEST_SIZE, LEAST_BETA, LEAST_K = 15, 0.01, 1e-5


def _odd(size: int, others: Mapping[str, Any]) -> None:
    if size % 2 == 0:
        raise OptionError("expected an odd number, so that the window has a middle")


class _LocalNorm(Layer):
    forward_op: type[Lrn] | type[DivisiveNorm]
    backward_op: type[LrnBackward] | type[DivisiveNormBackward]

    def __init__(
        self,
        name: str,
        input_shape: Shape,
        *,
        size: Annotated[
            int, Interval(ge=1, le=LARGEST_SIZE), Check(_odd), "Length of the window, odd."
        ] = 5,
        alpha: Annotated[
            NotNegative,
            "Weight of the window's mean square (missing values count as 0). Krizhevsky et al. "
            "weight the sum: their 1e-4 is 5e-4 here.",
        ] = 1e-4,
        beta: Annotated[float, Interval(ge=LEAST_BETA), "Exponent."] = 0.75,
        k: Annotated[float, Interval(ge=LEAST_K), "Added to the mean."] = 2.0,
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
    """x / (k + alpha * mean of x^2 over size neighbouring channels)^beta.

    x, y: (N, C, H, W). Source: Krizhevsky et al. 2012, who do not divide alpha by the size.
    """

    kind = "lrn"
    forward_op = Lrn
    backward_op = LrnBackward


class LcnLayer(_LocalNorm):
    """x / (k + alpha * mean of x^2 over size x size neighbouring pixels of the channel)^beta.

    x, y: (N, C, H, W). cuDNN's divisive normalisation (see ops.DivisiveNorm),
    after Jarrett et al. 2009.
    """

    kind = "lcn"
    forward_op = DivisiveNorm
    backward_op = DivisiveNormBackward

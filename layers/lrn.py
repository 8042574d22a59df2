"""Local response normalisation, across channels and within a channel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from annotated_types import Interval

from ..common.options import Check, NotNegative, OptionError
from ..graph.graph import Graph, Tensor
from ..graph.ops import DivisiveNorm, DivisiveNormBackward, Lrn, LrnBackward
from .conv import picture_shape
from .layer import Layer


def _odd(size: int, others: Mapping[str, Any]) -> None:
    if size % 2 == 0:
        raise OptionError("expected an odd number, so that the window has a middle")


class _LocalNorm(Layer):
    # Bounds as in cudnnSetLRNDescriptor; its widest window is 16, but an even one has no middle.

    forward_op: ClassVar[type[Lrn] | type[DivisiveNorm]]
    backward_op: ClassVar[type[LrnBackward] | type[DivisiveNormBackward]]

    size: Annotated[int, Interval(ge=1, le=15), Check(_odd), "Length of the window, odd."] = 5
    alpha: Annotated[
        NotNegative,
        "Weight of the window's mean square (missing values count as 0). Krizhevsky et al. "
        "weight the sum: their 1e-4 is 5e-4 here.",
    ] = 1e-4
    beta: Annotated[float, Interval(ge=0.01), "Exponent."] = 0.75
    k: Annotated[float, Interval(ge=1e-5), "Added to the mean."] = 2.0

    def build(self) -> None:
        picture_shape(self.input_shape)
        numbers = {"size": self.size, "alpha": self.alpha, "beta": self.beta, "k": self.k}
        self._formula: dict[str, Any] = numbers

    def forward(self, graph: Graph, x: Tensor) -> Tensor:
        y = self.output(graph, x)
        graph.keep(self.name, x=x, y=y)
        return graph.add(self.forward_op(x=x, y=y, **self._formula))

    def backward(self, graph: Graph, dy: Tensor) -> Tensor:
        dx, kept = self.input_gradient(graph, dy), graph.kept(self.name)
        return graph.add(self.backward_op(**kept, dy=dy, dx=dx, **self._formula))


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

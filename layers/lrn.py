"""Local response normalisation, across channels and within a channel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from annotated_types import Interval

from ..common.options import Check, NotNegative, OptionError
from ..graph.ops import DivisiveNorm, DivisiveNormBackward, Lrn, LrnBackward
from .conv import picture_shape
from .layer import SingleLayer


def _odd(size: int, others: Mapping[str, Any]) -> None:
    if size % 2 == 0:
        raise OptionError("expected an odd number, so that the window has a middle")


class _LocalNorm(SingleLayer):
    # Bounds as in cudnnSetLRNDescriptor; its widest window is 16, but an even one has no middle.

    keeps = ("x", "y")

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


class LrnLayer(_LocalNorm):
    """x / (k + alpha * mean of x^2 over size neighbouring channels)^beta.

    x, y: (N, C, H, W). Source: Krizhevsky et al. 2012, who do not divide alpha by the size.
    """

    kind = "lrn"
    by_pixel = True
    op = Lrn
    backward_op = LrnBackward


class LcnLayer(_LocalNorm):
    """x / (k + alpha * mean of x^2 over size x size neighbouring pixels of the channel)^beta.

    x, y: (N, C, H, W). cuDNN's divisive normalisation (see ops.DivisiveNorm),
    after Jarrett et al. 2009.
    """

    kind = "lcn"
    op = DivisiveNorm
    backward_op = DivisiveNormBackward

"""Convolution and pooling of sequences, computed as pictures of height 1."""

from __future__ import annotations

from typing import Annotated, Any

from ..common.errors import ShapeError
from ..common.options import Check, Count, DefaultOf, Ends
from ..graph.geometry import Pair, Window, fit_window
from .conv import Conv2dLayer
from .layer import Layer
from .pool import GlobalAvgPool2d, Pooling, at_most_half

Length = Annotated[Count, "Size of the window."]


class OnSequence(Layer):
    """What comes before a layer of pictures makes one of sequences (C, L), which are (C, 1, L)."""

    @staticmethod
    def fit(
        picture: Pair, size: int, step: int, padding: Any, dilation: int, *more: bool
    ) -> Window:
        """``fit_window`` along the sequence."""
        ends: Any = padding if isinstance(padding, str) else (0, padding)
        return fit_window(picture, (1, size), (1, step), ends, (1, dilation), *more)

    def build(self) -> None:
        shape = self.input_shape
        if len(shape) != 3 or shape[1] != 1:
            raise ShapeError(
                f"expects a sequence (channels, 1, length), got {shape}; for pictures there is "
                f"{self.kind.replace('1d', '2d')}, and 'flatten' comes behind both"
            )
        super().build()


class Conv1dLayer(OnSequence, Conv2dLayer):
    """Convolution (cross-correlation) along a sequence.

    x: (N, C, 1, L), W: (filters, C / groups, 1, k), b: (filters,), y: (N, filters, 1, M).
    """

    kind = "conv1d"
    filters: Annotated[Count, "Number of output channels."]
    kernel_size: Length
    stride: Annotated[Count, "Step of the window."] = 1
    padding: Annotated[
        Ends,
        "Zeros added at either end: number, same or valid (none). same gives "
        "ceil(input / stride) outputs, an odd zero goes to the end.",
    ] = "valid"
    dilation: Annotated[Count, "Distance between the window's elements."] = 1


class Pooling1d(OnSequence, Pooling):
    """Pooling of x: (N, C, 1, L) to y: (N, C, 1, M)."""

    pool_size: Length = 2
    stride: Annotated[
        Count | None, DefaultOf("pool_size"), "Step of the window; default: pool_size."
    ] = None
    padding: Annotated[
        Ends,
        Check(at_most_half),
        "Padding at either end, at most half of pool_size: number, same or valid (none); it is "
        "never the maximum and does not count in an average.",
    ] = "valid"


class MaxPool1d(Pooling1d):
    """Largest value of each window of a sequence; ties go to the first."""

    kind = "max_pool1d"
    pool = "max"
    keeps = ("x", "y")


class AvgPool1d(Pooling1d):
    """Mean of the values of each window that lie inside the sequence."""

    kind = "avg_pool1d"
    pool = "avg"


class GlobalAvgPool1d(OnSequence, GlobalAvgPool2d):
    """Mean of each channel of a sequence; the output is flat."""

    kind = "global_avg_pool1d"

"""The one size formula of windows that slide over a picture: convolution and pooling share it."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from ..common.errors import ShapeError
from ..common.records import dataclass

Pair = tuple[int, int]
PaddingSpec = int | Pair | Literal["same", "valid"]


def pair(value: int | Pair) -> Pair:
    """(v, v) for a number, a pair as it is: (height, width)."""
    return (value, value) if isinstance(value, int) else (value[0], value[1])


@dataclass(frozen=True)
class Window:
    """A window of ``kernel`` pixels that moves by ``stride`` over a padded picture; all (h, w).

    ``padding`` is (top, bottom, left, right). Output size along an axis, rounded down:
    out = (in + before + after - dilation * (kernel - 1) - 1) // stride + 1.
    """

    kernel: Pair
    stride: Pair = (1, 1)
    padding: tuple[int, int, int, int] = (0, 0, 0, 0)
    dilation: Pair = (1, 1)

    @property
    def extent(self) -> Pair:
        """Pixels from the window's first to its last row and column, holes included."""
        return (
            self.dilation[0] * (self.kernel[0] - 1) + 1,
            self.dilation[1] * (self.kernel[1] - 1) + 1,
        )

    def output(self, height: int, width: int) -> Pair:
        """(height, width) of the output; 0 or less if the window does not fit."""
        top, bottom, left, right = self.padding
        rows = (height + top + bottom - self.extent[0]) // self.stride[0] + 1
        columns = (width + left + right - self.extent[1]) // self.stride[1] + 1
        return rows, columns

    @property
    def is_lopsided(self) -> bool:
        """Whether the padding differs between top and bottom, or left and right, as in ``same``."""
        top, bottom, left, right = self.padding
        return top != bottom or left != right

    @property
    def area(self) -> int:
        return self.kernel[0] * self.kernel[1]

    def __str__(self) -> str:
        text = f"{self.kernel[0]}x{self.kernel[1]}"
        if self.stride != (1, 1):
            text += f" stride {self.stride[0]}x{self.stride[1]}"
        if any(self.padding):
            text += " padding " + ",".join(map(str, self.padding))
        if self.dilation != (1, 1):
            text += f" dilation {self.dilation[0]}x{self.dilation[1]}"
        return text


def fit_window(
    picture: Pair,
    kernel: int | Pair,
    stride: int | Pair = 1,
    padding: PaddingSpec = "valid",
    dilation: int | Pair = 1,
    ceil_mode: bool = False,
) -> Window:
    """The window with its padding worked out for a picture of (height, width).

    ``same`` is Keras's: output ceil(in / stride), the odd pixel at the bottom and right.
    ``ceil_mode`` rounds the output size up as Caffe and PyTorch do, by padding at the bottom and
    right, unless the last window would start beyond the picture.
    Raises ShapeError if the window is larger than the padded picture.
    """
    plain = Window(pair(kernel), pair(stride), dilation=pair(dilation))
    if min((*plain.kernel, *plain.stride, *plain.dilation)) < 1:
        raise ShapeError(f"kernel size, stride and dilation must be at least 1, got {plain}")
    ends = [_padding(picture[axis], plain, axis, padding, ceil_mode) for axis in (0, 1)]
    window = replace(plain, padding=(*ends[0], *ends[1]))
    if min(window.output(*picture)) < 1:
        raise ShapeError(
            f"a window of {window.extent[0]}x{window.extent[1]} does not fit the picture of "
            f"{picture[0]}x{picture[1]}; use a smaller kernel, 'padding: same', or fewer poolings"
        )
    return window


def _padding(
    size: int, window: Window, axis: int, padding: PaddingSpec, ceil_mode: bool
) -> tuple[int, int]:
    extent, stride = window.extent[axis], window.stride[axis]
    if padding == "same":
        total = max((-(-size // stride) - 1) * stride + extent - size, 0)
        return total // 2, total - total // 2
    width = 0 if padding == "valid" else pair(padding)[axis]
    if width < 0:
        raise ShapeError(f"padding must not be negative, got {width}")
    if not ceil_mode:
        return width, width
    count = -((extent - size - 2 * width) // stride) + 1
    if (count - 1) * stride >= size + width:
        count -= 1
    return width, max(width, (count - 1) * stride + extent - size - width)

"""Layout: how a tensor lies on the device, and the way between that and the canonical array.

Pictures and filters are channels-last with channels padded to what tensor cores like, or plain
NCHW. The rows of a flattened picture keep the picture's own order, so that flattening moves
nothing; the weights of the dense layer behind it have their columns in that order too. Padding is
zero, and every operation keeps it so.
"""

from __future__ import annotations

from math import prod
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from ....common.records import dataclass
from ....graph.graph import Shape

FLOAT: Final = "float32"
BFLOAT: Final = "bfloat16"
Number = Literal["float32", "bfloat16"]


@dataclass(frozen=True)
class Layout:
    """``shape`` is the tensor's, ``stored`` its sizes with padding, in the same order of axes.

    nhwc: axis 1 of four runs fastest. picture: (C, H, W), where axis 1 of two holds a picture with
    its channels fastest, C unpadded. dtype: the tensor's, or bfloat16 for a float32 one.
    """

    shape: Shape
    stored: Shape
    nhwc: bool = False
    picture: Shape | None = None
    dtype: str = FLOAT

    @property
    def size(self) -> int:
        """Stored elements."""
        return prod(self.stored)

    @property
    def columns(self) -> int:
        """Stored channels or units."""
        return self.stored[1]

    @property
    def item(self) -> str:
        """The NumPy type of an element; bfloat16 is kept as the upper half of a float32."""
        return "uint16" if self.dtype == BFLOAT else self.dtype

    @property
    def sizes(self) -> Shape:
        """(N, C, H, W) as the tensor is seen by a kernel that converts."""
        if self.picture is not None:
            return (self.shape[0], *self.picture)
        rows = self.shape if len(self.shape) in (2, 4) else (1, prod(self.shape))
        return (*rows, 1, 1)[:4]

    @property
    def strides(self) -> Shape:
        """Elements between neighbours along each of ``sizes``."""
        if self.picture is not None:
            channels, _, width = self.picture
            return (self.stored[1], 1, width * channels, channels)
        if len(self.shape) == 4:
            _, c, h, w = self.stored
            return (h * w * c, 1, w * c, c) if self.nhwc else (c * h * w, h * w, w, 1)
        if len(self.shape) == 2:
            return (self.stored[1], 1, 1, 1)
        return (prod(self.stored), 1, 1, 1)

    def among(self, other: Layout) -> tuple[Shape, Shape]:
        """``sizes`` and ``strides`` for a copy from or to another layout: of rows that are a
        flattened picture there, the picture's."""
        if self.picture is not None or other.picture is None or len(self.shape) != 2:
            return self.sizes, self.strides
        _, height, width = other.picture
        return other.sizes, (self.stored[1], height * width, width, 1)

    def same(self, other: Layout) -> bool:
        """Whether the bytes mean the same."""
        ends = zip(self.strides, other.strides, self.sizes, strict=True)
        mine, others = (self.dtype, self.size, self.sizes), (other.dtype, other.size, other.sizes)
        return mine == others and all(a == b for a, b, size in ends if size > 1)

    def pack(self, array: NDArray[Any]) -> NDArray[Any]:
        """The flat stored array of a canonical one."""
        flat = np.zeros(self.size, self.item)
        source = array.reshape(self.sizes)
        self._view(flat)[...] = _to_bfloat(source) if self.dtype == BFLOAT else source
        return flat

    def unpack(self, flat: NDArray[Any]) -> NDArray[Any]:
        """The canonical, contiguous array of a flat stored one."""
        values = np.ascontiguousarray(self._view(flat)).reshape(self.shape)
        return _from_bfloat(values) if self.dtype == BFLOAT else values

    def _view(self, flat: NDArray[Any]) -> NDArray[Any]:
        steps = tuple(step * flat.itemsize for step in self.strides)
        return np.lib.stride_tricks.as_strided(flat, self.sizes, steps)


def plain(shape: Shape, dtype: str = FLOAT) -> Layout:
    """Row-major without padding."""
    return Layout(shape, shape, dtype=dtype)


def ceil_div(size: int, part: int) -> int:
    """How many parts hold so much."""
    return -(-size // part)


def padded(size: int, multiple: int) -> int:
    """The next multiple."""
    return ceil_div(size, multiple) * multiple


def _to_bfloat(values: NDArray[Any]) -> NDArray[np.uint16]:
    """Round to nearest, ties to even; NaN stays NaN."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    rounded = bits >> 16
    rounded &= 1
    rounded += bits
    rounded += 0x7FFF
    rounded >>= 16
    found = rounded.astype(np.uint16)
    found[np.isnan(values)] = 0x7FC0
    return found


def _from_bfloat(values: NDArray[np.uint16]) -> NDArray[np.float32]:
    return (values.astype(np.uint32) << 16).view(np.float32)

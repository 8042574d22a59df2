"""What a convolution of cuDNN's takes or gives."""

from __future__ import annotations

from typing import Any

from ....common.records import dataclass
from ....graph.graph import Shape
from .layout import BFLOAT, Layout
from .runtime import cupy


@dataclass(frozen=True)
class Operand:
    """x, w, y or bias as the graph sees it: stored sizes, strides in elements, element type."""

    sizes: Shape
    strides: Shape
    dtype: str

    @classmethod
    def of(cls, layout: Layout) -> Operand:
        """A tensor of four dimensions, its padding included."""
        return cls(layout.stored, layout.strides, layout.dtype)

    @property
    def count(self) -> int:
        n, c, h, w = self.sizes
        return n * c * h * w

    def zeros(self) -> Any:
        """A device array for it."""
        return cupy().zeros(self.count, "uint16" if self.dtype == BFLOAT else "float32")

    def noise(self) -> Any:
        """A device array of normal numbers."""
        cp = cupy()
        values = cp.random.standard_normal(self.count, dtype="float32")
        return (values.view("uint32") >> 16).astype("uint16") if self.dtype == BFLOAT else values

    def __str__(self) -> str:
        return f"{self.sizes} {self.dtype}"

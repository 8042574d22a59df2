"""Flatten: turns pictures into rows."""

from __future__ import annotations

from math import prod

from ..graph.ops import Reshape
from .layer import SingleLayer


class Flatten(SingleLayer):
    """All values of a picture in one row, in the order channel, height, width.

    x: (N, C, H, W), y: (N, C H W).
    """

    kind = "flatten"
    op = Reshape

    def build(self) -> None:
        self.output_shape = (prod(self.input_shape),)

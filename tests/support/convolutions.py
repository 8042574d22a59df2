"""A small convolution, for the stand-in for cuDNN's frontend."""

from __future__ import annotations

from typing import Any

from dnnstack.backends.cuda.libraries.conv_graph import ConvGraph
from dnnstack.backends.cuda.libraries.conv_plans import ConvSpec
from dnnstack.backends.cuda.libraries.operand import Operand
from dnnstack.graph.geometry import Window

SIZES = {"x": (8, 4, 9, 9), "w": (16, 4, 3, 3), "y": (8, 16, 7, 7)}
WINDOW = Window((3, 3))


def operand(sizes: tuple[int, ...], dtype: str = "float32") -> Operand:
    n, c, h, w = sizes
    return Operand(sizes, (c * h * w, h * w, w, 1), dtype)


def operands(dtype: str = "float32", **others: tuple[int, ...]) -> dict[str, Operand]:
    return {name: operand(sizes, dtype) for name, sizes in (SIZES | others).items()}


def forward(library: Any, **others: Any) -> ConvGraph:
    return ConvGraph(library, "forward", operands(), WINDOW, **others)


BASE = ConvSpec("forward", tuple(operands().items()), WINDOW)

"""A convolution with numbers, and what its formula gives."""

from __future__ import annotations

import numpy as np
from dnnstack.backends.base import Array
from dnnstack.graph.geometry import Window
from dnnstack.graph.graph import Graph
from dnnstack.graph.ops import Conv2d

THREE = Window((3, 3), padding=(1, 1, 1, 1))


def convolution(
    picture: tuple[int, ...], window: Window, filters: int, groups: int = 1
) -> tuple[Conv2d, Array, Array]:
    """A convolution with numbers for it."""
    n, c, h, w = picture
    graph = Graph("one", n)
    of_x = graph.tensor("x", (n, c, h, w), role="input")
    of_w = graph.tensor("w", (filters, c // groups, *window.kernel), role="parameter")
    y = graph.tensor("y", (n, filters, *window.output(h, w)))
    draw = np.random.default_rng(1).standard_normal
    op = Conv2d(x=of_x, w=of_w, y=y, window=window, groups=groups)
    return op, draw(of_x.shape), draw(of_w.shape)


def summed(op: Conv2d, x: Array, w: Array) -> Array:
    """The formula, pixel by pixel."""
    top, bottom, left, right = op.window.padding
    x = np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)))
    (down, across), (rows, columns) = op.window.stride, op.window.dilation
    (height, width), y = op.window.extent, np.zeros(op.y.shape)
    outputs, inputs = w.shape[0] // op.groups, w.shape[1]
    for o, p, q in np.ndindex(y.shape[1:]):
        first = o // outputs * inputs
        seen = x[:, first : first + inputs, p * down :, q * across :]
        y[:, o, p, q] = (seen[:, :, :height:rows, :width:columns] * w[o]).sum((1, 2, 3))
    return y

"""The way of pictures into a network, as a part of its graph of ONNX."""

from __future__ import annotations

import numpy as np

from .onnx_graph import Network, Value

# Red, green and blue in the grey of a picture; Pillow computes with integers.
_GREY = np.array([19595, 38470, 7471])[:, None, None] / 2**16
_ONE = 2.0**22


def resized(of: Network, pixels: Value, shape: tuple[int, ...], whole: bool) -> Value:
    """As ``predict`` reads pictures: grey or in colours, the whole or the middle scaled by Pillow.

    pixels: (N, H, W, 1 or 3) uint8; result: (N, *shape) float64, whole numbers.
    """
    colours = of("Expand", pixels, np.array([1, 1, 1, 3]))
    planes = of.cast(of("Transpose", colours, perm=[0, 3, 1, 2]), np.float64)
    if shape[0] == 1:
        planes = of("Floor", of("ReduceSum", planes * _GREY, np.array([1])) + 0.5)
    lengths = (of("Shape", pixels, start=axis, end=axis + 1) for axis in (1, 2))
    height, width = (of.cast(length, np.float64) for length in lengths)
    rows, columns, ratio = height, width, shape[2] / shape[1]
    if not whole:
        rows, columns = of("Min", height, width / ratio), of("Min", width, height * ratio)
    of.at = "columns"
    planes = _levels(of, of("MatMul", planes, _weights(of, width, columns, shape[2], 0)))
    of.at = "rows"
    return _levels(of, of("MatMul", _weights(of, height, rows, shape[1], 1), planes))


def _weights(of: Network, length: Value, kept: Value, count: int, axis: int) -> Value:
    """How much of each pixel, along ``axis``, enters each of those that the middle becomes.

    Bicubic, over as many pixels as become one; Pillow takes the ends of the middle as float32.
    Some versions of ONNX Runtime cannot multiply by transposed matrices of float64.
    """
    begin = (length - kept) * 0.5
    first, last = (of.cast(end, np.float32) for end in (begin, begin + kept))
    step = of.cast(last - first, np.float64) / float(count)
    centres = of.cast(first, np.float64) + step * np.expand_dims(np.arange(count) + 0.5, axis)
    pixels = of("Unsqueeze", of("Range", 0.0, of("Squeeze", length), 1.0), np.array([1 - axis]))
    apart = of("Abs", (pixels - centres + 0.5) / of("Max", step, 1.0))
    near = (apart * 1.5 - 2.5) * apart * apart + 1.0
    far = (((apart - 5.0) * apart + 8.0) * apart - 4.0) * -0.5
    outer = of("Where", of("Less", apart, 2.0), far, 0.0)
    each = of("Where", of("Less", apart, 1.0), near, outer)
    return of("Round", each / of("ReduceSum", each, np.array([axis])) * _ONE) / _ONE


def _levels(of: Network, sums: Value) -> Value:
    return of("Clip", of("Floor", sums + 0.5), 0.0, 255.0)

"""Gradients of convolutions of stride 2 on tensor cores, as those of the same with stride 1.

Of what stride 1 would give, the convolution takes every second row and column. Its gradients are
therefore those of stride 1 for a dy that lies at these places among zeros: the kernels spread it on
the way. They do so in windows of 2 by 2, so what stride 1 gives must have even sizes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ....graph.ops import Conv2dBackwardData, Conv2dBackwardFilter
from ..binding.bind import Binder
from ..binding.buffer import Buffer
from ..binding.decisions import Spread
from ..libraries.layout import Layout
from .tensor_conv import takes


def strided(
    b: Binder, op: Conv2dBackwardData | Conv2dBackwardFilter, ends: Mapping[str, Buffer]
) -> tuple[dict[str, Buffer], Spread] | None:
    """The operands of the gradient of stride 1, whose dy is nowhere stored, and what that comes
    from; None where the kernels do not compute it."""
    window = replace(op.window, stride=(1, 1))
    sizes = window.output(*ends["x"].layout.shape[2:])
    if op.window.stride != (2, 2) or any(size % 2 for size in sizes):
        return None
    dy = ends["y"].layout
    wide = Layout((*dy.shape[:2], *sizes), (*dy.stored[:2], *sizes), dy.nhwc, dtype=dy.dtype)
    found = {**ends, "y": Buffer(None, wide)}
    if not takes(replace(op, window=window), found, b.arithmetic):
        return None
    return found, Spread(op, ends["y"], None, None)

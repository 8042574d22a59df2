"""Dropout: NumPy draws the mask, oneDNN multiplies."""

from __future__ import annotations

from math import prod

import numpy as np

from ...common import random
from ...graph.graph import Op, Tensor
from ...graph.ops import Dropout, DropoutBackward
from .bind import BOTH, Binder, binds
from .constants import BINARY
from .memory import Descriptor, Memory
from .primitive import Attributes, first_fast


@binds(Dropout, dtypes=BOTH)
def dropout(b: Binder, op: Dropout) -> None:
    mask = np.zeros(prod(op.x.shape), np.uint8)
    key, threshold, parts = random.Key(*op.key), op.threshold, op.parts
    step = b.array(op.step)
    b.arrays[op.mask] = mask.reshape(op.x.shape)

    def draw() -> None:
        turn, part = divmod(int(step[0]), parts)
        random.at_least(key, turn, threshold, mask, first=part * len(mask))

    b.host(op, draw, "philox", {"mask": f"u8 {'x'.join(map(str, op.x.shape))}"})
    _multiply(b, op, op.x, op.mask, op.y, op.scale)


@binds(DropoutBackward, dtypes=BOTH)
def dropout_backward(b: Binder, op: DropoutBackward) -> None:
    _multiply(b, op, op.dy, op.mask, op.dx, op.scale)


def _multiply(b: Binder, op: Op, x: Tensor, mask: Tensor, y: Tensor, scale: float) -> None:
    """y = scale x mask in row-major order, in which the mask was drawn."""
    layout = b.layout(x.shape)
    chosen = Descriptor.of(x.shape, "plain", "uint8")
    arguments = (BINARY["mul"], layout, chosen, layout, Attributes(scales=("src",)))
    desc = first_fast("binary", [arguments], {"src": layout})
    factor = b.constant(Descriptor.of((1,)), scale)
    memories = {
        "src": b.want(x, layout),
        "src_1": Memory(chosen, b.array(mask).reshape(-1).view(np.uint8)),
        "dst": b.output(y, layout),
        "scale_src": factor,
    }
    b.primitive(op, desc, memories, {"scale": scale})

"""Dropout: its masks, and where they lie in memory."""

from __future__ import annotations

import numpy as np
from dnnstack.common import random
from dnnstack.graph.ops import Dropout, DropoutBackward, Reshape

from .op_cases_combine import laid_out
from .op_draft import Draft, case


def dropout(d: Draft, step: int, rate: float, parts: int, *shape: int, alike: int = 1) -> None:
    mask = d.out("mask", *shape, dtype="uint8")
    d.graph.add(
        Dropout(
            x=d.floats("x", *shape),
            step=d.given("step", np.array([step], np.int64), "state"),
            y=d.out("y", *shape),
            mask=mask,
            key=random.key(1, "dropout", "dropout_1"),
            threshold=round(rate * 2**32),
            scale=1.0 / (1.0 - rate),
            parts=parts,
            alike=alike,
        )
    )
    dy, dx = d.floats("dy", *shape), d.out("dx", *shape)
    d.graph.add(DropoutBackward(dy=dy, mask=mask, dx=dx, scale=1.0 / (1.0 - rate)))


def samples(d: Draft, step: int, parts: int, *shape: int) -> None:
    dropout(d, step, 0.4, parts, *shape, alike=int(np.prod(shape[1:])))


def dropout_convolved(d: Draft, channels: int, flat: bool) -> None:
    """In a convolution's layout, whose elements do not lie in the order of the words."""
    x = laid_out(d, "before", channels)
    if flat:
        rows = d.out("rows", x.shape[0], x.size // x.shape[0])
        d.graph.add(Reshape(x=x, y=rows))
        x = rows
    mask = d.out("mask", *x.shape, dtype="uint8")
    d.graph.add(
        Dropout(
            x=x,
            step=d.given("step", np.array([7], np.int64), "state"),
            y=d.out("y", *x.shape),
            mask=mask,
            key=random.key(2, "dropout", "dropout_1"),
            threshold=2**31,
            scale=2.0,
            parts=2,
        )
    )


for channels in (5, 20, 33):
    case(f"dropout-convolved-{channels}", dropout_convolved, channels, False)
    case(f"dropout-flattened-{channels}", dropout_convolved, channels, True)
case("dropout-flat", dropout, 0, 0.5, 1, 6, 21)
case("dropout-picture", dropout, 3, 0.2, 1, 3, 5, 4, 2)
case("dropout-blocks", dropout, 2**33 + 5, 0.9, 1, 2, 16, 4, 4)
case("dropout-one", dropout, 1, 0.5, 1, 1, 1)
case("dropout-parts", dropout, 17, 0.5, 3, 5, 7)
case("dropout-samples-flat", samples, 5, 1, 11, 6)
case("dropout-samples-picture", samples, 2, 1, 9, 5, 3, 2)
case("dropout-samples-blocks", samples, 2**33 + 4, 1, 6, 16, 4, 4)
case("dropout-samples-parts", samples, 17, 3, 7, 5)
case("dropout-samples-of-one", samples, 3, 1, 9, 1)

"""The reference backend; its modules enter their kernels into KERNELS when this is imported."""

from __future__ import annotations

from . import (
    augment,
    classic,
    combine,
    im2col,
    linear,
    losses,
    norm,
    pointwise,
    pool,
    step,
    updates,
)

__all__ = [
    "augment",
    "classic",
    "combine",
    "im2col",
    "linear",
    "losses",
    "norm",
    "pointwise",
    "pool",
    "step",
    "updates",
]

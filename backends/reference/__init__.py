"""The reference backend; its modules enter their kernels into KERNELS when this is imported."""

from __future__ import annotations

from . import (  # noqa: F401
    augment,
    classic,
    combine,
    linear,
    losses,
    norm,
    pointwise,
    step,
    updates,
    windows,
)

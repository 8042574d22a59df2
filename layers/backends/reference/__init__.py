"""The reference backend; its modules enter their kernels into KERNELS when this is imported."""

from __future__ import annotations

from . import linear, losses, pointwise, pool, step

__all__ = ["linear", "losses", "pointwise", "pool", "step"]

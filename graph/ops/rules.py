"""What the shape rules of all operations share."""

from __future__ import annotations

from ...common.errors import ShapeError
from ..graph import Op, Tensor


def same(op: Op, *tensors: Tensor) -> None:
    """Raise ShapeError unless all tensors have one shape."""
    if len({t.shape for t in tensors}) != 1:
        raise ShapeError(f"{op.label()}: shapes differ: " + _listed(tensors))


def need(op: Op, holds: bool, *tensors: Tensor) -> None:
    """Raise ShapeError, listing the tensors, unless the rule holds."""
    if not holds:
        raise ShapeError(f"{op.label()}: shapes do not fit: " + _listed(tensors))


def _listed(tensors: tuple[Tensor, ...]) -> str:
    return ", ".join(f"{t.name} {t.shape}" for t in tensors)

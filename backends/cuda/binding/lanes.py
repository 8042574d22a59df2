"""Which operations of a step may run beside others, on another stream."""

from __future__ import annotations

from ....graph.graph import Op
from ....graph.ops import Fused, Metrics


def changes(op: Op) -> bool:
    """Whether an operation updates what the step began with, not only its own metrics."""
    return bool(op.tensors(op.updates)) and not isinstance(op, Metrics) and not _is_beside(op)


def only_gradients(op: Op) -> bool:
    """Whether nothing but gradients, or metrics that nothing waits for, comes of an operation."""
    alone = not op.tensors(op.updates) and all(t.role == "gradient" for t in op.writes())
    return alone or _is_beside(op)


def _is_beside(op: Op) -> bool:
    """A fused operation whose metrics nothing in the section waits for."""
    return isinstance(op, Fused) and op.beside

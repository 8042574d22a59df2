"""What a product or a sum takes along: an activation behind it, and whether it trains."""

from __future__ import annotations

from ...graph.graph import Graph
from ...graph.ops import Add, Conv2d, MatMul
from .activations import apply, inexact
from .bind import Binder
from .constants import (
    ELTWISE,
    ELTWISE_ALPHA,
    FORWARD_INFERENCE,
    FORWARD_TRAINING,
    SCALED_TANH,
)
from .memory import Memory
from .primitive import Attributes


def eltwise(kind: str, alpha: float) -> tuple[int, float]:
    """oneDNN's algorithm and alpha of an activation."""
    return ELTWISE[kind], ELTWISE_ALPHA.get(kind, alpha)


def post_ops(op: MatMul | Conv2d | Add, dtype: str) -> Attributes | None:
    """What a primitive takes along; ``activate_behind`` does the rest. dtype: of the results."""
    if op.activation is None or inexact(op.activation, dtype):
        return None
    if op.activation == "scaled_tanh":
        return Attributes(chain=SCALED_TANH)
    return Attributes(chain=((*eltwise(op.activation, op.activation_alpha), 0.0),))


def activate_behind(b: Binder, op: MatMul | Conv2d | Add, result: Memory) -> None:
    """Append the activation that no post-operation computes well enough."""
    if op.activation is not None and inexact(op.activation, result.descriptor.dtype):
        apply(b, op, op.activation, op.activation_alpha, result, result)


def forward_kind(graph: Graph) -> int:
    trains = any(o.phase in ("backward", "update") for op in graph.ops for o in op.origin)
    return FORWARD_TRAINING if trains else FORWARD_INFERENCE

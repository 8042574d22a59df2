"""Which activations are bfloat16 where that is the precision."""

from __future__ import annotations

from ...graph import Graph, Op, Tensor
from ...ops import (
    Activation,
    ActivationBackward,
    BiasAdd,
    BiasGrad,
    Conv2d,
    Conv2dBackwardData,
    Conv2dBackwardFilter,
    Fused,
    GatherBatch,
    MatMul,
    Pool2d,
    Pool2dBackward,
    Reshape,
)

# Operations with kernels that read and write bfloat16. All others are bracketed by conversions.
NARROW: tuple[type[Op], ...] = (
    Activation,
    ActivationBackward,
    BiasAdd,
    BiasGrad,
    Conv2d,
    Conv2dBackwardData,
    Conv2dBackwardFilter,
    GatherBatch,
    MatMul,
    Pool2d,
    Pool2dBackward,
    Reshape,
)


def narrow_tensors(graph: Graph) -> frozenset[Tensor]:
    """Activations between operations that take bfloat16; scores and losses stay float32."""
    good: set[Tensor] = set()
    bad: set[Tensor] = set()
    for op in graph.ops:
        for tensor in (*op.reads(), *op.writes()):
            if tensor.role != "activation" or tensor.dtype != "float32":
                continue
            (good if _takes(op, tensor) else bad).add(tensor)
    return frozenset(good - bad)


def _takes(op: Op, tensor: Tensor) -> bool:
    if isinstance(op, Fused):
        return tensor in op.narrow
    return isinstance(op, NARROW)

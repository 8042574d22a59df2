"""Which activations are bfloat16 if that is the precision."""

from __future__ import annotations

from ....graph import ops
from ....graph.graph import Graph, Op, Tensor

# Operations with kernels that read and write bfloat16. All others are bracketed by conversions.
BF16_OPS: tuple[type[Op], ...] = (
    *(ops.Activation, ops.ActivationBackward, ops.Add, ops.BatchNorm, ops.BatchNormBackward),
    *(ops.BatchNormInference, ops.BatchNormInferenceBackward, ops.BiasAdd, ops.BiasGrad),
    *(ops.Concat, ops.Conv2d),
    *(ops.Conv2dBackwardData, ops.Conv2dBackwardFilter, ops.Dropout, ops.DropoutBackward),
    *(ops.GatherBatch, ops.Lrn, ops.LrnBackward, ops.MatMul, ops.PadChannels, ops.Pool2d),
    *(ops.Pool2dBackward, ops.Reshape, ops.Scale, ops.Slice, ops.Views),
)


def bf16_tensors(graph: Graph) -> frozenset[Tensor]:
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
    if isinstance(op, ops.Fused):
        return tensor in op.bf16
    if isinstance(op, ops.Scale):
        # Rows are scores, which the loss needs unrounded.
        return len(tensor.shape) == 4
    if isinstance(op, ops.GatherBatch):
        return tensor == op.x
    # Vectors, such as the mean and deviation of batch norm, stay in float32.
    return isinstance(op, BF16_OPS) and len(tensor.shape) > 1

"""A section's batch in the words of a config, for messages about memory."""

from __future__ import annotations

from ..graph.graph import Graph, Op
from ..graph.ops import Accumulate, KeepMetrics
from ..graph.ops.fused import Fused


def batch_key(section: str) -> str:
    """The key of the config that says how large a section's batch is."""
    return f"data.{'evaluation_' if section.startswith('evaluate') else ''}batch_size"


def parts_of(graph: Graph) -> int:
    """How many batches of a section make up one of the training, on all ranks together."""

    def each(op: Op) -> int:
        if isinstance(op, Fused):
            return max(map(each, op.parts))
        return op.parts if isinstance(op, Accumulate | KeepMetrics) else 1

    return max(map(each, graph.ops), default=1)

"""A section's batch in the words of a config, for messages about memory."""

from __future__ import annotations

from ..graph.graph import Graph
from ..graph.ops import Accumulate, KeepMetrics
from ..graph.ops.fused import Fused


def batch_key(section: str) -> str:
    """The key of the config that says how large a section's batch is."""
    return f"data.{'evaluation_' if section.startswith('evaluate') else ''}batch_size"


def parts_of(graph: Graph) -> int:
    """How many batches of a section make up one of the training, on all ranks together."""
    every = (op.parts if isinstance(op, Fused) else (op,) for op in graph.ops)
    counts = (op for ops in every for op in ops if isinstance(op, Accumulate | KeepMetrics))
    return max((op.parts for op in counts), default=1)

"""Running statistics of a batch in parts: each part leaves its values, the update moves them."""

from __future__ import annotations

from collections.abc import Sequence

from ..graph.graph import Graph, Moved, Tensor
from ..graph.ops import KeepStatistics, MoveStatistics

KEPT = "kept_statistics"


def kept(moved: Sequence[Moved], parts: int) -> Tensor:
    """The values of all parts: (parts, numbers of a part) float32."""
    numbers = sum(each.value.size for each in moved)
    return Tensor(KEPT, (parts, numbers), "float32", "state")


def keep_statistics(graph: Graph) -> None:
    """Add to the section of a part what keeps its values."""
    if graph.moved:
        graph.add(
            KeepStatistics(
                values=tuple(each.value for each in graph.moved),
                step=graph["step"],
                kept=kept(graph.moved, graph.parts),
                parts=graph.parts,
            )
        )


def move_statistics(graph: Graph, moved: Sequence[Moved], parts: int) -> None:
    """Add to the update what moves the running statistics by the values of all parts in order."""
    if moved:
        graph.add(
            MoveStatistics(
                kept=kept(moved, parts),
                running=tuple(each.running for each in moved),
                momentum=tuple(each.momentum for each in moved),
                weight=tuple(each.weight for each in moved),
            )
        )

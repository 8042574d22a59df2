"""A batch in parts: each part leaves its statistics and metrics, the update takes those of all."""

from __future__ import annotations

from ..graph.graph import Graph, Tensor
from ..graph.ops import (
    AddMetrics,
    AllGather,
    KeepMetrics,
    KeepStatistics,
    MoveStatistics,
    SkipParts,
)

STATISTICS, METRICS = "kept_statistics", "kept_metrics"


def keep_parts(graph: Graph, ranks: int) -> None:
    """Add to the section of a part what keeps its statistics until all parts are there.

    If several ranks share out the parts, also its metrics; ``sums`` are those of all ranks then,
    which the update adds up.
    """
    if graph.moved:
        values = tuple(each.value for each in graph.moved)
        rows, step = _statistics(graph), graph["step"]
        graph.add(KeepStatistics(values=values, step=step, kept=rows, parts=graph.parts))
    if ranks > 1:
        part, rows = graph["sums"], _metrics(graph)
        graph.add(KeepMetrics(step=graph["step"], sums=part, kept=rows, parts=graph.parts))
        graph.results["sums"] = Tensor("all.sums", part.shape, "float64", "state")


def add_parts(graph: Graph, train: Graph, ranks: int) -> None:
    """Add to the update what moves running statistics by the values of all parts, in order.

    And what gathers the values and metrics of other ranks, and passes over their parts.
    """
    if ranks > 1:
        sums, rows = train["sums"], _metrics(train)
        graph.add(AllGather(rows=rows, ranks=ranks))
        graph.add(AddMetrics(kept=rows, sums=sums))
        graph.add(SkipParts(step=train["step"], parts=train.parts - train.parts // ranks))
    if train.moved:
        rows = _statistics(train)
        if ranks > 1:
            graph.add(AllGather(rows=rows, ranks=ranks))
        graph.add(
            MoveStatistics(
                kept=rows,
                running=tuple(each.running for each in train.moved),
                momentum=tuple(each.momentum for each in train.moved),
                weight=tuple(each.weight for each in train.moved),
            )
        )


def _statistics(train: Graph) -> Tensor:
    """The values of all parts: (parts, numbers of a part)."""
    numbers = sum(each.value.size for each in train.moved)
    return Tensor(STATISTICS, (train.parts, numbers), "float32", "state")


def _metrics(train: Graph) -> Tensor:
    return Tensor(METRICS, (train.parts, 3), "float64", "state")

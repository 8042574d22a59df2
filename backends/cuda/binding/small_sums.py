"""What the sum of a step over ranks takes along where it is so small that launches count.

Where a rank computes one part of a batch, the sum's kernel scales the gradients itself; that of the
update also keeps the part's metrics and counts the part; in any case it can gather the metrics of
all and add them up.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from ....common.records import dataclass
from ....graph import ops
from ....graph.graph import Graph, Op, Tensor
from ...collectives import on_one_machine
from ..libraries.peers import MOST_RANKS, TAIL, size_for

# If it is 0, NCCL adds up all: to compare, and for GPUs whose memory cannot be shared out.
SWITCH = "DNNSTACK_PEER_SUMS"
# Of a tensor the name of its arena, and where it begins and ends there.
Stretch = tuple[str, int, int]
Spans = Mapping[Tensor, Stretch]


@dataclass(frozen=True)
class Metrics:
    """The operations on the metrics of all parts."""

    gather: ops.AllGather
    add: ops.AddMetrics
    skip: ops.SkipParts

    @property
    def operations(self) -> tuple[Op, ...]:
        return self.gather, self.add, self.skip


@dataclass(frozen=True)
class Ending:
    """What a part's section leaves to a sum: ``accumulate``, of ``whole`` what concerns the sum;
    gradients: the name of their arena."""

    whole: ops.Accumulate
    accumulate: ops.Accumulate
    gradients: str
    keep: ops.KeepMetrics | None = None
    advance: ops.Advance | None = None

    @property
    def operations(self) -> tuple[Op, ...]:
        found = (self.accumulate, self.keep, self.advance)
        return tuple(op for op in found if op is not None)


@dataclass(frozen=True)
class SmallSum:
    """A sum, and what its first kernel does besides; ``update``: what may be in its launch."""

    op: ops.AllReduce
    metrics: Metrics | None = None
    ending: Ending | None = None
    update: ops.SgdUpdate | None = None

    @property
    def merged(self) -> tuple[Op, ...]:
        """Of both sections."""
        metrics = () if self.metrics is None else self.metrics.operations
        return (*(() if self.ending is None else self.ending.operations), *metrics)


class SmallSums:
    """Those of all sections."""

    def __init__(self, found: Iterable[SmallSum] = ()) -> None:
        self._found = tuple(found)

    def of(self, op: Op) -> SmallSum | None:
        """What the kernel of a sum does, if the operation is one and its kernel does more."""
        return next((small for small in self._found if small.op is op), None)

    def before(self, op: ops.SgdUpdate) -> SmallSum | None:
        """The sum that may be in the launch of an update."""
        return next((small for small in self._found if small.update is op), None)

    def reads(self, op: Op) -> tuple[Tensor, ...]:
        """What the kernel of an operation reads: that of a sum perhaps gradients in its place."""
        small = self.of(op)
        if small is None or small.ending is None:
            return op.reads()
        return (*op.reads(), *small.ending.accumulate.gradients)

    def merged(self) -> Iterator[Op]:
        """The operations that sums do."""
        return (op for small in self._found for op in small.merged)

    def takes(self, whole: ops.Accumulate, sums: Iterable[Tensor]) -> bool:
        """Whether a sum scales and keeps these gradients itself."""
        wanted = set(sums)
        endings = [small.ending for small in self._found if small.ending is not None]
        return any(e.whole is whole and set(e.accumulate.sums) == wanted for e in endings)


def wanted() -> bool:
    """Whether ranks shall add up in each other's memory."""
    return os.environ.get(SWITCH) != "0"


def fits(ranks: int, count: int) -> bool:
    """Whether ranks add up so many floats in each other's memory, if they can reach it."""
    if not wanted() or not 2 <= ranks <= MOST_RANKS:
        return False
    return size_for(ranks, 4 * count) is not None and on_one_machine(ranks)


def stretches(spans: Spans, values: Iterable[Tensor]) -> list[Stretch]:
    """Where tensors lie side by side: others may lie between, whose sums no rank wants."""
    found: list[Stretch] = []
    for name, start, stop in sorted(spans[value] for value in values):
        if found and found[-1][0] == name and found[-1][2] == start:
            start = found.pop()[1]
        found.append((name, start, stop))
    return found


def size_of(stretches: Sequence[Stretch]) -> int:
    return sum(stop - start for _, start, stop in stretches)


def kernels_of(spans: Spans, op: ops.AllReduce) -> list[list[Stretch]]:
    """The stretches of a sum, each by itself, or two of an arena together if that is small."""
    found: list[list[Stretch]] = []
    for stretch in stretches(spans, op.values):
        last = found[-1] if found else []
        if (
            len(last) == 1
            and last[0][0] == stretch[0]
            and fits(op.ranks, size_of([*last, stretch]))
        ):
            last.append(stretch)
        else:
            found.append([stretch])
    return found


def small_sums(spans: Spans, graphs: Mapping[str, Graph]) -> SmallSums:
    """The sums that ranks make in each other's memory, if they do more than that."""
    found = []
    for graph in graphs.values():
        summed = [op for op in graph.ops if isinstance(op, ops.AllReduce) and op.ranks > 1]
        for op in summed:
            first, *others = kernels_of(spans, op)
            if fits(op.ranks, size_of(first)):
                metrics = _metrics(graph, op) if op is summed[0] else None
                ending = None if others else _ending(spans, graphs, op, metrics)
                update = None
                if ending is not None and ending.keep is not None:
                    update = _update(graph, op)
                found.append(SmallSum(op, metrics, ending, update))
    return SmallSums(found)


def _update(graph: Graph, op: ops.AllReduce) -> ops.SgdUpdate | None:
    """The update that follows the sum, of all that is summed."""
    behind = graph.ops[graph.ops.index(op) + 1 :]
    update = behind[0] if behind else None
    if not isinstance(update, ops.SgdUpdate):
        return None
    return update if set(op.values) <= set(update.gradients) else None


def _metrics(graph: Graph, op: ops.AllReduce) -> Metrics | None:
    """The operations before the sum that may as well be done with it."""
    before = graph.ops[: graph.ops.index(op)]
    gather = next((op for op in before if isinstance(op, ops.AllGather)), None)
    add = next((op for op in before if isinstance(op, ops.AddMetrics)), None)
    skip = next((op for op in before if isinstance(op, ops.SkipParts)), None)
    if gather is None or add is None or skip is None or add.kept != gather.rows:
        return None
    found = Metrics(gather, add, skip)
    rest = [op for op in before[before.index(gather) :] if op not in found.operations]
    own = {gather.rows, add.sums, skip.step}
    return None if gather.rows.size > TAIL or own & _touched(rest) else found


def _ending(
    spans: Spans, graphs: Mapping[str, Graph], op: ops.AllReduce, metrics: Metrics | None
) -> Ending | None:
    """What may wait for the sum at the end of the section whose gradients it adds up."""
    alike = [
        (graph, other)
        for graph in graphs.values()
        for other in graph.ops
        if isinstance(other, ops.Accumulate | ops.AllReduce)
        and set(other.writes()) & set(op.values)
    ]
    # Of sections for several stretches of a training it would not be known which comes before.
    if len(alike) != 2:
        return None
    graph, whole = alike[0]
    if not isinstance(whole, ops.Accumulate) or whole.parts != 1:
        return None
    accumulate = share_of(whole, op.values)
    pairs = zip(accumulate.gradients, accumulate.sums, strict=True)
    if any(spans[gradient][1:] != spans[total][1:] for gradient, total in pairs):
        return None
    behind = [other for other in graph.ops[graph.ops.index(whole) + 1 :] if other is not op]
    gradients = spans[accumulate.gradients[0]][0]
    keep = next((op for op in graph.ops if isinstance(op, ops.KeepMetrics)), None)
    advance = next((op for op in behind if isinstance(op, ops.Advance)), None)
    if metrics is None or keep is None or advance is None:
        alone = not {*accumulate.gradients, *accumulate.sums} & _touched(behind)
        return Ending(whole, accumulate, gradients) if alone else None
    found = Ending(whole, accumulate, gradients, keep, advance)
    rest = [op for op in graph.ops[graph.ops.index(keep) :] if op not in (whole, *found.operations)]
    fitting = keep.kept == metrics.gather.rows and advance.step == metrics.skip.step
    own = {keep.sums, keep.kept, keep.step, *accumulate.gradients, *accumulate.sums}
    return found if fitting and not own & _touched(rest) else None


def share_of(whole: ops.Accumulate, sums: Iterable[Tensor]) -> ops.Accumulate:
    """What keeps some of the gradients of parts."""
    gradients = dict(zip(whole.sums, whole.gradients, strict=True))
    if set(gradients) == set(sums):
        return whole
    return replace(whole, sums=tuple(sums), gradients=tuple(gradients[each] for each in sums))


def _touched(listed: Iterable[Op]) -> set[Tensor]:
    return {tensor for op in listed for tensor in (*op.reads(), *op.writes())}

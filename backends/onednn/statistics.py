"""Running statistics of a batch in parts: a few numbers per channel, by NumPy."""

from __future__ import annotations

from ...graph.ops import KeepStatistics, MoveStatistics
from ..reference.statistics import move
from .bind import Binder, binds


@binds(KeepStatistics)
def keep_statistics(b: Binder, op: KeepStatistics) -> None:
    step, rows = b.array(op.step), b.home(op.kept).array(op.kept.shape)
    values, spans, begin = [b.plain(value).array() for value in op.values], [], 0
    for value in values:
        spans.append(slice(begin, begin + value.size))
        begin += value.size

    def run() -> None:
        row = rows[int(step[0]) % op.parts]
        for value, span in zip(values, spans, strict=True):
            row[span] = value

    b.host(op, run, "copyto", {"parts": str(op.parts)})


@binds(MoveStatistics)
def move_statistics(b: Binder, op: MoveStatistics) -> None:
    rows = b.home(op.kept).array(op.kept.shape)
    running = [b.home(tensor).array() for tensor in op.running]
    b.host(op, lambda: move(op, rows, running), "multiply", {"parts": str(len(rows))})

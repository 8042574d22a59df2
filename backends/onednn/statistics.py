"""Running statistics of a batch in parts: a few numbers per channel, by NumPy."""

from __future__ import annotations

import numpy as np

from ...graph.ops import KeepStatistics, MoveStatistics
from ..reference.statistics import move
from .bind import Binder, binds


@binds(KeepStatistics)
def keep_statistics(b: Binder, op: KeepStatistics) -> None:
    step, rows = b.array(op.step), b.home(op.kept).array(op.kept.shape)
    values = [b.plain(value).array() for value in op.values]

    def run() -> None:
        np.concatenate(values, out=rows[int(step[0]) % op.parts])

    b.host(op, run, "copyto", {"parts": str(op.parts)})


@binds(MoveStatistics)
def move_statistics(b: Binder, op: MoveStatistics) -> None:
    rows = b.home(op.kept).array(op.kept.shape)
    running = [b.home(tensor).array() for tensor in op.running]
    b.host(op, lambda: move(op, rows, running), "multiply", {"parts": str(len(rows))})

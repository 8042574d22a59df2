"""Running statistics of a batch in parts: one launch for all of them."""

from __future__ import annotations

import numpy as np

from ....graph.ops import KeepStatistics, MoveStatistics
from ..binding.bind import Binder, binds
from .optimizers import table

FILE = "statistics.cu"
# Structures of statistics.cu.
_KEPT = np.dtype([("value", "u8"), ("first", "i4"), ("size", "i4")])
_MOVED = np.dtype(
    [("running", "u8"), ("first", "i4"), ("size", "i4"), ("momentum", "f8"), ("weight", "f8")]
)


@binds(KeepStatistics)
def keep_statistics(b: Binder, op: KeepStatistics) -> None:
    rows, first = [], 0
    for value in op.values:
        rows.append((b.floats(value).pointer, first, value.size))
        first += value.size
    arguments = (table(b, _KEPT, rows), op.step, op.parts, first, b.floats(op.kept))
    shown = {"statistics": len(rows), "parts": op.parts}
    b.kernel(op, (FILE, "keep_statistics"), (len(rows),), arguments, shown)


@binds(MoveStatistics)
def move_statistics(b: Binder, op: MoveStatistics) -> None:
    rules = zip(op.spans(), op.momentum, op.weight, strict=True)
    rows = [
        (b.floats(tensor).pointer, span.start, tensor.size, momentum, weight)
        for (tensor, span), momentum, weight in rules
    ]
    parts, numbers = op.kept.shape
    arguments = (table(b, _MOVED, rows), b.floats(op.kept), parts, numbers)
    shown = {"statistics": len(rows), "parts": parts}
    b.kernel(op, (FILE, "move_statistics"), (len(rows),), arguments, shown)

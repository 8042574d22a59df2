"""Shared weights: a table in memory, and a block for each of its rows that adds gradients up."""

from __future__ import annotations

import numpy as np

from ....graph.ops import ShareWeights, SumShared
from ..binding.bind import Binder, binds
from ..libraries.kernels import THREADS
from .optimizers import like, pieces, table

FILE = "sharing.cu"
_WEIGHTS = np.dtype("u8,u8,u8,u8,i4,i4")
_SUMS = np.dtype("u8,u8,u8,i4,i4")


@binds(ShareWeights)
def share_weights(b: Binder, op: ShareWeights) -> None:
    homes = [b.home(parameter) for parameter in op.parameters]
    rows = []
    for code, c, parameter, home in zip(op.codes, op.centroids, op.parameters, homes, strict=True):
        addresses = like(b, code, home), b.floats(c).pointer, home.pointer
        rows.append((*addresses, b.store.bf16_pointer(parameter), home.layout.size, 0))
    where, blocks = pieces(b, [home.layout.size for home in homes])
    arguments = (table(b, _WEIGHTS, rows), where)
    b.kernel(op, (FILE, "share_weights"), (sum(blocks),), arguments, {"tensors": len(rows)})


@binds(SumShared)
def sum_shared(b: Binder, op: SumShared) -> None:
    rows = []
    for gradient, code, total in zip(op.gradients, op.codes, op.sums, strict=True):
        home = b.home(code)
        addresses = like(b, gradient, home), home.pointer, b.output(total).pointer
        rows.append((*addresses, home.layout.size, 0))
    places = [(i, k) for i, total in enumerate(op.sums) for k in range(total.size)]
    where = b.upload(np.asarray(places, "int32").ravel())
    arguments = (table(b, _SUMS, rows), where)
    shown = {"tensors": len(rows), "centroids": len(places)}
    kernel = (FILE, "sum_shared")
    b.kernel(op, kernel, (len(places),), arguments, shown, shared=THREADS * 8)

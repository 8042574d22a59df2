"""Shared weights by NumPy: codes, weights and gradients lie alike, so no layout has to be changed.

Most codes are those of pruned weights, which are passed over.
"""

from __future__ import annotations

import numpy as np

from ...graph.ops import ShareWeights, SumShared
from .bind import Binder, binds


@binds(ShareWeights)
def share_weights(b: Binder, op: ShareWeights) -> None:
    found = [
        (b.store.flat([code]).array(), b.plain(c).array(), b.store.flat([p]).array())
        for code, c, p in zip(op.codes, op.centroids, op.parameters, strict=True)
    ]

    def run() -> None:
        for codes, centroids, weights in found:
            kept = np.flatnonzero(codes)
            weights.fill(0.0)
            weights[kept] = centroids[codes[kept].astype(np.intp) - 1]

    b.host(op, run, "take")


@binds(SumShared)
def sum_shared(b: Binder, op: SumShared) -> None:
    found = [
        (b.store.flat([g]).array(), b.store.flat([code]).array(), b.output(total).array())
        for g, code, total in zip(op.gradients, op.codes, op.sums, strict=True)
    ]

    def run() -> None:
        for gradients, codes, sums in found:
            kept = np.flatnonzero(codes)
            numbers = codes[kept].astype(np.intp) - 1
            sums[...] = np.bincount(numbers, gradients[kept], sums.size)

    b.host(op, run, "bincount")

"""Weights that share their values: a few centroids, and for each weight the number of its own."""

from __future__ import annotations

from ..graph import In, InOut, Op, Out, Tensor


class ShareWeights(Op):
    """w = c[code - 1], and +0.0 where the code is 0.

    codes: one per parameter, of its shape, of whole numbers from 0 to the number of its centroids,
    (centroids,) float32. Source: Han, Mao and Dally 2016, "Deep Compression", section 3.
    """

    codes: tuple[In, ...]
    centroids: tuple[In, ...]
    parameters: tuple[InOut, ...]

    def check(self) -> None:
        self.paired(self.codes, self.parameters)
        self.need(len(self.centroids) == len(self.codes), *self.centroids)

    def bytes(self) -> int:
        return 2 * sum(p.nbytes for p in self.parameters) + _bytes(self.centroids)


class SumShared(Op):
    """dc[k] = the sum of dw over the weights whose code is k + 1: the gradient of a centroid.

    gradients, codes: one per parameter, of its shape; sums: (centroids,) float32. The sums are
    taken in float64.
    """

    flops_each = 1
    gradients: tuple[In, ...]
    codes: tuple[In, ...]
    sums: tuple[Out, ...]

    def check(self) -> None:
        self.paired(self.gradients, self.codes)
        self.need(len(self.sums) == len(self.codes), *self.sums)

    def bytes(self) -> int:
        return 2 * sum(g.nbytes for g in self.gradients) + _bytes(self.sums)


def _bytes(tensors: tuple[Tensor, ...]) -> int:
    return sum(tensor.nbytes for tensor in tensors)

"""The two ends of a step: gathering its batch, updating the parameters."""

from __future__ import annotations

from ..graph import ITEM_SIZE, In, InOut, Op, Out, Tensor
from .updates import ParameterUpdate


class GatherBatch(Op):
    """x[i] = images[r] * scale + shift, target[i] = labels[r], r = order[N (step mod steps) + i].

    images: (M, C, H, W) uint8 or float32, labels: (M,) int32 or (M, K) float32, order: (steps * N,)
    int32, step: (1,) int64, x: (N, C, H, W), target: as labels, of N samples; scale, shift: one
    number per channel. float32 images stay bit for bit with scale 1 and shift 0. r = -1 gives a
    sample of zeros with target -1: all 32-bit words of the target are -1, as floats NaN.
    """

    images: In
    labels: In
    order: In
    step: In
    x: Out
    target: Out
    scale: tuple[float, ...]
    shift: tuple[float, ...]

    def check(self) -> None:
        n = self.x.shape[0]
        self.need(self.images.shape[1:] == self.x.shape[1:], self.images, self.x)
        kinds = {("int32", 1), ("float32", 2)}
        self.need((self.labels.dtype, len(self.labels.shape)) in kinds, self.labels)
        alike = (n, *self.labels.shape[1:]) == self.target.shape
        self.need(alike and self.labels.dtype == self.target.dtype, self.labels, self.target)
        self.need(self.images.dtype in ("uint8", "float32"), self.images)
        self.need(self.order.size % n == 0, self.order, self.target)
        self.need(len(self.scale) == len(self.shift) == self.x.shape[1], self.x)

    def flops(self) -> int:
        return 2 * self.x.size

    def bytes(self) -> int:
        pixels = self.x.size * ITEM_SIZE[self.images.dtype]
        return pixels + self.x.nbytes + 2 * self.target.nbytes + 4 * self.x.shape[0]


class GlobalNorm(Op):
    """norm = sqrt(sum of all squares over all gradients); norm: (1,)."""

    flops_each = 2
    gradients: tuple[In, ...]
    norm: Out

    def check(self) -> None:
        self.need(self.norm.shape == (1,), self.norm)


class ClipByNorm(Op):
    """g *= min(1, max_norm / norm) for every gradient (Pascanu et al. 2013, algorithm 1)."""

    norm: In
    gradients: tuple[InOut, ...]
    max_norm: float

    def check(self) -> None:
        self.need(self.norm.shape == (1,), self.norm)

    def flops(self) -> int:
        return sum(g.size for g in self.gradients)

    def bytes(self) -> int:
        return 2 * sum(g.nbytes for g in self.gradients)


class SgdUpdate(ParameterUpdate):
    """g' = g + wd p; v = m v + g'; p -= lr (g' + m v with Nesterov, else v); plain: p -= lr g'.

    Momentum buffers v start at zero, one per parameter, none if m = 0. PyTorch's SGD with
    dampening 0.
    """

    buffers: tuple[InOut, ...]
    momentum: float = 0.0
    nesterov: bool = False

    def families(self) -> dict[str, tuple[Tensor, ...]]:
        return {"momentum": self.buffers} if self.momentum else {}

    def check(self) -> None:
        super().check()
        self.need(bool(self.momentum) or not self.buffers, *self.buffers)

    def flops(self) -> int:
        return self.flops_decaying(2 + 2 * bool(self.momentum) + 2 * self.nesterov)

    def bytes(self) -> int:
        return 4 * self.size() * (5 if self.momentum else 3)


class Advance(Op):
    """step += 1; step: (1,) int64."""

    step: InOut

    def check(self) -> None:
        self.need(self.step.shape == (1,), self.step)

"""Optimizers, averages of the weights, and sums of gradients over the parts of a batch."""

from __future__ import annotations

from math import prod
from typing import ClassVar

from ..graph import In, InOut, Op, Tensor
from .formulas import UpdateFormula


class ParameterUpdate(Op):
    """What all optimizers share: the step's rate is lr = rates[step] * lr_factor.

    rates: (steps,) float32, step: (1,) int64 counts from 0. gradients: one per parameter.
    weight_decay, lr_factor: one number per parameter; an empty lr_factor stands for ones.
    """

    gradients: tuple[In, ...]
    rates: In
    step: In
    parameters: tuple[InOut, ...]
    weight_decay: tuple[float, ...]
    lr_factor: tuple[float, ...] = ()

    def families(self) -> dict[str, tuple[Tensor, ...]]:
        """The optimizer's state by family, in each one tensor per parameter or none at all."""
        raise NotImplementedError  # every optimizer says what it keeps

    def factor(self, index: int) -> float:
        """The lr_factor of a parameter."""
        return self.lr_factor[index] if self.lr_factor else 1.0

    def size(self) -> int:
        """The number of trained values."""
        return sum(p.size for p in self.parameters)

    def flops_decaying(self, each: int) -> int:
        """``each`` for every value, and two more for one that weight decay is added to."""
        decays = zip(self.parameters, self.weight_decay, strict=True)
        return each * self.size() + sum(2 * p.size for p, decay in decays if decay)

    def check(self) -> None:
        count = len(self.parameters)
        for tensors in (self.gradients, *self.families().values()):
            self.paired(self.parameters, tensors)
        self.need(len(self.weight_decay) == count, *self.parameters)
        self.need(len(self.lr_factor) in (0, count), *self.parameters)


class AdamUpdate(ParameterUpdate):
    """m = b1 m + (1 - b1) g, v = b2 v + (1 - b2) g^2, p -= lr m' / (sqrt(v') + eps).

    m' = m / (1 - b1^t) and v' = v / (1 - b2^t) with t = step - start + 1, the number of the
    parameter's own updates with this one; start: one step per parameter. Weight decay is added to
    the gradient, g + wd p; ``decoupled``: p -= lr wd p in the same step instead. PyTorch's
    Adam (Kingma and Ba 2015, algorithm 1) and AdamW (Loshchilov and Hutter 2019, algorithm 2).
    """

    means: tuple[InOut, ...]
    squares: tuple[InOut, ...]
    start: tuple[int, ...]
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    decoupled: bool = False

    def families(self) -> dict[str, tuple[Tensor, ...]]:
        return {"adam_m": self.means, "adam_v": self.squares}

    def check(self) -> None:
        super().check()
        self.need(len(self.start) == len(self.parameters), *self.parameters)

    def flops(self) -> int:
        return self.flops_decaying(13)

    def bytes(self) -> int:
        return 7 * 4 * self.size()


class ElementwiseUpdate(ParameterUpdate):
    """p, states = formula(p, g, states, lr, wd, t) for every number of every parameter.

    t = step - start + 1 as for AdamUpdate. states: for each of the formula's families one tensor
    per parameter, family after family.
    """

    states: tuple[InOut, ...]
    start: tuple[int, ...]
    formula: UpdateFormula

    @property
    def name(self) -> str:
        return self.formula.name

    def families(self) -> dict[str, tuple[Tensor, ...]]:
        names, count = self.formula.families, len(self.parameters)
        return {name: self.states[i * count :][:count] for i, name in enumerate(names)}

    def check(self) -> None:
        super().check()
        count = len(self.parameters)
        self.need(len(self.start) == count, *self.parameters)
        self.need(len(self.states) == count * len(self.formula.families), *self.states)

    def flops(self) -> int:
        return self.flops_decaying(self.formula.flops)

    def bytes(self) -> int:
        return (3 + 2 * len(self.formula.families)) * 4 * self.size()


class MuonUpdate(ParameterUpdate):
    """v = m v + g, u = g + m v (Nesterov) or v; p = sqrt(O) p / |p|, then p -= lr NS(u).

    Parameters are filters (O, I, kh, kw) or matrices (O, I), taken as O rows; |.| is the Frobenius
    norm. NS brings the singular values of u near 1: X = u / (|u| + 1e-7), transposed if it has
    more rows than columns, then ``iterations`` times A = X X^T, B = -4.775 A + 2.0315 A^2,
    X = 3.4445 X + B X. ``rescale`` False leaves |p| alone. Weight decay is p -= lr wd p in the
    same step. Keller Jordan et al. 2024, "Muon"; the rescaling is that of his CIFAR-10 recipe.
    """

    COEFFICIENTS: ClassVar = (3.4445, -4.775, 2.0315)
    EPS: ClassVar = 1e-7
    buffers: tuple[InOut, ...]
    momentum: float = 0.95
    nesterov: bool = True
    iterations: int = 5
    rescale: bool = False

    def families(self) -> dict[str, tuple[Tensor, ...]]:
        return {"momentum": self.buffers}

    def check(self) -> None:
        super().check()
        self.need(all(len(p.shape) >= 2 for p in self.parameters), *self.parameters)

    def flops(self) -> int:
        return sum(self._flops(p) for p in self.parameters)

    def _flops(self, p: Tensor) -> int:
        short, long = sorted((p.shape[0], prod(p.shape[1:])))
        iteration = 4 * short * short * long + 2 * short**3 + 3 * short**2 + 2 * short * long
        return 14 * p.size + self.iterations * iteration

    def bytes(self) -> int:
        # X is read twice and written once per iteration.
        return (5 + 2 + 3 * self.iterations) * 4 * self.size()


class Average(Op):
    """a = d a + (1 - d) p with d = decays[step]; with ``pull`` then p = a. If d < 0, nothing.

    decays: (steps,) float32, step: (1,) int64; averages: one per value, of its shape. With a
    constant d the exponential moving average of the weights; with ``pull`` at some steps, lookahead
    (Zhang et al. 2019), whose slow weights are the averages.
    """

    decays: In
    step: In
    averages: tuple[InOut, ...]
    values: tuple[InOut, ...]
    pull: bool = False

    def check(self) -> None:
        self.paired(self.averages, self.values)

    def flops(self) -> int:
        return 3 * sum(p.size for p in self.values)

    def bytes(self) -> int:
        return (4 if self.pull else 3) * sum(p.nbytes for p in self.values)


class Mask(Op):
    """v = m v + 0, so that a value whose mask is 0 becomes +0.0; values: parameters or gradients.

    masks: one per value, of its shape, of zeros and ones. Behind the update it keeps pruned weights
    at 0 whatever the rule adds to them; before it, their gradients count in no norm.
    """

    flops_each = 2
    masks: tuple[In, ...]
    values: tuple[InOut, ...]

    def check(self) -> None:
        self.paired(self.masks, self.values)


class Accumulate(Op):
    """s = sum of scale g over the ``parts`` of a batch, added in pairs, pairs of pairs and so on.

    step: (1,) int64 counts parts, so the first has step mod parts = 0. Part p ends as many sums as
    p has ones at the end of its binary digits, the last part all of them; those that are not ended
    wait in ``sums`` and, one level after the other, in ``pending``, which has one tensor per
    gradient for each level but the first. After the last part ``sums`` has the total. So the order
    of additions is that of a binary tree, whoever computes its branches.
    """

    flops_each = 2
    gradients: tuple[In, ...]
    step: In
    sums: tuple[InOut, ...]
    parts: int
    pending: tuple[InOut, ...] = ()
    scale: float = 1.0

    @staticmethod
    def levels(parts: int) -> int:
        """How many sums wait at once, at most."""
        return max(1, parts.bit_length() - 1)

    def slots(self) -> tuple[tuple[Tensor, ...], ...]:
        """The sums of every level, in each one per gradient."""
        every, count = (*self.sums, *self.pending), len(self.sums)
        return tuple(every[i * count :][:count] for i in range(self.levels(self.parts)))

    def place(self, step: int) -> tuple[int, int]:
        """How many sums wait before this part, and how many of them it ends."""
        part = step % self.parts
        waiting = part.bit_count()
        if part == self.parts - 1:
            return waiting, waiting
        return waiting, (part & ~(part + 1)).bit_count()

    def check(self) -> None:
        self.need(self.parts >= 1, *self.sums)
        further = self.levels(self.parts) - 1
        self.paired(self.gradients, self.sums)
        self.paired(self.gradients * further, self.pending)

"""The formulas of losses or optimizers that share an operation, each in its own file.

Every class that derives from Formula is a frozen dataclass, whose fields are its options. It is
written twice: in NumPy, for the backends of a CPU, and as ``cuda``, functions in CUDA C++ that a
kernel of ours calls and in which every option is a constant with the same name.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from typing_extensions import dataclass_transform

from ...common.records import record

Array = NDArray[Any]


@dataclass_transform(frozen_default=True)
class Formula(ABC):  # noqa: B024  # those that derive from it have abstract methods
    """``name`` is what operations with this formula are called.

    Without ``cuda``, as plugins may leave it, a GPU computes the formula on the host.
    """

    cuda: ClassVar[str] = ""

    def __init_subclass__(cls) -> None:
        record(cls, frozen=True)

    @property
    def name(self) -> str:
        return type(self).__name__

    def constants(self) -> dict[str, Any]:
        """The options, which are constants in CUDA C++."""
        return dict(vars(self))


class RowFormula(Formula):
    """The loss of one sample from its row of x: (N, K) and its class, target: (N,).

    Targets may also be rows of numbers, (N, K), for a formula that looks at them by ``one_hot``
    alone, and in CUDA by ``Row::right``. A sample of class -1, or with such words as its numbers,
    is masked: its results are discarded. ``of``: whether x are
    the scores, the probabilities p = softmax(scores), or their logarithms log_p. ``flops``: those
    of the value and of the gradient, per element of x. ``cuda``: value(row), slope(row, k)
    and, if needed, common(row), see formulas.cuh.
    """

    of: ClassVar[Literal["scores", "p", "log_p"]] = "scores"
    flops: ClassVar[tuple[int, int]] = (3, 3)

    @abstractmethod
    def value(self, x: Array, target: Array) -> Array:
        """The loss of each sample, in the type of x: (N,)."""

    @abstractmethod
    def gradient(self, x: Array, target: Array) -> Array:
        """The derivative of each sample's loss with respect to its row, over ``scale``: (N, K)."""

    def scale(self, classes: int) -> float:
        """A factor of the gradient, combined with that of the mean, which saves a rounding."""
        return 1.0


class UpdateFormula(Formula):
    """How an optimizer updates each number of a parameter, independently of the others.

    ``families`` names its state: for each, one number per number of a parameter, which is 0
    before the parameter's first update. ``flops``: those per number. ``cuda``: update(p, g,
    states, rule), which returns the new p and changes the states, see formulas.cuh.
    """

    flops: ClassVar[int]

    @property
    def families(self) -> tuple[str, ...]:
        return ()

    @abstractmethod
    def update(
        self, p: Array, g: Array, states: Sequence[Array], lr: float, weight_decay: float, t: int
    ) -> None:
        """Change p and the states, one per family, in place, but not the gradient g; any shape.

        t: 1 in a parameter's first update. Layouts are padded: a p of 0 whose gradients have
        always been 0 must stay 0. Change p by one difference, weight decay included: float32
        rounds a factor 1 - lr wd to 1 where lr wd is small.
        """


def one_hot(target: Array, x: Array, label_smoothing: float = 0.0) -> Array:
    """q[n,k] = (1 - s) [k = target[n]] + s / K, zeros where target is -1; of the type of x: (N, K).

    Targets that are rows of numbers take the place of [k = target[n]]. Label smoothing s: Szegedy
    et al. 2016, section 7.
    """
    if target.ndim == 2:
        given = target.astype(x.dtype)
        return np.asarray((1.0 - label_smoothing) * given + label_smoothing / x.shape[1])
    q = np.full(x.shape, label_smoothing / x.shape[1], x.dtype)
    q[np.arange(len(target)), target] += 1.0 - label_smoothing
    q[target < 0] = 0.0
    return q

"""Drafts of operations on which float32 loses digits, and how an error is measured.

They are drawn by our own keyed random numbers, so that PyTorch sees the very same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from dnnstack.backends.base import Array, Executable, Options
from dnnstack.backends.reference.backend import ReferenceBackend
from dnnstack.common import random
from dnnstack.graph.graph import Role, Shape, Tensor
from dnnstack.graph.ops import BatchNorm

from ..op_draft import Draft

# An error may be so many times PyTorch's.
MOST = 4.0


class Numbers:
    """What a Draft asks of a generator, as numbers of ours."""

    def __init__(self, name: str) -> None:
        self.key, self.counter = random.key(1, "precision", name), 0

    def standard_normal(self, shape: Shape) -> Array:
        """Multiples of 2^-20, so that a last bit of a logarithm changes nothing."""
        self.counter += 1
        drawn = random.normal(self.key, self.counter, shape)
        return np.round(drawn * 2.0**20) / 2.0**20

    def integers(self, low: int, high: int, size: int | Shape) -> Array:
        self.counter += 1
        return low + random.integers(self.key, self.counter, size, high - low)


class Hard(Draft):
    """Draws by a law: "normal", "offset" (around 100), "background" (mostly one value).

    ``each`` names the outputs that are judged element by element, the largest error of a row; the
    others are judged as a whole, by the root of the mean square. ``right`` has the values of those
    for which float64 is not enough.
    """

    def __init__(self, name: str, law: str) -> None:
        super().__init__(Numbers(name), law)  # type: ignore[arg-type]
        self.each: dict[Tensor, int] = {}
        self.right: dict[Tensor, Array] = {}

    def floats(self, name: str, *shape: int, role: Role = "input") -> Tensor:
        """Laws are of data: weights are around zero."""
        return self.given(name, self.drawn(shape, role == "input"), role)

    def drawn(self, shape: Shape, by_law: bool = False) -> Array:
        noise = self.rng.standard_normal(shape)
        if by_law and self.law == "offset":
            noise = noise + 100.0
        elif by_law and self.law == "background":
            noise = np.where(np.abs(noise) > 1.5, noise, -0.4242)
        return noise.astype(np.float32)


Maker = Callable[[], Hard]
CASES: dict[str, Maker] = {}


def case(name: str, describe: Callable[..., None], law: str, *arguments: Any) -> None:
    def make() -> Hard:
        draft = Hard(name, law)
        describe(draft, *arguments)
        return draft

    assert name not in CASES, name
    CASES[name] = make


def errors(draft: Hard, tensor: Tensor, got: Array, right: dict[Tensor, Array]) -> list[float]:
    """Of every row of an output in ``each``: its largest error, in units of the element's last
    place. Of another: the root of the mean squared error over that of the values, in 2^-24.

    A mean of batch norm is subtracted from values, and its error is judged beside their size: it
    may itself be as good as 0.
    """
    want = right[tensor]
    away = np.subtract(got, want, dtype=np.float64)
    if tensor in draft.each:
        units = np.spacing(np.abs(want).astype(np.float32)).astype(np.float64)
        rows = (np.abs(away) / units).reshape(draft.each[tensor], -1)
        return [float(worst) for worst in rows.max(1)]
    square = np.square(want, dtype=np.float64)
    for op in draft.graph.ops:
        if isinstance(op, BatchNorm) and tensor in (op.mean, op.running_mean):
            square = np.square(right[op.mean]) + np.square(right[op.inverse_std]) ** -1.0
    size = np.sqrt(np.mean(square))
    return [float(np.sqrt(np.mean(np.square(away))) / max(size, 1e-30) * 2.0**24)]


def floor(draft: Hard, tensor: Tensor) -> float:
    """Half a unit in the last place, in the unit of ``errors``: what no float32 can fall below."""
    return 0.5 if tensor in draft.each else 1.0


def outputs(draft: Hard) -> list[Tensor]:
    """The floating-point tensors that the draft's operations compute, in order."""
    written = dict.fromkeys(t for op in draft.graph.ops for t in op.writes())
    return [t for t in written if t.dtype == "float32"]


def results(executable: Executable, draft: Hard) -> dict[Tensor, Array]:
    """Write the draft's inputs, run it, read the floating-point tensors that it computes."""
    for tensor, value in draft.values.items():
        executable.write(tensor, value.copy())
    executable.run(draft.graph.name, draft.steps)
    return {tensor: executable.read(tensor) for tensor in outputs(draft)}


def exact(draft: Hard) -> dict[Tensor, Array]:
    """The same in float64."""
    options = Options("fp64", fusion=False, tune=False)
    executable = ReferenceBackend(1).compile({draft.graph.name: draft.graph}, options)
    return results(executable, draft) | draft.right


def rounded_up(error: float) -> float:
    """To three digits, never down."""
    return float(f"{error * 1.0005:.3g}")

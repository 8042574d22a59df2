"""A single operation with its inputs, and the table in which the others are entered."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from dnnstack.backends.base import Array
from dnnstack.graph.graph import DType, Graph, Role, Shape, Tensor

# The slope or scale of the activations that have one.
ALPHA = {"leaky_relu": 0.3, "elu": 0.7}


class Draft:
    """A section in the making, with the values of its inputs.

    ``length`` is how many products or terms the longest sum in it adds up: rounding errors grow
    with it. ``steps`` is how often the section is run.
    """

    def __init__(self, rng: np.random.Generator, law: str) -> None:
        self.rng = rng
        self.law = law
        self.graph = Graph("one", 1)
        self.values: dict[Tensor, Array] = {}
        self.length = 1
        self.steps = 1

    def given(self, name: str, value: Array, role: Role = "input") -> Tensor:
        """A tensor that is written from outside."""
        dtype: DType = str(value.dtype)  # type: ignore[assignment]
        tensor = self.graph.tensor(name, value.shape, dtype, role)
        self.graph.results[name] = tensor
        self.values[tensor] = value
        return tensor

    def floats(self, name: str, *shape: int, role: Role = "input") -> Tensor:
        return self.given(name, self.drawn(shape), role)

    def drawn(self, shape: Shape) -> Array:
        if self.law == "zeros":
            return np.zeros(shape, np.float32)
        if self.law == "ties":
            return self.rng.integers(-1, 2, shape).astype(np.float32)
        return self.rng.standard_normal(shape).astype(np.float32)

    def out(self, name: str, *shape: int, dtype: DType = "float32") -> Tensor:
        tensor = self.graph.tensor(name, shape, dtype)
        self.graph.results[name] = tensor
        return tensor

    def gradient(self, name: str, *shape: int) -> Tensor:
        tensor = self.graph.gradient(Tensor(name, shape, "float32", "parameter"))
        self.graph.results[tensor.name] = tensor
        return tensor


CASES: dict[str, Callable[[np.random.Generator, str], Draft]] = {}


def case(name: str, describe: Callable[..., None], *arguments: object) -> None:
    def make(rng: np.random.Generator, law: str) -> Draft:
        draft = Draft(rng, law)
        describe(draft, *arguments)
        return draft

    assert name not in CASES, name
    CASES[name] = make

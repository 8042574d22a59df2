"""Running a list of operations over a dictionary of arrays."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ...common.errors import ShapeError
from ...graph.graph import EXTERNAL, Graph, Op, Tensor
from ...graph.ops import Fused, GatherBatch
from ..base import Array, BoundCall, in_three_steps
from ..live import changed, renumbered
from ..tuning import Tuning
from .kernels import KERNELS


class ReferenceExecutable:
    """Sections whose every operation is a NumPy function; see base.Executable.

    State starts at zero. A section reads what was written or computed before: a parameter, an
    input or a data set that was never written raises KeyError with its name.
    """

    def __init__(
        self,
        graphs: Mapping[str, Graph],
        tuning: Tuning,
        notices: Sequence[str],
        floating: np.dtype[Any],
    ) -> None:
        self.tuning = tuning
        self.graphs = dict(graphs)
        self.notices = tuple(notices)
        self._floating = floating
        every = graphs.values()
        self._held = {t for graph in every for t in (*graph.tensors(), *graph.results.values())}
        every_op = (op for graph in every for op in graph.ops)
        # They stay as they were written: they may be large files.
        self._mapped = {op.images for op in every_op if isinstance(op, GatherBatch)}
        self._values: dict[Tensor, Array] = {}
        self.renew()

    def run(self, section: str, steps: int = 1, wait: bool = True) -> None:
        """Run the section's operations in order, this many times."""
        ops = self.graphs[section].ops
        # Infinities and NaN pass through as they do on every other device.
        with np.errstate(all="ignore"):
            for _ in range(steps):
                for op in ops:
                    self._compute(op)

    def run_in_turn(self, sections: Sequence[str], steps: int = 1, wait: bool = True) -> None:
        for section in (*sections,) * steps:
            self.run(section)

    def write(self, tensor: Tensor, array: Array) -> None:
        """Set a tensor from outside. A data set may have another length than declared.

        Raises KeyError for a tensor that is computed here or not held, ShapeError for an array of
        another shape or type.
        """
        if tensor not in self._held or tensor.role not in EXTERNAL:
            raise KeyError(f"'{tensor.name}' ({tensor.role}) cannot be written here")
        array = np.asarray(array)
        lead = 1 if tensor.role == "data" else 0
        if array.shape[lead:] != tensor.shape[lead:] or array.ndim != len(tensor.shape):
            raise ShapeError(
                f"'{tensor.name}' has the shape {tensor.shape}, the array {array.shape}"
            )
        held = self._dtype(tensor)
        if array.dtype not in (held, np.dtype(tensor.dtype)):
            raise ShapeError(
                f"'{tensor.name}' holds {tensor.dtype}, the array {array.dtype}; convert it first"
            )
        copy = None if tensor.role == "data" else True
        self._values[tensor] = np.array(array, held, copy=copy, order="C")

    def read(self, tensor: Tensor) -> Array:
        """A copy of the tensor's value."""
        return self._value(tensor).copy()

    def patch_sums(
        self, images: Tensor, rows: Array, window: tuple[int, int]
    ) -> tuple[Array, Array] | None:
        return None

    def function(self, section: str, given: Tensor, found: Tensor) -> Callable[[Array], Array]:
        return in_three_steps(self, section, given, found)

    def calls(self, section: str) -> Sequence[BoundCall]:
        return [
            BoundCall(op, "numpy", _function(op), getattr(op, "kind", ""), _arguments(op))
            for op in self.graphs[section].ops
        ]

    def halved(self, section: str) -> frozenset[Tensor]:
        return frozenset()

    def measure(self, section: str, repeats: int) -> list[float]:
        """Median seconds of every operation; all values are afterwards what they were before."""
        ops = self.graphs[section].ops
        before = dict(self._values)
        times: list[list[float]] = [[] for _ in ops]
        with np.errstate(all="ignore"):
            for _ in range(repeats):
                for op, seconds in zip(ops, times, strict=True):
                    start = time.perf_counter()
                    self._compute(op)
                    seconds.append(time.perf_counter() - start)
                # The same step again, not the next: the rates may end with the last one.
                self._values = dict(before)
        return [statistics.median(seconds) for seconds in times]

    def poison(self) -> None:
        """What was computed is gone, so that reading it before it is computed anew is an error."""
        self._values = {t: value for t, value in self._values.items() if t.role in EXTERNAL}

    def renew(self) -> None:
        kept = {t: value for t, value in self._values.items() if t.role == "data"}
        states = (tensor for tensor in self._held if tensor.role == "state")
        self._values = {t: np.zeros(t.shape, self._dtype(t)) for t in states} | kept

    def renumber(self, sections: Mapping[str, Graph]) -> bool:
        for name, graph in self.graphs.items():
            pairs = changed(graph, sections[name])
            # What is held depends on the tensors.
            if pairs is None or any(
                a.reads() + a.writes() != b.reads() + b.writes() for a, b in pairs
            ):
                return False
        self.graphs = dict(sections)
        self.tuning = renumbered(self.tuning, sections)
        return True

    def close(self) -> None:
        self._values.clear()
        self._held.clear()

    def _compute(self, op: Op) -> None:
        if isinstance(op, Fused):
            for part in (*op.given, *op.parts):
                self._compute(part)
            return
        arguments = [self._argument(getattr(op, field)) for field in (*op.inputs, *op.updates)]
        result = KERNELS.of(op).compute(op, *arguments)
        fields = (*op.outputs, *op.updates)
        for field, value in zip(fields, result if len(fields) > 1 else (result,), strict=True):
            self._store(getattr(op, field), value)

    def _argument(self, wanted: Tensor | tuple[Tensor, ...] | None) -> Any:
        if isinstance(wanted, tuple):
            return tuple(self._value(tensor) for tensor in wanted)
        return None if wanted is None else self._value(wanted)

    def _store(self, tensor: Tensor | tuple[Tensor, ...] | None, value: Any) -> None:
        if isinstance(tensor, tuple):
            for one, array in zip(tensor, value, strict=True):
                self._store(one, array)
        elif tensor is not None:
            self._values[tensor] = np.asarray(value, self._dtype(tensor))

    def _value(self, tensor: Tensor) -> Array:
        if tensor in self._values:
            return self._values[tensor]
        if tensor in self._held:
            raise KeyError(f"'{tensor.name}' ({tensor.role}) was neither written nor computed yet")
        raise KeyError(f"'{tensor.name}' is not held here")

    def _dtype(self, tensor: Tensor) -> np.dtype[Any]:
        floats = tensor.dtype == "float32" and tensor not in self._mapped
        return self._floating if floats else np.dtype(tensor.dtype)


def _function(op: Op) -> str:
    if isinstance(op, Fused):
        return " ".join(dict.fromkeys(_function(part) for part in op.parts))
    return KERNELS.of(op).function


def _arguments(op: Op) -> dict[str, str]:
    """Geometry and shapes of an operation, by field; options where they are not the default."""
    listed: dict[str, str] = {}
    for name, value in vars(op).items():
        if isinstance(value, Tensor):
            listed[name] = f"{value.shape} {value.dtype}"
        elif not isinstance(value, tuple) and value != getattr(type(op), name, None):
            listed[name] = str(value)
    return listed

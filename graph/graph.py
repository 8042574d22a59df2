"""Tensor, Op and Graph: one training step as a flat list of operations in topological order."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from math import prod
from typing import Annotated, Any, ClassVar, Literal, TypeVar

from typing_extensions import dataclass_transform

from ..common import records
from ..common.errors import ShapeError

Shape = tuple[int, ...]
DType = Literal["float32", "float64", "int32", "int64", "uint8"]
Role = Literal["input", "data", "parameter", "gradient", "activation", "state", "scalar"]
Phase = Literal["data", "forward", "loss", "backward", "update"]

ITEM_SIZE: dict[str, int] = {"float32": 4, "float64": 8, "int32": 4, "int64": 8, "uint8": 1}
# Tensors that are written from outside, or that keep their values from step to step.
EXTERNAL: frozenset[str] = frozenset({"input", "data", "parameter", "state", "scalar"})
# Tensors that all sections of an executable share; others belong to their section.
SHARED: frozenset[str] = frozenset({"data", "parameter", "state"})


@dataclass(frozen=True)
class Tensor:
    """A named array of static shape: NCHW pictures, OIHW filters, (units, inputs) dense weights.

    ``section`` is the graph that owns it, or "" for a tensor that all sections share (parameters,
    state, data sets). The backend decides how it lies in memory.
    """

    name: str
    shape: Shape
    dtype: DType = "float32"
    role: Role = "activation"
    section: str = ""

    @property
    def size(self) -> int:
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.size * ITEM_SIZE[self.dtype]


@dataclass(frozen=True)
class Origin:
    """The layer and phase that asked for an operation."""

    layer: str
    phase: Phase


# What an operation does with the tensors of a field.
In = Annotated[Tensor, "In"]
Out = Annotated[Tensor, "Out"]
InOut = Annotated[Tensor, "InOut"]
OpT = TypeVar("OpT", bound="Op")


@dataclass_transform(kw_only_default=True, frozen_default=True)
@records.dataclass(frozen=True, kw_only=True)
class Op:
    """One operation; every class that derives from this one is a frozen dataclass.

    A field that is read is an ``In``, one that is written an ``Out``, one that is updated in place
    an ``InOut``, or a tuple of them, or None if an optional tensor is absent. ``inputs``,
    ``outputs`` and ``updates`` name these fields. ``origin`` says for which layers and phases it
    works: one when a layer emits it, several after a rewrite has united operations.
    """

    inputs: ClassVar[tuple[str, ...]] = ()
    outputs: ClassVar[tuple[str, ...]] = ()
    updates: ClassVar[tuple[str, ...]] = ()
    # Floating-point operations for each number of the first field that is read.
    flops_each: ClassVar[int] = 0
    # Whether it is there only because several processes share out the parts of a batch.
    shared_out: ClassVar[bool] = False

    origin: tuple[Origin, ...] = ()

    def __init_subclass__(cls) -> None:
        records.record(cls, frozen=True, kw_only=True)
        words = {field.name: re.findall(r"\w+", str(field.type)) for field in fields(cls)}
        for names, role in (("inputs", "In"), ("outputs", "Out"), ("updates", "InOut")):
            # A class may state another order than that of its fields.
            if names not in vars(cls):
                setattr(cls, names, tuple(name for name in words if role in words[name]))

    def check(self) -> None:
        """Raise ShapeError if the tensors do not obey the shape rule; here: they have one shape."""
        self.same(*self.reads(), *self.writes())

    def same(self, *tensors: Tensor) -> None:
        """Raise ShapeError unless all tensors have one shape."""
        if len({t.shape for t in tensors}) != 1:
            raise ShapeError(f"{self.label()}: shapes differ: {_listed(tensors)}")

    def need(self, holds: bool, *tensors: Tensor) -> None:
        """Raise ShapeError, listing the tensors, unless the rule holds."""
        if not holds:
            raise ShapeError(f"{self.label()}: shapes do not fit: {_listed(tensors)}")

    def paired(self, ones: Sequence[Tensor], others: Sequence[Tensor]) -> None:
        """Raise ShapeError unless there are as many of both, in pairs of one shape."""
        self.need(len(ones) == len(others), *ones, *others)
        for pair in zip(ones, others, strict=True):
            self.same(*pair)

    def flops(self) -> int:
        """Floating-point operations: a multiply and an add count two."""
        first = (*self.inputs, *self.updates)[:1]
        return self.flops_each * sum(tensor.size for tensor in self.tensors(first))

    def bytes(self) -> int:
        """Least bytes moved: every input is read once, every output written once, updates both."""
        return sum(t.nbytes for t in (*self.reads(), *self.writes()))

    def tensors(self, fields: Sequence[str]) -> tuple[Tensor, ...]:
        found: list[Tensor] = []
        for field in fields:
            value = getattr(self, field)
            if isinstance(value, Tensor):
                found.append(value)
            elif value is not None:
                found.extend(value)
        return tuple(found)

    def reads(self) -> tuple[Tensor, ...]:
        """The tensors whose values the operation needs."""
        return self.tensors((*self.inputs, *self.updates))

    def writes(self) -> tuple[Tensor, ...]:
        """The tensors that the operation changes."""
        return self.tensors((*self.outputs, *self.updates))

    def on(self: OpT, replacements: Mapping[Tensor, Tensor]) -> OpT:
        """The same operation with some tensors replaced by others."""

        def other(value: Tensor | tuple[Tensor, ...] | None) -> object:
            if isinstance(value, tuple):
                return tuple(map(other, value))
            return None if value is None else replacements.get(value, value)

        names = (*self.inputs, *self.outputs, *self.updates)
        changed: dict[str, Any] = {name: other(getattr(self, name)) for name in names}
        return replace(self, **changed)

    @property
    def name(self) -> str:
        """What the operation is called in messages and reports."""
        return type(self).__name__

    def label(self) -> str:
        """A short name for messages: the operation and the layer it works for."""
        layers = dict.fromkeys(origin.layer for origin in self.origin)
        return f"{self.name}({', '.join(layers)})"


def gradient_of(parameter: Tensor, section: str) -> Tensor:
    """The gradient of a parameter in a section."""
    return Tensor(f"{parameter.name}.grad", parameter.shape, "float32", "gradient", section)


def _listed(tensors: Iterable[Tensor]) -> str:
    return ", ".join(f"{t.name} {t.shape}" for t in tensors)


class Graph:
    """A section: operations in topological order, and by name the tensors that others use.

    ``results`` are the tensors that must be computed; ``prune`` drops what they do not need.
    ``training``: whether layers that differ between the two, such as batch norm and dropout, behave
    as in training. ``seed`` is what the random numbers drawn in this section are keyed by.
    ``outputs`` and ``output_gradients``: of each layer by name, in the order they were added.
    """

    def __init__(
        self, name: str, batch_size: int, *, training: bool = False, seed: int = 0
    ) -> None:
        self.name, self.batch_size, self.training, self.seed = name, batch_size, training, seed
        self.ops: list[Op] = []
        self.results: dict[str, Tensor] = {}
        self.outputs: dict[str, Tensor] = {}
        self.output_gradients: dict[str, Tensor] = {}
        self._defined: dict[tuple[str, str], Tensor] = {}
        self._written: set[Tensor] = set()
        self._kept: dict[str, dict[str, Any]] = {}
        self._origin = Origin("", "forward")
        self._prefix = ""
        self._readers: dict[Tensor, list[Op]] | None = None
        self._producers: dict[Tensor, Op] = {}

    def __getitem__(self, result: str) -> Tensor:
        return self.results[result]

    @contextmanager
    def at(self, layer: str, phase: Phase) -> Iterator[None]:
        """Stamp the operations added inside with their layer and phase."""
        before, self._origin = self._origin, Origin(layer, phase)
        try:
            yield
        finally:
            self._origin = before

    @contextmanager
    def under(self, prefix: str) -> Iterator[None]:
        """Put ``prefix`` before the names of the section's own tensors that are defined inside.

        So the same layers can come twice, on other inputs.
        """
        before, self._prefix = self._prefix, prefix
        try:
            yield
        finally:
            self._prefix = before

    def tensor(
        self, name: str, shape: Shape, dtype: DType = "float32", role: Role = "activation"
    ) -> Tensor:
        """Define a tensor; a shared one may be defined again, with the same shape."""
        if role not in SHARED:
            name = f"{self._prefix}{name}"
        tensor = Tensor(name, shape, dtype, role, "" if role in SHARED else self.name)
        key = (tensor.section, name)
        known = self._defined.get(key)
        if known is not None and not (role in SHARED and known == tensor):
            raise ShapeError(f"graph '{self.name}': tensor '{name}' {shape} is defined twice")
        self._defined[key] = tensor
        return tensor

    def gradient(self, parameter: Tensor) -> Tensor:
        """The gradient tensor of a parameter: same shape, written once in backward."""
        return gradient_of(parameter, self.name)

    def keep(self, layer: str, **tensors: Tensor) -> None:
        """Store, in forward, what the layer's backward needs."""
        self._kept[layer] = tensors

    def kept(self, layer: str) -> dict[str, Any]:
        """These tensors by name, perhaps those of fields of an operation; none were stored: {}."""
        return self._kept.get(layer, {})

    def add(self, op: Op) -> Tensor:
        """Append an operation; its inputs must exist, its outputs must be new, its shapes fit.

        Returns the first tensor that it writes. Raises ShapeError for one that does not fit: a
        mistake in a layer, not in a user's file.
        """
        op = op if op.origin else replace(op, origin=(self._origin,))
        op.check()
        for tensor in op.reads():
            if tensor.role not in EXTERNAL and tensor not in self._written:
                raise ShapeError(f"{op.label()}: reads '{tensor.name}' before it is computed")
        for tensor in op.tensors(op.outputs):
            if tensor in self._written:
                raise ShapeError(f"{op.label()}: writes '{tensor.name}' a second time")
        written = op.writes()
        self._written.update(written)
        self.ops.append(op)
        self._readers = None
        return written[0]

    def with_ops(self, ops: Iterable[Op]) -> Graph:
        """The same section with another list, checked anew: what a rewrite returns."""
        graph = Graph(self.name, self.batch_size, training=self.training, seed=self.seed)
        graph.results = dict(self.results)
        for op in ops:
            graph.add(op)
        return graph

    def substituted(self, replacements: Mapping[Tensor, Tensor]) -> Graph:
        """The same section with some tensors replaced by others of the same shape."""
        return self.with_ops(op.on(replacements) for op in self.ops)

    def prune(self) -> None:
        """Drop operations that neither a result nor an in-place update depends on."""
        needed = set(self.results.values())
        live: list[Op] = []
        for op in reversed(self.ops):
            if op.updates or needed.intersection(op.writes()):
                needed.update(op.reads())
                live.append(op)
        self.ops = live[::-1]
        self._readers = None

    def producer(self, tensor: Tensor) -> Op | None:
        """The operation that outputs the tensor, or None for one that comes from outside."""
        self._index()
        return self._producers.get(tensor)

    def consumers(self, tensor: Tensor) -> list[Op]:
        """The operations that read the tensor, in order."""
        return list(self._index().get(tensor, ()))

    def _index(self) -> dict[Tensor, list[Op]]:
        """The readers of every tensor; finds the producers too. Made once for a list."""
        if self._readers is None:
            readers: dict[Tensor, list[Op]] = {}
            self._producers = {}
            for op in self.ops:
                for tensor in dict.fromkeys(op.reads()):
                    readers.setdefault(tensor, []).append(op)
                for tensor in op.tensors(op.outputs):
                    self._producers.setdefault(tensor, op)
            self._readers = readers
        return self._readers

    def tensors(self) -> list[Tensor]:
        """Every tensor that an operation touches, in order of first use."""
        seen: dict[Tensor, None] = {}
        for op in self.ops:
            seen.update(dict.fromkeys((*op.reads(), *op.writes())))
        return list(seen)

"""Tuning: the choices that compiling made by timing, as a table to store in checkpoints."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import field, fields, is_dataclass, replace
from importlib import resources
from typing import Any

from ..common.records import dataclass
from ..graph.graph import Graph, Op, Tensor
from ..graph.ops import Accumulate, Exchange
from ..graph.ops.formulas import Formula
from ..graph.ops.updates import ParameterUpdate

# No choice depends on the seed, the key of random numbers.
_KEYS = ("key", "keys")
UNEQUAL = "results are right, but not equal to the last bit to those before"


@dataclass(frozen=True)
class Tuning:
    """Choices by name, and the backend, environment and graph for which they were made.

    ``environment`` is what equal bits depend on: library versions, instruction set, threads,
    precision. The same table in the same environment gives an executable with equal bits.
    """

    backend: str
    environment: Mapping[str, str] = field(default_factory=dict)
    graph: str = ""
    choices: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        environment, choices = dict(self.environment), dict(self.choices)
        return vars(self) | {"environment": environment, "choices": choices}

    def misfit(self, other: Tuning) -> str:
        """Why this table cannot give the bits of ``other``, the present one; "" if it can."""
        if self.backend != other.backend:
            return f"it was made for the {self.backend} backend, this is {other.backend}"
        if self.graph != other.graph:
            return "it was made for another network, batch size or option"
        for name, value in other.environment.items():
            was = self.environment.get(name, "unknown")
            if was != value:
                return f"{name} was {was}, now it is {value}"
        return ""


def code_digest(package: str, *folders: str) -> str:
    """A digest of a package's code, and of that in its folders: 12 digits of a SHA-256.

    Another version of the code may compute other bits, and its choices may have other meanings.
    """
    home = resources.files(package)
    places = [home, *(home / folder for folder in folders)]
    files = sorted((f for place in places for f in place.iterdir()), key=lambda file: file.name)
    code = [file.read_bytes() for file in files if file.name.endswith((".py", ".cu", ".cuh"))]
    return hashlib.sha256(b"\0".join(code)).hexdigest()[:12]


def training_sections(sections: Mapping[str, Graph]) -> dict[str, Graph]:
    """The sections that train: choices are timed on them, and their bits must be kept.

    Without what several processes do together, for none waits for the timing of another.
    """
    return {
        name: _alone(graph)
        for name, graph in sections.items()
        if any(isinstance(op, (ParameterUpdate, Accumulate)) for op in graph.ops)
    }


def _alone(graph: Graph) -> Graph:
    if not any(op.shared_out for op in graph.ops):
        return graph
    alone = [_silent(op) for op in graph.ops if not op.shared_out or isinstance(op, Exchange)]
    return graph.with_ops(alone)


def _silent(op: Op) -> Op:
    return replace(op, silent=True) if isinstance(op, Exchange) else op


def fingerprint(sections: Mapping[str, Graph], *extra: object, numbers: bool = True) -> str:
    """SHA-256 over the operations, shapes and attributes of all sections, and ``extra``.

    Of those of ``training_sections`` it does not depend on how many processes share out a batch.
    Without ``numbers``, those that are no sizes, such as a momentum or an angle, count only as far
    as they decide what is computed: whether they are 0 or 1, and which of an operation are equal.
    """
    parts = [repr(extra)]
    for name, graph in sorted(sections.items()):
        parts += [f"\n{name}\n", *(_described(op, numbers) for op in graph.ops)]
    return hashlib.sha256("".join(parts).encode()).hexdigest()


def same_but_for_numbers(name: str, one: object, other: object) -> bool:
    """Whether a field has values of one meaning to ``fingerprint`` without ``numbers``."""
    return name in _KEYS or _without_numbers(one) == _without_numbers(other)


def _described(op: Op, numbers: bool) -> str:
    left = {"origin", *_KEYS}
    if isinstance(op, Accumulate):
        # Those of this process, and where their sums wait; the scale tells how many there are.
        left |= {"parts", "pending"}
    brief = _brief if numbers else _without_numbers
    parts = [f"{name}={brief(value)}" for name, value in vars(op).items() if name not in left]
    return ";".join([type(op).__name__, *parts]) + "\n"


def _brief(value: object) -> str:
    if isinstance(value, Tensor):
        # The choices do not depend on the number of pictures and steps.
        shape = value.shape[1:] if value.role == "data" else value.shape
        return f"{value.name}{shape}{value.dtype}"
    if isinstance(value, tuple) and value and isinstance(value[0], Tensor):
        return ",".join(_brief(item) for item in value)
    if isinstance(value, Formula):
        # What a backend compiles of it is no part of the backend's own code.
        return f"{value!r}{value.cuda}"
    return repr(value)


def _without_numbers(value: object) -> str:
    if isinstance(value, float):
        return f"{value:g}" if value in (0.0, 1.0) else "~"
    if isinstance(value, tuple) and value and isinstance(value[0], float):
        distinct = list(dict.fromkeys(value))
        return ",".join(f"{_without_numbers(each)}{distinct.index(each)}" for each in value)
    if isinstance(value, tuple) and value and not isinstance(value[0], Tensor):
        return ",".join(map(_without_numbers, value))
    if is_dataclass(value) and not isinstance(value, Tensor):
        inside = [_without_numbers(getattr(value, each.name)) for each in fields(value)]
        inside += [value.cuda] if isinstance(value, Formula) else []
        return f"{type(value).__name__}({','.join(inside)})"
    return _brief(value)

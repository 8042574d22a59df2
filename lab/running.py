"""A kernel beside the library's call in the sizes of a training step, and in its place."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from ..common.records import dataclass
from ..reports import explain
from ..reports.tables import table
from ..reports.units import quantity, time_text
from .checking import FEW, check, checked
from .operations import LabError
from .program import Program, opened
from .skeleton import SUFFIXES

_MORE, _SHORT = 10, 0.2
COLUMNS = ("file", "operation", "right", "ratio", "seconds", "fault")
_HEAD = ("layer", "phase", "sizes", "kernel", "library", "ratio", "FLOP/s", "bytes/s", "of limit")


@dataclass(frozen=True)
class Timed:
    """An operation of a step with its library's calls, and the kernel's seconds for it."""

    operation: explain.Operation
    seconds: float

    def to_json(self) -> dict[str, Any]:
        known = self.operation
        return {
            "layer": known.origin.layer,
            "phase": known.origin.phase,
            "sizes": [tensor.shape for tensor in (*known.op.reads(), *known.op.writes())],
            "seconds": self.seconds,
            "library_seconds": known.seconds,
            "ratio": self.seconds / known.seconds if known.seconds else None,
            "flops_per_second": known.op.flops() / self.seconds,
            "bytes_per_second": known.bytes / self.seconds,
            "fraction_of_limit": explain.ratio(known.limit_seconds, self.seconds),
        }

    def cells(self) -> list[str]:
        found = self.to_json()
        share, sizes = found["fraction_of_limit"], ["x".join(map(str, s)) for s in found["sizes"]]
        return [
            found["layer"],
            found["phase"],
            f"{', '.join(sizes[:-1])} -> {sizes[-1]}" if len(sizes) < 4 else "all parameters",
            time_text(self.seconds),
            time_text(found["library_seconds"]),
            f"{found['ratio'] or 0:.2f}",
            quantity(found["flops_per_second"]),
            quantity(found["bytes_per_second"]),
            "" if share is None else f"{share:.1%}",
        ]


@dataclass(frozen=True)
class Report:
    """A kernel that is right: in ``taken`` of ``drawn`` sizes, and how fast it is."""

    file: str
    operation: str
    language: str
    drawn: int
    taken: int
    timed: tuple[Timed, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {**vars(self), "timed": [each.to_json() for each in self.timed]}

    def as_text(self) -> str:
        """What people read."""
        lines = [
            f"{self.file}: {self.operation} is right in {self.taken} of {self.drawn} drawn sizes"
        ]
        if self.taken < self.drawn:
            lines[0] += ", and does not take the others"
        rows = [_HEAD, *(each.cells() for each in self.timed)]
        return "\n".join([*lines, *(table(rows, "<<<>") if self.timed else ())])


def report(program: Program) -> Report:
    """Check a kernel in drawn sizes. Raises LabError with the first fault."""
    name = program.operation.name
    return Report(str(program.path), name, program.language, *check(program))


def timed(program: Program, explanation: explain.Explanation) -> tuple[Timed, ...]:
    """The kernel in each operation of a measured step that it takes. Raises LabError where it is
    wrong."""
    operation, rng = program.operation, np.random.default_rng(1)
    found = []
    for known in explanation.operations:
        if not operation.takes(known.op):
            continue
        cases = [operation.case(op, rng) for op in operation.calls(known.op)]
        runs = checked(program, cases, FEW)
        if not all(each[0].took for each in runs):
            continue
        if sum(run.seconds for each in runs for run in each) < _SHORT:
            runs = checked(program, cases, _MORE)
        found.append(Timed(known, sum(median(run.seconds for run in each) for each in runs)))
    return tuple(found)


def graded(folder: Path, limit: float, explanation: explain.Explanation) -> Iterator[list[str]]:
    """A row of COLUMNS for each kernel of a folder, by name.

    ratio, seconds: of all sizes of a step together; "" where the kernel is wrong or the step has
    none that it takes. Raises LabError where there is no kernel.
    """
    paths = sorted(path for suffix in SUFFIXES.values() for path in folder.glob(f"*{suffix}"))
    if not paths:
        raise LabError(f"{folder}: has no file that ends in {', '.join(SUFFIXES.values())}")
    for path in paths:
        operation = ""
        try:
            with opened(path, limit) as program:
                operation = program.operation.name
                report(program)
                rows = timed(program, explanation)
        except LabError as error:
            yield [path.name, operation, "no", "", "", str(error).removeprefix(f"{path}: ")]
            continue
        seconds = sum(each.seconds for each in rows)
        library = sum(each.operation.seconds or 0.0 for each in rows)
        shown = [f"{seconds / library:.3f}", f"{seconds:.6f}"] if library else ["", ""]
        yield [path.name, operation, "yes", *shown, ""]

"""Whether a kernel is right: in drawn sizes, against the float64 reference."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .operations import Case, LabError, Operation
from .program import Program, Ran

_DRAWN = 12
_TOLERANCE = 1e-4
# Of compiled kernels, which may race; and of those that are only to be between both guards.
_RUNS, FEW = 20, 2
_AXES = {4: ("sample", "channel", "row", "column"), 2: ("row", "column")}


def check(program: Program) -> tuple[int, int]:
    """How many drawn cases there were, and how many the kernel took. Raises LabError if it is wrong
    in one, or takes none."""
    rng, operation = np.random.default_rng(1), program.operation
    compiled = program.language != "python"
    cases = [operation.case(operation.draw(rng, 1 + 3 * compiled), rng) for _ in range(_DRAWN)]
    found = checked(program, cases, _RUNS if compiled else FEW)
    taken = sum(runs[0].took for runs in found)
    if not taken:
        raise LabError(f"{program.path}: {operation.name} takes none of {_DRAWN} drawn sizes")
    return _DRAWN, taken


def checked(program: Program, cases: Sequence[Case], runs: int) -> list[list[Ran]]:
    """The runs of each case, all of them right. Raises LabError with the first fault."""
    found, fault = program.tried(cases, runs)
    for case, ran in zip(cases, found, strict=True):
        fails = wrong(program.operation, case, ran)
        if len(ran) < runs:
            fails = fails or fault or "ends the process itself"
        if fails:
            raise LabError(f"{program.path}: {program.operation.name} {fails}; sizes: {case.title}")
    return found


def wrong(operation: Operation, case: Case, ran: Sequence[Ran]) -> str:
    """The first element that is wrong in a run, "" if there is none."""
    for number, run in enumerate(ran):
        for name, expected in case.expected.items():
            if not run.took:
                continue
            got = run.written[name]
            with np.errstate(invalid="ignore"):
                right = abs(got - expected) <= _TOLERANCE * (1 + abs(expected))
            if right.all():
                continue
            at = tuple(map(int, np.argwhere(~right)[0]))
            others = [other.written[name][at] for other in ran]
            text = f"{_element(operation, name, at)} is {got[at]:g}, expected {expected[at]:g}"
            if number or any(other.tobytes() != others[0].tobytes() for other in others):
                return (
                    f"is not the same in {len(ran)} runs, so it races: {text} in run {number + 1}"
                )
            return f"is wrong: {text}{' (not written?)' * bool(np.isnan(got[at]))}"
    return ""


def _element(operation: Operation, name: str, at: tuple[int, ...]) -> str:
    dims = next(a.dims for a in operation.arguments if a.name == name)
    words = _AXES.get(len(at), ("element",))
    if dims[:1] == ("O",):
        words = ("filter", *words[1:])
    places = ", ".join(f"{word} {i}" for word, i in zip(words, at, strict=False))
    return f"{name}[{','.join(map(str, at))}] ({places})"

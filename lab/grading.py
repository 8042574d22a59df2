"""The kernels of a class: which are right, and how fast they are."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ..reports.explain import Explanation
from .operations import LabError
from .program import opened
from .running import report
from .skeleton import SUFFIXES

COLUMNS = ("file", "operation", "right", "ratio", "seconds", "fault")


def graded(folder: Path, limit: float, explanation: Explanation) -> Iterator[list[object]]:
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
                timed = report(program, None, explanation).timed
        except LabError as error:
            yield [path.name, operation, "no", "", "", str(error).removeprefix(f"{path}: ")]
            continue
        seconds = sum(each.seconds for each in timed)
        library = sum(each.operation.seconds or 0.0 for each in timed)
        ratio = f"{seconds / library:.3f}" if library else ""
        yield [path.name, operation, "yes", ratio, f"{seconds:.6f}" if timed else "", ""]

"""Reading files that a training may replace or delete at the same time."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from ....common.errors import CheckpointError

T = TypeVar("T")
Tell = Callable[[str], None]

FileMarks = tuple[int, int, int] | None

_LOOKS = 10


def file_marks(path: Path) -> FileMarks:
    """What changes if a file is replaced; None if there is none."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size


def settled(marks: Callable[[], object], look: Callable[[Tell], T], tell: Tell) -> T:
    """What ``look`` returns; it looks again if it found fault with files that changed meanwhile.

    marks: what is compared to see whether they changed. ``look`` tells its faults to the function
    that it is given, or raises CheckpointError; ``tell`` is told only those of the last look.
    """
    for left in reversed(range(_LOOKS)):
        before = marks()
        told: list[str] = []
        error = None
        try:
            found = look(told.append)
        except CheckpointError as raised:
            error = raised
        if left and (told or error is not None) and marks() != before:
            continue
        break
    for text in told:
        tell(text)
    if error is not None:
        raise error
    return found

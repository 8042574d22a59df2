"""Pictures that a command draws at its end."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from . import console


def draw(
    folder: Path,
    as_json: bool,
    drawn: Callable[[], Iterable[Path]],
    *,
    kind: str = "pictures",
    margin: int = 10,
) -> None:
    """Draw into a folder and print the names, with JSON on stderr; a failure is only noted.

    ``margin``: columns of the word before each name.
    """
    from ..common.errors import DatasetError, Warned
    from ..common.files import remove_abandoned
    from ..common.printable import printable

    try:
        written = [*drawn()]
        remove_abandoned(folder)
    except (OSError, ImportError, DatasetError) as error:
        reason = f"{folder}: {error.strerror}" if isinstance(error, OSError) else str(error)
        console.note(Warned(f"the {kind} were not drawn: {reason}"))
        return
    for path in written:
        if as_json:
            console.note(f"drawn: {path}")
        else:
            console.tell(f"{'drawn':{margin}}{printable(path)}")

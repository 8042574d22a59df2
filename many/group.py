"""Groups: run folders that belong together, in one folder with a record; who trains which."""

from __future__ import annotations

import fcntl
import re
import tempfile
import threading
from contextlib import nullcontext, suppress
from pathlib import Path

from ..common.errors import CheckpointError, LockedError
from ..common.files import make_folder, remove_temporaries, sync_folder
from ..common.locks import NO_LOCKS, Lock, lock
from ..common.text import suggested
from ..training.records.group import Group, is_group, unwritable, write_group
from ..training.records.runs import GROUP, LOCK, is_bare, list_runs, numbered


def group_at(reference: str | Path, runs_dir: Path) -> Path | None:
    """The folder of a group, by its name in ``runs_dir`` or a path; None if there is none."""
    return next((p for p in (runs_dir / reference, Path(reference)) if is_group(p)), None)


def list_groups(runs_dir: Path) -> list[str]:
    """The names of all groups of a folder, in alphabetical order; none if it cannot be read."""
    try:
        return sorted(path.name for path in runs_dir.iterdir() if is_group(path))
    except OSError:
        return []


def create_group(runs_dir: Path, name: str, group: Group) -> Path:
    """A new folder, ``name`` or ``name-2`` and so on, with the record.

    A folder whose process was killed before it had written the record counts as free. Raises
    CheckpointError.
    """
    try:
        make_folder(runs_dir)
        number, path = max(numbered(runs_dir, name), default=(0, runs_dir))
        while not (number and _began(path, group)):
            number += 1
            path = runs_dir / (name if number == 1 else f"{name}-{number}")
            with suppress(FileExistsError):
                path.mkdir()
        sync_folder(runs_dir)
    except OSError as error:
        raise unwritable(runs_dir, error) from None
    return path


def _began(path: Path, group: Group) -> bool:
    """Write the record of a folder in which there is nothing yet; False if there is something."""
    if not is_bare(path, GROUP):
        return False
    try:
        held = lock(path / LOCK, keep=False)
    except LockedError:
        return False
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise
        held = None
    with nullcontext() if held is None else held:
        if not is_bare(path, GROUP):
            return False
        remove_temporaries(path)
        write_group(path, group)
        return True


def find_group(reference: str, runs_dir: Path) -> Path:
    """The folder of a group, by name or path. Raises CheckpointError."""
    found = group_at(reference, runs_dir)
    if found is None or reference == "":
        known = list_groups(runs_dir)
        hint = suggested(Path(reference).name, known, "groups of runs")
        raise CheckpointError(
            f"{reference or 'an empty name'}: no such group of runs; {hint} in {runs_dir}: "
            f"{', '.join(known) or 'none'}"
        )
    return found


def lock_group(path: Path) -> Lock | None:
    """Keep other processes from training the runs of a group; None where there are no locks.

    Raises LockedError.
    """
    try:
        held = lock(path / LOCK)
        remove_temporaries(path)
        return held
    except LockedError:
        raise
    except OSError as error:
        if error.errno in NO_LOCKS:
            return None
        raise unwritable(path / LOCK, error) from None


def runs_of(group: Path) -> list[Path]:
    """The run folders of a group, numbers in their names in ascending order.

    Raises CheckpointError.
    """
    return [group / name for name in sorted(list_runs(group), key=_natural)]


def _natural(name: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]


class Claims:
    """Numbers that processes forked from this one take, each by one of them.

    A process that ends, in whatever way, gives back what it took. (Record locks of POSIX, on a
    file without a name that all of them have inherited.)
    """

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - closed below

    def __enter__(self) -> Claims:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def take(self, number: int) -> bool:
        """Whether the number is this process's from now on, or was already; from 0."""
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, number)
        except (BlockingIOError, PermissionError):
            return False
        return True


class Taken:
    """Numbers that threads of this process take, each once."""

    def __init__(self) -> None:
        self._numbers: set[int] = set()
        self._lock = threading.Lock()

    def take(self, number: int) -> bool:
        """Whether nobody has taken the number before; from 0."""
        with self._lock:
            free = number not in self._numbers
            self._numbers.add(number)
            return free

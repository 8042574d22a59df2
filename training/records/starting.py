"""Going on with what a command has begun, or beginning it: one command for every start of a job."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from ...common.errors import CheckpointError, LockedError
from ...common.files import make_folder
from ...common.locks import NO_LOCKS, Lock, lock
from .resume import Resume, open_resume
from .runs import COMPRESSION, GROUP, config_name, is_bare, numbered_folders

T = TypeVar("T")
_TRIES, _PAUSE = 100, 0.1


def resume_or_start(name: str, runs_dir: Path, notice: Callable[[str], None]) -> Resume | None:
    """The latest run of a config of this name, as ``open_resume`` gives it.

    Without such a run nothing is resumed, and other calls raise LockedError until the result is
    closed. Raises CheckpointError as ``_latest`` does.
    """
    held = _decide_alone(runs_dir, name)
    try:
        found = _latest(runs_dir, name, lambda path: config_name(path) == name)
        if found is not None:
            return open_resume(found, notice)
        kept, held = held, None
        return None if kept is None else Resume(None, None, kept)
    finally:
        if held is not None:
            held.release()


def go_on_or_begin(
    runs_dir: Path,
    name: str,
    is_own: Callable[[Path], bool],
    go_on: Callable[[Path], T],
    begin: Callable[[], T],
) -> T:
    """``go_on`` with the folder ``name-N`` of the highest N that ``is_own``, else ``begin``.

    Processes that call it at once take turns. Raises CheckpointError as ``_latest`` does.
    """
    for left in range(_TRIES, -1, -1):
        try:
            held = _decide_alone(runs_dir, name)
            break
        except LockedError:
            if not left:
                raise
            time.sleep(_PAUSE)
    try:
        found = _latest(runs_dir, name, is_own)
        return begin() if found is None else go_on(found)
    finally:
        if held is not None:
            held.release()


def _latest(runs_dir: Path, name: str, is_own: Callable[[Path], bool]) -> Path | None:
    """Raises CheckpointError for a folder of this name that says no longer what it is."""
    for path in numbered_folders(runs_dir, name):
        if is_own(path):
            return path
        others = any((path / record).is_file() for record in (GROUP, COMPRESSION))
        if not (others or is_bare(path) or config_name(path)):
            raise CheckpointError(
                f"{path}: may be what is to go on, but its record (config.yaml, {GROUP} or "
                f"{COMPRESSION}) is missing or damaged, so nothing is begun beside it; put the "
                "record back, continue from a checkpoint (--resume FILE), or move the folder away"
            )
    return None


def _decide_alone(runs_dir: Path, name: str) -> Lock | None:
    """Raises LockedError if another process holds what this gives; None without locks."""
    try:
        make_folder(runs_dir)
        return lock(runs_dir / f".{name}.lock", keep=False)
    except OSError as error:
        if error.errno in NO_LOCKS:
            return None
        raise CheckpointError(
            f"{error.filename or runs_dir}: cannot be written: {error.strerror}; choose another "
            "folder with --runs-dir, or with run.dir of the config"
        ) from None

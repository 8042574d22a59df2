"""The record of a group, ``group.json``: what several runs in one folder were begun with."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

from annotated_types import MaxLen

from ...common.errors import CheckpointError
from ...common.files import atomic_write, make_folder
from ...common.locks import NO_LOCKS, lock
from ...common.records import dataclass
from ...common.typed_json import Name
from .formats.record import read_typed
from .resume import Resume, open_resume
from .runs import COMPRESSION, GROUP, LONGEST_CONFIG, config_name, is_bare, newest_first

Kind = Literal["seeds", "folds", "sweep"]


@dataclass(frozen=True)
class Member:
    """A run of a group: the name of its folder, and the settings that make it differ."""

    name: Name
    settings: tuple[Name, ...] = ()


@dataclass(frozen=True)
class Group:
    """What a group was begun with. config: the effective one that all its runs share, as YAML.

    ``members``: those that are known beforehand, in the order of training.
    """

    kind: Kind
    config: Annotated[str, MaxLen(LONGEST_CONFIG)]
    members: tuple[Member, ...] = ()
    search: Annotated[str, MaxLen(LONGEST_CONFIG)] = ""


def is_group(path: Path) -> bool:
    """Whether a folder is that of a group."""
    return (path / GROUP).is_file()


def read_group(path: Path) -> Group:
    """The record of a group. Raises CheckpointError."""
    return read_typed(path / GROUP, LONGEST_CONFIG, Group)


def write_group(path: Path, group: Group) -> None:
    """Write the record of a group. Raises CheckpointError."""
    try:
        atomic_write(path / GROUP, f"{json.dumps(asdict(group), indent=2)}\n".encode())
    except OSError as error:
        raise unwritable(path / GROUP, error) from None


_TRIES = 500


def resume_or_start(name: str, runs_dir: Path, notice: Callable[[str], None]) -> Resume:
    """The latest run of a config of this name, as ``open_resume`` gives it; see ``deciding``.

    Without such a run it ``starts``: until it is closed, this call raises LockedError elsewhere.
    """
    with ExitStack() as stack:
        turn = deciding(runs_dir, name, lambda path: config_name(path) == name)
        found = stack.enter_context(turn)
        return Resume(None, None, stack.pop_all()) if found is None else open_resume(found, notice)


@contextmanager
def deciding(runs_dir: Path, name: str, is_own: Callable[[Path], bool]) -> Iterator[Path | None]:
    """Gives the folder ``name-N`` of the highest N that ``is_own``, None if there is none.

    Until the end of the block no other process decides the same. Raises LockedError if one that
    does takes too long, CheckpointError for a folder of this name that says no longer what it is.
    """
    with ExitStack() as stack:
        try:
            make_folder(runs_dir)
            stack.enter_context(lock(runs_dir / f".{name}.lock", keep=False, tries=_TRIES))
        except OSError as error:
            if error.errno not in NO_LOCKS:
                raise unwritable(runs_dir, error) from None
        yield _latest(runs_dir, name, is_own)


def _latest(runs_dir: Path, name: str, is_own: Callable[[Path], bool]) -> Path | None:
    for path in newest_first(runs_dir, name):
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


def unwritable(path: Path, error: OSError) -> CheckpointError:
    """The error of a folder of runs, or of a file in it, that cannot be written."""
    return CheckpointError(
        f"{error.filename or path}: cannot be written: {error.strerror}; choose another folder "
        "with --runs-dir, or with run.dir of the config"
    )

"""Groups: run folders that belong together, in one folder with a record, ``group.json``."""

from __future__ import annotations

import json
import re
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

from annotated_types import MaxLen

from ...common.errors import CheckpointError, LockedError
from ...common.files import (
    atomic_write,
    make_folder,
    read_regular,
    remove_temporaries,
    sync_folder,
)
from ...common.locks import NO_LOCKS, Lock, lock
from ...common.records import dataclass
from ...common.text import suggested
from ...common.typed_json import Name, from_json
from ...configs import RunConfig
from ..records.runs import GROUP, LOCK, LONGEST_CONFIG, is_bare, list_runs, newest_first, numbered
from ..records.starting import deciding, unwritable

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


def group_at(reference: str | Path, runs_dir: Path) -> Path | None:
    """The folder of a group, by its name in ``runs_dir`` or a path; None if there is none."""
    return next((p for p in (runs_dir / reference, Path(reference)) if is_group(p)), None)


def list_groups(runs_dir: Path) -> list[str]:
    """The names of all groups of a folder, in alphabetical order; none if it cannot be read."""
    try:
        return sorted(path.name for path in runs_dir.iterdir() if is_group(path))
    except OSError:
        return []


def read_group(path: Path) -> Group:
    """The record of a group. Raises CheckpointError."""
    try:
        return from_json(read_regular(path / GROUP, LONGEST_CONFIG), Group)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise CheckpointError(f"{path / GROUP}: cannot be read: {reason}") from None


def write_group(path: Path, group: Group) -> None:
    """Write the record of a group. Raises CheckpointError."""
    try:
        atomic_write(path / GROUP, f"{json.dumps(asdict(group), indent=2)}\n".encode())
    except OSError as error:
        raise unwritable(path / GROUP, error) from None


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


def latest_group(runs_dir: Path, name: str, kind: Kind) -> Path:
    """The group of this name with the highest number. Raises CheckpointError."""
    for path in newest_first(runs_dir, name):
        if is_group(path) and read_group(path).kind == kind:
            return path
    raise CheckpointError(f"{runs_dir}: has no group '{name}' to resume; start it without --resume")


def deciding_group(config: RunConfig, kind: Kind) -> AbstractContextManager[Path | None]:
    """``deciding`` which group of this kind a config goes on with."""
    return deciding(
        Path(config.run.dir),
        f"{config.name}-{kind}",
        lambda path: is_group(path) and read_group(path).kind == kind,
    )


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

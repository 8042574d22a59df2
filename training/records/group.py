"""The record of a group, ``group.json``: what several runs in one folder were begun with."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

from annotated_types import MaxLen

from ...common.errors import CheckpointError
from ...common.files import atomic_write, read_regular, writing
from ...common.records import dataclass
from ...common.typed_json import Name, from_json
from .runs import GROUP, LONGEST_CONFIG
from .starting import ELSEWHERE

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
    try:
        return from_json(read_regular(path / GROUP, LONGEST_CONFIG), Group)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise CheckpointError(f"{path / GROUP}: cannot be read: {reason}") from None


def write_group(path: Path, group: Group) -> None:
    """Write the record of a group. Raises CheckpointError."""
    with writing(path / GROUP, CheckpointError, ELSEWHERE):
        atomic_write(path / GROUP, f"{json.dumps(asdict(group), indent=2)}\n".encode())

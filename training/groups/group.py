"""Groups: run folders that belong together, in one folder with a record, ``group.json``."""

from __future__ import annotations

import re
from pathlib import Path

from ..records.runs import list_runs

GROUP = "group.json"


def is_group(path: Path) -> bool:
    """Whether a folder is that of a group."""
    return (path / GROUP).is_file()


def group_at(reference: str | Path, runs_dir: Path) -> Path | None:
    """The folder of a group, by its name in ``runs_dir`` or a path; None if there is none."""
    return next((p for p in (runs_dir / reference, Path(reference)) if is_group(p)), None)


def runs_of(group: Path) -> list[Path]:
    """The run folders of a group, numbers in their names in ascending order.

    Raises CheckpointError.
    """
    return [group / name for name in sorted(list_runs(group), key=_natural)]


def list_groups(runs_dir: Path) -> list[str]:
    """The names of all groups of a folder, in alphabetical order; none if it cannot be read."""
    try:
        return sorted(path.name for path in runs_dir.iterdir() if is_group(path))
    except OSError:
        return []


def _natural(name: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]

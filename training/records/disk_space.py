"""Whether the runs folder has room for a run; checked before data is read."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from pathlib import Path

from ...common.errors import CheckpointError
from ...common.files import temporary_name
from ...graph.graph import Shape
from .formats.store import FOLDER

# Bytes of a checkpoint besides its arrays (config, tuning, names), and of a run's log.
_HEADER_BYTES = 1 << 14
_LOG_BYTES = 1 << 20


def checkpoint_bytes(shapes: Mapping[str, Shape]) -> int:
    """The approximate size of a checkpoint with float32 arrays of these shapes."""
    return 4 * sum(map(math.prod, shapes.values())) + _HEADER_BYTES


def check_disk_space(folder: Path, one: int, kept: int) -> None:
    """Check that ``folder``, of the runs or of one run, is writable and has enough space.

    one: bytes of a checkpoint; kept: how many are kept, while another one is being written. Those
    that a resumed run already has will be replaced. Raises CheckpointError.
    """
    place = folder
    try:
        while not place.exists() and place != place.parent:
            place = place.parent
        _try_to_write(place)
        state = os.statvfs(place)
        held = _held(folder / FOLDER)
    except OSError as error:
        raise CheckpointError(
            f"{folder}: no run can be written there: {place.resolve()}: {error.strerror}; "
            "choose another folder with --runs-dir, or with run.dir of the config"
        ) from None
    needed = max((kept + 1) * one - held, one) + _LOG_BYTES
    free = state.f_bavail * state.f_frsize
    if free < needed:
        raise CheckpointError(
            f"{folder}: has {_size(free)} free, but the checkpoints need {_size(needed)} "
            f"({kept} kept and one being written, {_size(one)} each, and the log); free some "
            "space, keep fewer (checkpoint.keep), or choose another folder with run.dir"
        )


def _held(folder: Path) -> int:
    """Bytes of the checkpoints in a folder, 0 if it is missing. Raises OSError."""
    try:
        files = [path for path in folder.iterdir() if path.suffix == ".safetensors"]
        return sum(path.stat().st_size for path in files)
    except FileNotFoundError:
        return 0


def _size(count: float) -> str:
    """Bytes as file managers and ``df -H`` show them: ``41.0 MB``."""
    for unit in ("kB", "MB", "GB"):
        count /= 1000
        if count < 999.95:
            return f"{count:.1f} {unit}"
    return f"{count / 1000:.1f} TB"


def _try_to_write(folder: Path) -> None:
    """Create a file and delete it: permissions do not show a read-only file system."""
    if not folder.is_dir():
        raise NotADirectoryError(20, "is not a folder")
    path = temporary_name(folder / "dnnstack")
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    os.unlink(path)

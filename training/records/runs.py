"""Run folders: ``runs/<name>``, then ``runs/<name>-2``, ``-3``; ``runs/latest`` names the newest.

A folder holds the effective ``config.yaml``, ``log.jsonl``, ``metrics.csv`` and ``checkpoints/``.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
from collections.abc import Callable
from pathlib import Path

from ...common.errors import CheckpointError, LockedError, explaining
from ...common.files import (
    atomic_write,
    close_read,
    make_folder,
    read_regular,
    remove_abandoned,
    remove_temporaries,
    sync_folder,
    temporary_name,
)
from ...common.locks import NO_LOCKS, Lock, lock
from ...common.text import listed, suggested
from .formats.record import NO_RECORD
from .formats.store import FOLDER

CONFIG = "config.yaml"
LATEST = "latest"
AUTO = "auto"
"""What to resume where a run or group may have been begun, or not."""
LOCK = "lock"
GROUP = "group.json"
"""The record in the folder of a group of runs."""
COMPRESSION = "compress.json"
"""The record in the folder of a compression."""
_LISTED = 12
LONGEST_CONFIG = 1 << 24


class Run:
    """An open run folder; its lock keeps every other process from writing there until ``close``."""

    def __init__(self, path: Path, held: Lock | None) -> None:
        self.path, self._held = path, held
        self._folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    @property
    def checkpoints(self) -> Path:
        return self.path / FOLDER

    def present_path(self) -> Path | None:
        """Where the folder is now: elsewhere if it was moved, None if it was removed."""
        try:
            if self._is_at(self.path):
                return self.path
        except OSError:
            # That it cannot be looked at does not mean that it is gone: to write there will tell.
            return self.path
        with contextlib.suppress(OSError):
            path = Path(os.readlink(f"/proc/self/fd/{self._folder}"))
            if self._is_at(path):
                return path
        return None

    def _is_at(self, path: Path) -> bool:
        return path.is_dir() and os.path.samestat(path.stat(), os.fstat(self._folder))

    def close(self) -> None:
        """Release the lock; a second call does nothing."""
        if self._folder >= 0:
            close_read(self._folder)
            self._folder = -1
        if self._held is not None:
            self._held.release()

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def create_run(runs_dir: Path, name: str, config_yaml: str, notice: Callable[[str], None]) -> Run:
    """Create a folder with the next free number, with its config; ``runs/latest`` names it.

    A folder whose process was killed while creating it counts as free. Two processes never get the
    same folder. Raises CheckpointError if the folder cannot be written.
    """
    try:
        make_folder(runs_dir)
        remove_abandoned(runs_dir)
        number, newest = max(numbered(runs_dir, name), default=(0, runs_dir))
        run = _abandoned(newest) if number else None
        while run is None:
            number += 1
            run = _made(runs_dir / (name if number == 1 else f"{name}-{number}"), notice)
        path = run.path
        remove_temporaries(path)
        try:
            atomic_write(path / CONFIG, config_yaml.encode())
            _point_latest(runs_dir, path.name)
        except OSError:
            run.close()
            raise
        return run
    except OSError as error:
        raise CheckpointError(
            f"{error.filename or runs_dir}: cannot create a run folder: {error.strerror}; choose "
            "another folder with --runs-dir, or with run.dir of the config"
        ) from None


def _made(path: Path, notice: Callable[[str], None]) -> Run | None:
    """Create the folder; None if it exists, or another process has taken it meanwhile."""
    try:
        path.mkdir()
        sync_folder(path.parent)
        run = Run(path, _locked(path, notice))
    except (FileExistsError, LockedError):
        return None
    return _if_bare(run)


def _abandoned(path: Path) -> Run | None:
    """A run folder in which nothing was ever written and that is not locked; else None."""
    try:
        # Do not create a lock in a folder that is not a run's.
        return _if_bare(Run(path, lock(path / LOCK))) if is_bare(path) else None
    except (OSError, LockedError):
        return None


def _if_bare(run: Run) -> Run | None:
    """The run if nobody wrote into its folder before it was locked."""
    if is_bare(run.path):
        return run
    run.close()
    return None


def is_bare(path: Path, record: str = CONFIG) -> bool:
    """Whether a folder contains nothing but a lock and an incomplete file of this name."""
    if path.is_symlink():
        return False
    names = {entry.name for entry in path.iterdir()} - {LOCK}
    return all(name.startswith(f".{record}.") and name.endswith(".tmp") for name in names)


def reopen_run(path: Path, notice: Callable[[str], None]) -> Run:
    """Open an existing folder to continue in it. Raises LockedError if another process has it."""
    run = None
    try:
        run = Run(path, _locked(path, notice))
        if run.checkpoints.is_symlink():
            raise OSError(errno.ELOOP, "is a symbolic link", str(run.checkpoints))
        for folder in (run.checkpoints, path, path.parent):
            # A process that was killed may have put into them what it could not make durable.
            if folder.is_dir():
                sync_folder(folder)
    except OSError as error:
        if run is not None:
            run.close()
        advice = "copy the run to a folder of your own, without links"
        if error.errno == errno.EEXIST:
            advice = "move that file away"
        raise CheckpointError(
            f"{path}: cannot be written: {Path(error.filename or path).name}: {error.strerror}; "
            f"{advice}, or start a new run without --resume"
        ) from None
    for folder in (run.path, run.checkpoints):
        remove_temporaries(folder)
    return run


def find_run(reference: str | Path | None, runs_dir: Path, what: str = "run") -> Path:
    """The folder of a run: its name in ``runs_dir`` or a path; None or "latest" is the newest one.

    Raises CheckpointError that lists the existing runs if there is none; ``what`` was looked for.
    """
    if reference is None or str(reference) == LATEST:
        return _latest(runs_dir)
    if str(reference) == "":
        raise CheckpointError(f"the name of the run is empty; {_listed(runs_dir)}")
    for path in (runs_dir / reference, Path(reference)):
        if path.name == LATEST and path.parent.is_dir() and not path.is_dir():
            return _latest(path.parent)
        if is_run(path):
            return path
    for path in (runs_dir / reference, Path(reference)):
        if (path / GROUP).is_file():
            raise CheckpointError(
                f"{path}: is a group of runs; name one of them, as in {path / 'RUN'}, or take all "
                f"with dnnstack eval --ensemble {reference}; dnnstack runs --group {reference} "
                "lists them"
            )
    if Path(reference).is_file():
        raise CheckpointError(f"{reference}: is a file; name a checkpoint with --checkpoint")
    none = "" if list_runs(runs_dir) else f" and no other in {runs_dir}"
    listed = _listed(runs_dir, Path(reference).name)
    raise CheckpointError(f"{reference}: no such {what}{none}; {listed}")


def latest_run_of(name: str, runs_dir: Path) -> Path:
    """The run with the highest number whose config has this name.

    Raises CheckpointError if there is none.
    """
    found = newest_first(runs_dir, name)
    own = next((path for path in found if config_name(path) == name), None)
    if own is None:
        raise CheckpointError(
            f"{runs_dir}: no run of '{name}' to resume; start one without --resume, or name "
            f"another: --resume PATH; {_listed(runs_dir)}"
        )
    return own


def run_of_checkpoint(path: Path) -> Path | None:
    """The run folder that contains a checkpoint file; None if the file was moved elsewhere.

    It is relative to the working directory if the path is.
    """
    folder = path.resolve().parent
    if folder.name != FOLDER or not is_run(folder.parent):
        return None
    return folder.parent if path.is_absolute() else Path(os.path.relpath(folder.parent))


def is_in_own_folder(path: Path) -> bool:
    """Whether a checkpoint file is in the folder of its run, or of the compression that made it.

    Anybody may have written one that is elsewhere: none of the paths that it names are used.
    """
    compressed = path.resolve().parent / COMPRESSION
    return run_of_checkpoint(path) is not None or compressed.is_file()


def is_run(path: Path) -> bool:
    """Whether a folder is the folder of a run."""
    return (path / CONFIG).is_file()


def list_runs(runs_dir: Path) -> list[str]:
    """The names of all run folders, in alphabetical order. Raises CheckpointError."""
    try:
        entries = sorted(runs_dir.iterdir())
    except FileNotFoundError:
        return []
    except NotADirectoryError:
        raise CheckpointError(f"{runs_dir}: is a file, not a folder of runs") from None
    except OSError as error:
        raise CheckpointError(f"{runs_dir}: cannot be read: {error.strerror}") from None
    return [path.name for path in entries if not path.is_symlink() and is_run(path)]


def _listed(runs_dir: Path, wanted: str = "") -> str:
    """The existing runs and groups of them, and the one that was probably meant."""
    try:
        names = list_runs(runs_dir)
    except CheckpointError as error:
        return str(error)
    groups = [path.parent.name for path in sorted(runs_dir.glob(f"*/{GROUP}"))]
    if not names:
        if groups:
            return (
                f"there are groups of runs alone: {listed(groups, _LISTED)}; name a run of one, as "
                f"in {groups[0]}/RUN, or all with dnnstack eval --ensemble {groups[0]}; dnnstack "
                f"runs --group {groups[0]} lists them"
            )
        return "dnnstack train --config digits.yaml creates one"
    found = f"{suggested(wanted, [*names, *groups], 'runs')} in {runs_dir}: "
    found += listed(names, _LISTED)
    return f"{found}; groups of runs: {listed(groups, _LISTED)}" if groups else found


def newest_first(runs_dir: Path, name: str) -> list[Path]:
    """Folders called ``name`` or ``name-N``, the highest number first. Raises CheckpointError."""
    with explaining(runs_dir, "cannot be read"):
        return [path for _, path in sorted(numbered(runs_dir, name), reverse=True)]


def numbered(runs_dir: Path, name: str) -> list[tuple[int, Path]]:
    """Folders called ``name`` (1) or ``name-N`` (N). Raises OSError."""
    pattern = re.compile(re.escape(name) + r"(?:-([1-9]\d*))?")
    found = []
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        for path in runs_dir.iterdir():
            match = pattern.fullmatch(path.name)
            if match and path.is_dir():
                found.append((int(match[1] or 1), path))
    return found


def config_name(path: Path) -> str | None:
    """``name`` of the folder's config, read without a YAML parser: we write one key per line.

    None if it has none or is no config. Raises CheckpointError if that cannot be found out.
    """
    try:
        text = read_regular(path / CONFIG, LONGEST_CONFIG).decode()
    except OSError as error:
        if error.errno in NO_RECORD:
            return None
        raise CheckpointError(f"{path / CONFIG}: cannot be read: {error.strerror}") from None
    except ValueError:
        return None
    match = re.search(r"^name: *(['\"]?)(\S+?)\1 *$", text, re.MULTILINE)
    return match[2] if match else None


def _latest(runs_dir: Path) -> Path:
    pointer = runs_dir / LATEST
    try:
        linked = pointer.is_symlink()
        name = os.readlink(pointer) if linked else read_regular(pointer, 1000).decode().strip()
    except (OSError, ValueError) as error:
        if not list_runs(runs_dir):
            raise CheckpointError(f"{runs_dir}: no run yet; {_listed(runs_dir)}") from None
        fault = "is missing" if isinstance(error, FileNotFoundError) else "cannot be read"
        raise CheckpointError(
            f"{pointer}: {fault}, so the latest run is not known; name one with --run; "
            f"{_listed(runs_dir)}"
        ) from None
    path = runs_dir / name
    if not is_run(path):
        raise CheckpointError(
            f"{pointer} names '{name}', which does not exist any more; name a run with --run; "
            f"{_listed(runs_dir)}"
        )
    return path


def _point_latest(runs_dir: Path, name: str) -> None:
    """Make ``latest`` a symlink to the folder, or a file with its name if links do not work."""
    pointer = runs_dir / LATEST
    temporary = temporary_name(pointer)
    try:
        os.symlink(name, temporary, target_is_directory=True)
    except OSError:
        atomic_write(pointer, f"{name}\n".encode())
        return
    try:
        os.replace(temporary, pointer)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    sync_folder(runs_dir)


def _locked(path: Path, notice: Callable[[str], None]) -> Lock | None:
    try:
        return lock(path / LOCK)
    except LockedError as error:
        holder = error.holder or "another process"
        raise LockedError(
            f"{path}: is in use: {holder} trains in this run; wait for it to end, or stop it",
            error.holder,
        ) from None
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise
        # Some network file systems have no locks; train anyway.
        notice(f"{path}: cannot be locked ({error.strerror}); do not train twice in this folder")
        return None

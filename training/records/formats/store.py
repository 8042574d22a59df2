"""The folder of a run's checkpoints: ``step-N.safetensors`` with its manifest ``step-N.json``.

The manifest is the commit point: it is written last and deleted first. A file without one is an
interrupted save. If a step is saved again, the manifest first says that either of the two files is
valid. Order is by step, never by clock. Each checkpoint names the best one so far, so that no
further file must be kept consistent.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import threading
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import field
from pathlib import Path

from ....common.errors import CheckpointError, Warned
from ....common.files import atomic_write, make_folder, sha256_file, sync_folder
from ....common.records import dataclass
from .calibration import SUFFIX as CALIBRATION
from .checkpoint import (
    Arrays,
    Checkpoint,
    DamagedCheckpointError,
    FileMark,
    encode,
    manifest_text,
    read_checkpoint,
    read_manifest,
)
from .provenance import Provenance
from .record import FileMarks, Tell, file_marks, settled
from .state import State
from .weight_file import read_weight_file

_LOG = logging.getLogger("dnnstack.training")
FOLDER = "checkpoints"
_FILE = re.compile(rf"step-(\d+)\.(json|safetensors|{re.escape(CALIBRATION)})")


def checkpoint_steps(folder: Path) -> list[int]:
    """The steps that have a manifest in the folder, highest first. Raises CheckpointError."""
    return _steps(folder, "json")


def unfinished_steps(folder: Path) -> list[int]:
    """The steps whose save was interrupted, highest first. Raises CheckpointError."""
    committed = set(checkpoint_steps(folder))
    return [step for step in _steps(folder, "safetensors") if step not in committed]


def tensors_path(folder: Path, step: int) -> Path:
    """``<folder>/step-<step>.safetensors``."""
    return folder / tensors_name(step)


def tensors_name(step: int) -> str:
    """``step-<step>.safetensors``."""
    return f"step-{step}.safetensors"


def newest_checkpoint(
    folder: Path, notice: Tell = lambda text: None, is_live: Callable[[], bool] = lambda: False
) -> Checkpoint:
    """The newest valid checkpoint; ``notice`` is warned of newer ones that are damaged.

    The folder may change while it is read, by a training of which ``is_live`` says whether it is
    running. Raises CheckpointError if there is none.
    """
    return settled(lambda: _marks(folder), lambda tell: _newest(folder, tell, is_live), notice)


def _newest(folder: Path, notice: Tell, is_live: Callable[[], bool]) -> Checkpoint:
    committed = set(checkpoint_steps(folder))
    faults: list[str] = []
    live = False
    for step in sorted({*committed, *_steps(folder, "safetensors")}, reverse=True):
        path = tensors_path(folder, step)
        if step not in committed:
            live = live or is_live()
            fault = "a training is saving it right now" if live else "its save was interrupted"
            told = f"{path}: has no manifest: {fault}"
            # What a training is saving right now is not lost.
            faults.append(told if live else Warned(told))
            continue
        try:
            checkpoint = read_checkpoint(path)
        except CheckpointError as error:
            faults.append(Warned(str(error)))
            continue
        for each in faults:
            notice(type(each)(f"{each}; using {path.name} of step {step} instead"))
        return checkpoint
    if live:
        raise CheckpointError(
            f"{folder.parent}: its training is saving a checkpoint right now, and has no other "
            "that can be used; try again in a moment"
        )
    if faults:
        raise CheckpointError(
            f"{folder}: no checkpoint can be used:",
            *(f"  {fault}" for fault in faults),
            "name one to verify it separately: eval --checkpoint FILE, train --resume FILE; or "
            "start a new run",
        )
    raise CheckpointError(
        f"{folder.parent}: has no checkpoint yet; start a new run, or name another"
    )


def best_checkpoint(
    folder: Path, notice: Tell = lambda text: None, is_live: Callable[[], bool] = lambda: False
) -> Checkpoint:
    """The best checkpoint on validation, as named by the newest; without validation the newest.

    ``notice`` and ``is_live`` as for ``newest_checkpoint``. Raises CheckpointError if there is
    none, or if the best is damaged.
    """
    return settled(lambda: _marks(folder), lambda tell: _best(folder, tell, is_live), notice)


def _best(folder: Path, notice: Tell, is_live: Callable[[], bool]) -> Checkpoint:
    newest = _newest(folder, notice, is_live)
    best = newest.state.best
    if best is None or best.step == newest.state.step:
        return newest
    path = tensors_path(folder, best.step)
    if not path.exists():
        notice(f"{path}: the best checkpoint was not kept; using the newest, {newest.path.name}")
        return newest
    return named_checkpoint(path)


def named_checkpoint(path: Path) -> Checkpoint:
    """Read a checkpoint named by the user. Raises CheckpointError that suggests alternatives."""
    try:
        return read_checkpoint(path, named=True)
    except DamagedCheckpointError as error:
        if _has_weights_alone(path):
            raise CheckpointError(
                f"{path}: has weights alone, without the config of their network; name the run "
                "or the checkpoint that they are of, or begin a training with them: "
                f"--init-from {path}"
            ) from None
        steps = checkpoint_steps(path.parent)
        others = [name for s in steps if (name := tensors_path(path.parent, s).name) != path.name]
        listed = f"use another one in {path.parent}: {', '.join(others)}"
        advice = listed if others else "copy it again from where it was made, or train again"
        raise CheckpointError(f"{error}; {advice}") from None


def _has_weights_alone(path: Path) -> bool:
    """Whether this is a whole safetensors file without what makes a checkpoint of it."""
    if path.with_suffix(".json").exists():
        return False
    try:
        stored = read_weight_file(path)
    except CheckpointError:
        return False
    return bool(stored.arrays) and "dnnstack" not in stored.metadata


def write_checkpoint(
    folder: Path,
    arrays: Arrays,
    state: State,
    provenance: Provenance,
    keep: int,
    keep_best: bool = True,
    snapshots: Collection[int] = (),
) -> str:
    """Save, commit, then delete checkpoints that are not kept; returns the .safetensors path.

    The ``keep`` newest up to this step, those of the steps ``snapshots`` and, if requested, the
    best are kept. Those of later steps, from before a rollback or with damage, are deleted. Raises
    OSError; the checkpoints of other steps are then untouched.
    """
    begin = time.perf_counter()
    # No Paths, whose parts Python 3.12 would never free.
    path = os.path.join(folder, tensors_name(state.step))
    manifest = os.path.join(folder, f"step-{state.step}.json")
    pieces = encode(arrays, state, provenance)
    if os.path.exists(manifest):
        _announce(Path(manifest), Path(path), pieces, state.step)
    atomic_write(path, pieces)
    atomic_write(manifest, manifest_text(state.step, path, pieces))
    best = {state.best.step} if keep_best and state.best is not None else set()
    _prune(folder, state.step, keep, {*best, *(s for s in snapshots if s < state.step)})
    size, seconds = sum(map(len, pieces)) / 1e6, time.perf_counter() - begin
    _LOG.info("%s: saved, %.1f MB in %.2f s", path, size, seconds)
    return path


def _announce(manifest: Path, path: Path, pieces: list[bytes | memoryview], step: int) -> None:
    """Keep the old file of a step valid until the new one replaces it."""
    try:
        # After an interrupted replacement, either of two files may be there.
        held = FileMark(path.stat().st_size, sha256_file(path))
        counts = held in read_manifest(manifest)
    except (CheckpointError, FileNotFoundError):
        counts = False
    if counts:
        atomic_write(manifest, manifest_text(step, path, pieces, held))
    else:
        # Nothing is lost; but the next file would be reported as damaged, not as unfinished.
        os.unlink(manifest)


def _prune(folder: Path, newest: int, keep: int, others: set[int]) -> None:
    """Delete other checkpoints and the files of killed writers, as far as possible.

    Raises OSError if a power loss could bring one of a later step back.
    """
    try:
        held = {kind: _steps(folder, kind) for kind in ("json", "safetensors", CALIBRATION)}
    except CheckpointError:
        return
    earlier = [step for step in held["json"] if step <= newest]
    wanted = {newest, *earlier[:keep], *others}
    for kind, steps in held.items():
        for step in steps:
            if step not in wanted:
                try:
                    os.unlink(os.path.join(folder, f"step-{step}.{kind}"))
                except OSError:
                    # Its tensors stay as long as its manifest.
                    wanted.add(step)
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):
            if re.fullmatch(r"\.step-.*\.tmp", name):
                with contextlib.suppress(OSError):
                    os.unlink(os.path.join(folder, name))
    if any(step > newest for step in held["json"]):
        sync_folder(folder)


def _marks(folder: Path) -> dict[str, FileMarks]:
    """What changes if a file of the folder is replaced, added or deleted."""
    try:
        names = [name for name in os.listdir(folder) if _FILE.fullmatch(name)]
    except OSError:
        return {}
    return {name: file_marks(folder / name) for name in names}


def _steps(folder: Path, kind: str) -> list[int]:
    try:
        found = [_FILE.fullmatch(name) for name in os.listdir(folder)]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise CheckpointError(f"{folder}: cannot be read: {error.strerror}") from None
    return sorted((int(m[1]) for m in found if m and m[2] == kind), reverse=True)


@dataclass(frozen=True)
class Place:
    """The folder that a checkpoint goes to; ``fault``: why that is not the run's own."""

    folder: Path
    fault: str = ""


Save = tuple[Arrays, State]


@dataclass
class CheckpointWriter:
    """Writes checkpoints in one background thread, one after the other.

    All of them say ``provenance``. ``place`` says before each write where it goes, by default to
    ``folder``. ``save`` takes arrays that nobody changes any more; ``before``
    runs in the thread before each write, and an OSError of it is one of the write. An error of the
    thread is raised, as CheckpointError, by the next call of ``check``, ``save`` or ``wait``; what
    waited for that write is not written.
    """

    folder: Path
    provenance: Provenance
    keep: int
    keep_best: bool = True
    snapshots: Collection[int] = ()
    before: Callable[[], None] = lambda: None
    place: Callable[[], Place] | None = None
    _thread: threading.Thread | None = field(default=None, init=False)
    _error: Exception | None = field(default=None, init=False)
    _waiting: list[Save] = field(default_factory=list, init=False)
    _turn: threading.Condition = field(default_factory=threading.Condition, init=False)

    def save(self, *saves: Save) -> None:
        """Write these, in rising order of steps, after those that are being written.

        They wait without holding up the caller. Only if others that must be kept wait already is
        the caller held up, until the write before those has ended.
        """
        newest, best = saves[-1][1], None
        with self._turn:
            if self.keep == 1:
                # The newest would delete all others at once.
                best = newest.best.step if self.keep_best and newest.best is not None else None
                lasting = {best, *self.snapshots}
                self._waiting = [each for each in self._waiting if each[1].step in lasting]
            self._turn.wait_for(lambda: all(state.step == best for _, state in self._waiting))
            self.check()
            self._waiting += saves
            if self._thread is None:
                thread = threading.Thread(target=self._work, name="checkpoint", daemon=True)
                thread.start()
                self._thread = thread

    def check(self) -> None:
        """Raise the error of a write that has failed; does not wait."""
        error, self._error = self._error, None
        if isinstance(error, OSError):
            raise CheckpointError(
                f"{self.folder}: cannot save a checkpoint: {error.strerror or error}; free some "
                "space or choose another folder with run.dir, then resume"
            ) from error
        if error is not None:
            raise error

    def wait(self) -> None:
        """Wait for all outstanding writes; raise their error."""
        with self._turn:
            self._turn.wait_for(lambda: self._thread is None)
        self.check()

    def _work(self) -> None:
        """Write what waits, until nothing does."""
        while True:
            with self._turn:
                saves, self._waiting = self._waiting, []
                self._turn.notify_all()
                if not saves:
                    self._thread = None
                    return
            self._write(saves)

    def _write(self, saves: Sequence[Save]) -> None:
        try:
            self.before()
            place = self.place() if self.place is not None else Place(self.folder)
            make_folder(place.folder)
            kept = (self.keep, self.keep_best, self.snapshots)
            for arrays, state in saves:
                write_checkpoint(place.folder, arrays, state, self.provenance, *kept)
            if place.fault:
                run = place.folder.parent
                raise CheckpointError(
                    f"{place.fault}; step {saves[-1][1].step} is saved in {run}; continue with "
                    f"--resume {run}"
                )
        except Exception as error:
            with self._turn:
                self._error, self._waiting = error, []

"""The folder of a run's checkpoints: ``step-N.safetensors`` with its manifest ``step-N.json``.

The manifest is the commit point: it is written last and deleted first. What has none is a save that
was cut short. Order is by step, never by clock. Each checkpoint names the best one so far, so no
further file has to agree with them.
"""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Callable
from pathlib import Path

from ..common.errors import CheckpointError
from ..common.files import atomic_write
from .checkpoint import Arrays, Checkpoint, State, encode, manifest_text, read_checkpoint

FOLDER = "checkpoints"
_FILE = re.compile(r"step-(\d+)\.(safetensors|json)")


def _say_nothing(text: str) -> None:
    """For those who do not listen."""


def checkpoint_steps(folder: Path) -> list[int]:
    """The steps that have a manifest in the folder, highest first."""
    return _steps(folder, "json")


def tensors_path(folder: Path, step: int) -> Path:
    """``<folder>/step-<step>.safetensors``."""
    return folder / f"step-{step}.safetensors"


def newest_checkpoint(folder: Path, notice: Callable[[str], None] = _say_nothing) -> Checkpoint:
    """The checkpoint of the highest step that verifies; ``notice`` hears of newer ones that do not.

    Raises CheckpointError where there is none.
    """
    committed = set(checkpoint_steps(folder))
    faults: list[str] = []
    for step in sorted({*committed, *_steps(folder, "safetensors")}, reverse=True):
        path = tensors_path(folder, step)
        if step not in committed:
            faults.append(f"{path}: has no manifest, its save was cut short")
            continue
        try:
            checkpoint = read_checkpoint(path)
        except CheckpointError as error:
            faults.append(str(error))
            continue
        for fault in faults:
            notice(f"{fault}; taking {path.name} of step {step} instead")
        return checkpoint
    if faults:
        listed = "\n".join(f"  {fault}" for fault in faults)
        raise CheckpointError(f"{folder}: no checkpoint can be used:\n{listed}\nstart a new run")
    raise CheckpointError(
        f"{folder.parent}: has no checkpoint yet; start a new run, or name another with --run"
    )


def best_checkpoint(folder: Path, notice: Callable[[str], None] = _say_nothing) -> Checkpoint:
    """The best checkpoint on validation, by the word of the newest; without validation the newest.

    Raises CheckpointError where there is none or the best is damaged.
    """
    newest = newest_checkpoint(folder, notice)
    best = newest.state.best
    if best is None or best.step == newest.state.step:
        return newest
    path = tensors_path(folder, best.step)
    if not path.exists():
        notice(f"{path}: the best checkpoint was not kept; taking the newest, {newest.path.name}")
        return newest
    return read_checkpoint(path)


def write_checkpoint(
    folder: Path, arrays: Arrays, state: State, keep: int, keep_best: bool = True
) -> Path:
    """Save, commit, then delete what is no longer wanted; returns the .safetensors path.

    Kept are the ``keep`` newest up to this step and, if asked, the best; those of later steps, left
    over from a history that was given up or damaged, go. Raises OSError; the checkpoints of other
    steps are then untouched.
    """
    path = tensors_path(folder, state.step)
    pieces = encode(arrays, state)
    manifest = manifest_text(state.step, path, pieces)
    # The old manifest of the same step would call the new file damaged, not unfinished.
    with contextlib.suppress(FileNotFoundError):
        path.with_suffix(".json").unlink()
    atomic_write(path, pieces)
    atomic_write(path.with_suffix(".json"), manifest)
    wanted = [step for step in checkpoint_steps(folder) if step <= state.step][:keep]
    if keep_best and state.best is not None:
        wanted.append(state.best.step)
    _prune(folder, {state.step, *wanted})
    return path


def _prune(folder: Path, wanted: set[int]) -> None:
    """Delete other checkpoints and what killed writers left; a file that resists stays."""
    for kind in ("json", "safetensors"):
        for step in _steps(folder, kind):
            if step not in wanted:
                with contextlib.suppress(OSError):
                    (folder / f"step-{step}.{kind}").unlink()
    for path in folder.glob(".step-*.tmp"):
        with contextlib.suppress(OSError):
            path.unlink()


def _steps(folder: Path, kind: str) -> list[int]:
    try:
        found = [_FILE.fullmatch(path.name) for path in folder.iterdir()]
    except OSError:
        return []
    return sorted((int(m[1]) for m in found if m and m[2] == kind), reverse=True)


class CheckpointWriter:
    """Writes checkpoints in one background thread, at most one at a time.

    ``save`` takes arrays that nobody changes any more. An error of the thread is raised, as
    CheckpointError, by the next call of ``check``, ``save`` or ``close``.
    """

    def __init__(self, folder: Path, keep: int, keep_best: bool = True) -> None:
        self._folder = folder
        self._keep = keep
        self._keep_best = keep_best
        self._thread: threading.Thread | None = None
        self._error: Exception | None = None

    def save(self, arrays: Arrays, state: State) -> None:
        """Start to write; waits for the one before."""
        self.wait()
        self._thread = threading.Thread(
            target=self._write, args=(arrays, state), name="checkpoint", daemon=True
        )
        self._thread.start()

    def check(self) -> None:
        """Raise the error of a write that has failed; does not wait."""
        error, self._error = self._error, None
        if isinstance(error, OSError):
            raise CheckpointError(
                f"{self._folder}: cannot save a checkpoint: {error.strerror or error}; free some "
                "room or choose another folder with run.dir, then resume"
            ) from error
        if error is not None:
            raise error

    def wait(self) -> None:
        """Wait for the outstanding write; raise its error."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        self.check()

    def _write(self, arrays: Arrays, state: State) -> None:
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            write_checkpoint(self._folder, arrays, state, self._keep, self._keep_best)
        except Exception as error:
            self._error = error

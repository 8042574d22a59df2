"""What is in the folders of runs, as far as it must be the same every time."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from dnnstack.training.records.formats.checkpoint import read_checkpoint
from dnnstack.training.records.formats.store import checkpoint_steps, tensors_path

# Of lines of the log: times, and where the folder of the case is.
_UNTIMED = {
    "seconds",
    "images_per_second",
    "time",
    "training_seconds",
    "validation_seconds",
    "saving_seconds",
    "path",
}

Content = dict[str, str]


def folder_content(folder: Path) -> Content:
    """Relative path -> digest of the content, or where a link leads."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_symlink():
            found[name] = f"-> {path.readlink()}"
        elif path.is_file():
            found[name] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def checkpoint_content(path: Path) -> str:
    """What must be equal to the last bit: the state and every array."""
    state = read_checkpoint(path).state.to_json()
    told = hashlib.sha256(json.dumps(state, sort_keys=True).encode()).hexdigest()
    return f"{told} {arrays_content(path)}"


def arrays_content(path: Path) -> str:
    """The arrays alone."""
    digest = hashlib.sha256()
    for name, array in sorted(read_checkpoint(path).arrays.items()):
        digest.update(name.encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def checkpoints(run: Path) -> dict[int, str]:
    """Step -> content of each committed checkpoint; raises CheckpointError for a damaged one."""
    folder = run / "checkpoints"
    return {
        step: checkpoint_content(tensors_path(folder, step)) for step in checkpoint_steps(folder)
    }


def records(run: Path) -> list[Any]:
    """The log without times and the lines of processes, and ``metrics.csv``."""
    lines = map(json.loads, (run / "log.jsonl").read_text("utf-8").splitlines())
    log = [
        {key: value for key, value in line.items() if key not in _UNTIMED}
        for line in lines
        if line["event"] not in ("start", "resume", "end")
    ]
    return [log, (run / "metrics.csv").read_text("utf-8")]

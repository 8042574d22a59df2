"""Where first weights come from: a run, a checkpoint, a file of weights, a hub of models."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ...common.errors import CheckpointError
from ...common.locks import is_locked
from ...common.records import dataclass
from ...configs import RunConfig
from ...datasets import Downloads
from ...graph.graph import Shape
from ..preprocessing import Preprocessing
from ..records.formats.checkpoint import Checkpoint
from ..records.formats.dnnz import is_compressed, read_compressed
from ..records.formats.provenance import Provenance
from ..records.formats.store import FOLDER, best_checkpoint, named_checkpoint
from ..records.formats.weight_file import read_weight_file
from ..records.runs import LOCK, find_run, is_run
from ..signals import interruptible
from .hub import from_hub, names_model, pretrained_beside

Layout = Literal["dnnstack", "pytorch"]
_OURS = "dnnstack"
"""The key of the metadata that only checkpoints have."""


@dataclass(frozen=True)
class Offered:
    """An array of a source; ``values`` reads its numbers as float32, None for other types.

    ``dtype``: what the file stores, which is I8 for what it computes with as 8-bit integers.
    """

    shape: Shape
    dtype: str
    values: Callable[[], NDArray[np.float32]] | None

    @property
    def is_scaled(self) -> bool:
        """Whether the file has integers, and ``values`` what they stand for."""
        return self.dtype == "I8" and self.values is not None


@dataclass(frozen=True)
class Source:
    """The arrays of a file by the names that they have there, sorted.

    ``trained``: what a checkpoint says of its training; None for other files. ``preprocessing``:
    of the pixels that it was trained on, if that is known; ``side``: of these pictures.
    """

    path: Path
    sha256: str
    layout: Layout
    arrays: Mapping[str, Offered]
    trained: Provenance | None = None
    preprocessing: Preprocessing | None = None
    side: int | None = None


def open_source(
    reference: str,
    runs_dir: Path,
    notice: Callable[[str], None],
    downloads: Downloads | None = None,
    stop_requested: Callable[[], bool] = lambda: False,
) -> Source:
    """The file of this path, else the best checkpoint of the run of this name or path.

    Of a run without validation, it is the newest checkpoint. Checkpoints are verified, and of
    averaged weights the averages are offered. A name such as ``org/model`` that is neither is that
    of a hub's model, which ``downloads`` may get; without them no hub is asked. Raises
    CheckpointError; and Interrupted while that is downloaded.
    """
    path = Path(os.path.expanduser(reference))
    try:
        is_folder = stat.S_ISDIR(path.stat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        is_folder = True
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be looked up: {error.strerror}") from None
    if is_folder:
        # In the folder of the runs, a name that is not there is a slip of the pen.
        here = path.exists() or (runs_dir / path).exists()
        here = here or path.parent.absolute() == runs_dir.absolute()
        if here or downloads is None or not names_model(reference):
            return _of_checkpoint(_of_run(reference, runs_dir, notice))
        download = partial(from_hub, reference, downloads)
        path = interruptible(download, stop_requested)
    if is_compressed(path):
        return _of_checkpoint(read_compressed(path).checkpoint)
    stored = read_weight_file(path)
    if _OURS in stored.metadata:
        return _of_checkpoint(named_checkpoint(path))
    arrays = {
        name: Offered(each.shape, each.dtype, each.values if each.is_readable else None)
        for name, each in sorted(stored.arrays.items())
    }
    known = pretrained_beside(path)
    if known is None:
        return Source(path, stored.sha256, "pytorch", arrays)
    seen = known.preprocessing, known.input_size[-1]
    return Source(path, stored.sha256, "pytorch", arrays, None, *seen)


def anchored(config: RunConfig, folder: Path) -> RunConfig:
    """The config with whole paths of ``init_from`` and a teacher that are below ``folder``.

    Anything else counts from the current folder, or is the name of a run.
    """
    wanted, teacher = config.init_from, getattr(config.loss, "teacher", "")
    changed: dict[str, Any] = {}
    if wanted is not None:
        source = _whole(wanted.source, folder)
        changed["init_from"] = wanted.model_copy(update={"source": source})
    if teacher:
        changed["loss"] = config.loss.model_copy(update={"teacher": _whole(teacher, folder)})
    return config.model_copy(update=changed)


def _whole(source: str, folder: Path) -> str:
    """The whole path of a file or run below the folder; else as it is."""
    path = folder / os.path.expanduser(source)
    with suppress(OSError):
        if path.is_file() or is_run(path):
            return str(path.absolute())
    return source


def _of_run(reference: str, runs_dir: Path, notice: Callable[[str], None]) -> Checkpoint:
    folder = find_run(reference, runs_dir, "run" if Path(reference).is_dir() else "file or run")
    return best_checkpoint(folder / FOLDER, notice, lambda: is_locked(folder / LOCK))


def _of_checkpoint(found: Checkpoint) -> Source:
    arrays = {
        name: Offered(array.shape, _stored_type(found, name), partial(np.asarray, array))
        for name, array in sorted(found.learned().items())
    }
    trained = found.provenance
    seen = trained.preprocessing, trained.input_shape[-1]
    return Source(found.path, found.sha256, "dnnstack", arrays, trained, *seen)


def _stored_type(found: Checkpoint, name: str) -> str:
    layer, _, array = name.rpartition(".")
    return "I8" if array == "weight" and layer in found.quantization else "F32"

"""Trained weights as a file for other programs: float32 in safetensors, with PyTorch's names."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from ...common.errors import CheckpointError, explaining
from ...common.files import atomic_write, remove_abandoned
from ..records.formats.pytorch_names import their_names
from .source import Source


def save_weights(source: Source, path: Path) -> dict[str, str]:
    """Write all floating-point arrays of a source; returns their names in the file by its own.

    A file that is there is replaced at once or not at all, unless it is the source itself. Raises
    CheckpointError.
    """
    from safetensors.numpy import save

    if _is_same(path, source.path):
        raise CheckpointError(f"{path}: is the file that the weights come from; name another")
    values = {name: each.values for name, each in source.arrays.items() if each.values is not None}
    names = their_names(values) if source.layout == "dnnstack" else {name: name for name in values}
    arrays = {names[name]: np.ascontiguousarray(read()) for name, read in values.items()}
    with explaining(path, "cannot be written", "name a file in another folder"):
        # What transformers and timm look for.
        atomic_write(path, save(arrays, {"format": "pt"}))
        remove_abandoned(path.parent)
    return names


def _is_same(path: Path, other: Path) -> bool:
    try:
        return os.path.samefile(path, other)
    except OSError:
        # One of them is not there; a training may have deleted its checkpoint meanwhile.
        return False

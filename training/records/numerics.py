"""What the bits of a run depend on besides its config: versions, and how this one computes."""

from __future__ import annotations

import platform
from collections.abc import Iterator, Mapping
from importlib.metadata import version

import numpy as np

from ...backends.base import Backend
from ...common.errors import Warned
from .formats.checkpoint import Checkpoint

_CHANGES = {
    1: "SGD's update with weight decay on a CPU and a GPU, PReLU's derivative at 0, and batch norm "
    "on a CPU, of at most 6,000 values or without AVX-512"
}
"""What gives other bits than before, by the ``numerics`` of the checkpoints since then."""
NUMERICS = max(_CHANGES)
"""Recorded in every checkpoint; 0.1.0 recorded none, which counts as 0."""


def versions_of(backend: Backend) -> dict[str, str]:
    """Versions of dnnstack, of what prepares its data, and of all that the backend names."""
    import PIL

    own = {"dnnstack": version("dnnstack"), "Python": platform.python_version()}
    return {**own, "NumPy": np.__version__, "Pillow": PIL.__version__, **backend.versions()}


def changes_since(checkpoint: Checkpoint, now: Mapping[str, str]) -> Iterator[str]:
    """What to say where a run goes on with other versions; not of the backend's own libraries."""
    then, path = checkpoint.provenance, checkpoint.path
    names = [name for name in ("dnnstack", "Python", "NumPy", "Pillow") if name in then.versions]
    other = [name for name in names if then.versions[name] != now[name]]
    if pairs := ", ".join(f"{name} {then.versions[name]} -> {now[name]}" for name in other):
        yield f"the run goes on with other versions: {pairs}"
    if then.numerics != NUMERICS:
        changed = [text for number, text in _CHANGES.items() if number > then.numerics]
        what = "; ".join(changed) or "it is newer than this one"
        yield Warned(
            f"{path}: comes from a version of dnnstack that rounds otherwise ({what}); the run "
            "goes on, but may not end in the bits that it would have had there"
        )

"""What the bits of a run depend on besides its config: versions, and how this version computes."""

from __future__ import annotations

import platform
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from typing import TYPE_CHECKING

from ...common.errors import Warned

if TYPE_CHECKING:
    from ...backends.base import Backend
    from .checkpoint import Checkpoint

_CHANGES = {
    1: "SGD's update with weight decay on a CPU and a GPU, PReLU's derivative at 0, and batch norm "
    "on processors without AVX-512",
}
"""What has given other bits than before, by the ``numerics`` of the checkpoints that came after."""

NUMERICS = max(_CHANGES)
"""That of this version. 0.1.0 recorded none, which counts as 0."""


def versions_of(backend: Backend) -> dict[str, str]:
    """Versions of this program, of what prepares its data, and of all that the backend names."""
    import numpy as np
    import PIL

    own = {"dnnstack": version("dnnstack"), "Python": platform.python_version()}
    return {**own, "NumPy": np.__version__, "Pillow": PIL.__version__, **backend.versions()}


def changes_since(checkpoint: Checkpoint, now: Mapping[str, str]) -> Iterator[str]:
    """What to say where a run goes on with another version of the program or of its packages.

    Not of the backend's libraries, of which the choices that were made for them say enough.
    """
    before = checkpoint.provenance
    names = [name for name in ("dnnstack", "Python", "NumPy", "Pillow") if name in before.versions]
    other = [name for name in names if before.versions[name] != now[name]]
    if other:
        pairs = ", ".join(f"{name} {before.versions[name]} -> {now[name]}" for name in other)
        yield f"the run goes on with other versions: {pairs}"
    changed = [text for number, text in _CHANGES.items() if number > before.numerics]
    if before.numerics != NUMERICS:
        what = "; ".join(changed) or "it is newer than this one"
        yield Warned(
            f"{checkpoint.path}: comes from a version of dnnstack that rounds otherwise ({what}); "
            "the run goes on, but may not end in the bits that it would have had there"
        )

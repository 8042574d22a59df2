"""A folder of checkpoints whose one array holds their step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from dnnstack.training.records.formats.provenance import Provenance
from dnnstack.training.records.formats.state import Best, State
from dnnstack.training.records.formats.store import newest_checkpoint, write_checkpoint

Save = Callable[..., Path]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "run" / "checkpoints"
    made.mkdir(parents=True)
    return made


@pytest.fixture
def save(folder: Path, state: State, provenance: Provenance) -> Save:
    """Save a step whose one array holds the step; ``best`` is the best step so far."""

    def call(step: int, best: int | None = None, keep: int = 100) -> Path:
        value = Best(best, 0.5, 0.1) if best is not None else None
        arrays = {"a": np.full(3, step, np.float32)}
        changed = replace(state, step=step, best=value)
        return Path(write_checkpoint(folder, arrays, changed, provenance, keep))

    return call


def taken(folder: Path) -> tuple[int, list[str]]:
    notices: list[str] = []
    found = newest_checkpoint(folder, notices.append)
    assert found.arrays["a"][0] == found.state.step
    return found.state.step, notices

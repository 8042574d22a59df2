"""Faults in a compression: what it is tried on, and what may come of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from dnnstack.training.compressed.file import read_compressed
from numpy.typing import NDArray

from .conftest import Ended

if TYPE_CHECKING:
    from .scenes import Scene, Stage

STAGES = "small.yaml"
TEXT = """\
stages:
  - prune: {keep: {"*.weight": 0.3}}
    train: {max_steps: 2}
  - share: {bits: {"*.weight": 2}}
"""
COMPRESS = ("compress", "net", "--config", STAGES, "--threads", "1")
PLACE = "runs/net-compressed"
# Of the faults that a training meets too, those that are tried where not all are.
SOME = ("ENOSPC", "killed-before")


def arrays(work: Path) -> list[dict[str, NDArray[np.float32]]]:
    """The networks of the files that are there, each verified."""
    found = sorted((work / "runs").glob("net-compressed*/net.dnnz"))
    return [read_compressed(path).checkpoint.arrays for path in found]


def check_compression(
    stage: Stage,
    scene: Scene,
    root: Path,
    ended: Ended,
    whole: Path,
    note: Callable[[str], None],
) -> None:
    """After a fault: what was compressed is untouched, and it can be brought to the same end."""
    if ended.status != 0:
        note("resumed")
        begun = (root / "work" / PLACE / "compress.json").exists()
        second = stage.run(scene, root, again=begun)
        assert second.status == 0, second.err
    (want,), found = arrays(whole / "work"), arrays(root / "work")
    assert found
    for each in found:
        assert set(each) == set(want)
        for name, array in want.items():
            assert each[name].tobytes() == array.tobytes(), name

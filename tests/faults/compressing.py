"""Faults in a compression: what it is tried on, and what may come of them."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from dnnstack.training.records.formats.dnnz import read_compressed
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
FEW = "few.yaml"
FEW_TEXT = """\
stages:
  - filters: {conv2d_1: 0.5}
    train: {max_steps: 2}
"""
LEAVE_OUT = ("compress", "net", "--config", FEW, "--threads", "1")
COMPRESS = ("compress", "net", "--config", STAGES, "--threads", "1")
INTEGERS = "int8.yaml"
QUANTIZE = ("compress", "net", "--config", INTEGERS, "--threads", "1")
MEASURE = ("compress", "--sensitivity", "net", "--threads", "1")
REPORT = ("report", "net-compressed")
PICTURES = ("weights.png", "mask.png", "sensitivity.png")
PLACE = "runs/net-compressed"
_DECODED = re.compile(r"read and decoded .*")
# Of the faults that a training meets too, those that are tried where not all are.
SOME = ("ENOSPC", "EIO-reading", "killed-before")


def check_report(ended: Ended, root: Path, whole: Path, want: Ended) -> None:
    """After a fault: nothing is missing without a word; every picture is whole or as it was."""
    for name in PICTURES:
        picture = f"work/{PLACE}/{name}"
        assert (root / picture).read_bytes() == (whole / picture).read_bytes(), name
    if ended.status == 0 and not ended.err:
        assert _DECODED.sub("", ended.out) == _DECODED.sub("", want.out)


def arrays(work: Path) -> list[dict[str, NDArray[np.float32]]]:
    """The networks of the files that are there, each verified."""
    found = sorted((work / "runs").glob("net-compressed*/net.dnnz"))
    return [read_compressed(path).checkpoint.arrays for path in found]


def check_compression(
    stage: Stage, scene: Scene, root: Path, ended: Ended, whole: Path, note: Callable[[str], None]
) -> None:
    """After a fault: what was compressed is untouched, and it can be brought to the same end."""
    if ended.status != 0:
        note("resumed")
        begun = (root / "work" / PLACE / "compress.json").exists()
        second = stage.run(scene, root, again=begun)
        assert second.status == 0, second.err
        # What a stage begins with is removed once it has ended, also by the second call.
        assert not list((root / "work" / PLACE).glob("*.safetensors"))
    (want,), found = arrays(whole / "work"), arrays(root / "work")
    assert found
    for each in found:
        assert set(each) == set(want)
        for name, array in want.items():
            assert each[name].tobytes() == array.tobytes(), name

"""What a killed command has begun to write is deleted by the next one that writes there."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import pytest
from dnnstack.cli.main import main
from PIL import Image

from ..support.mistakes import EVAL, PREDICT, TINY, TRAIN

STAGES = '{stages: [{prune: {keep: {"*.weight": 0.5}}, train: {max_steps: 2}}]}'
COMPRESS = "compress --config stages.yaml --device numpy"
ONE = "--set train.epochs=1 --device numpy -q"
# Of a process that has ended, whatever their number is today.
ABANDONED = f".x.{10**30}.0123abcd.tmp"


@pytest.fixture
def here(here):
    """With pictures and further configs."""
    Path("stages.yaml").write_text(STAGES, encoding="utf-8")
    search = "search: {trials: 1, keys: {optimizer.lr: [0.1]}}\n"
    Path("search.yaml").write_text(TINY + search, encoding="utf-8")
    for number in range(4):
        folder = Path("pictures") / "ab"[number % 2]
        folder.mkdir(parents=True, exist_ok=True)
        Image.new("L", (28, 28), 60 * number).save(folder / f"{number}.png")
    return here


@pytest.mark.parametrize(
    ("folder", "lines"),
    [
        ("plots", [f"{EVAL} --plots-dir plots"]),
        ("runs/tiny/eval-test", [EVAL]),
        ("seen", [f"{PREDICT} pictures/a/0.png --save-input seen"]),
        ("", ["weights runs/tiny --save w.safetensors"]),
        ("", ["new pictures --output made.yaml"]),
        ("", ["data --config tiny.yaml"]),
        ("runs/tiny", ["compress tiny --sensitivity --device numpy"]),
        ("runs/tiny-compressed", [COMPRESS, f"{COMPRESS} --resume runs/tiny-compressed"]),
        ("pictures", [COMPRESS, "report tiny-compressed --plots-dir pictures"]),
        ("runs", [f"{TRAIN} -q"]),
        ("plots", [f"sweep --config search.yaml {ONE}", "report search-sweep --plots-dir plots"]),
        *(
            (f"runs/{name}", [f"{line} {ONE}", f"{line} {ONE} --resume"])
            for name, line in (
                ("search-sweep", "sweep --config search.yaml"),
                ("tiny-folds", "train --config tiny.yaml --folds 2"),
            )
        ),
    ],
)
def test_what_a_killed_command_has_left(folder, lines, here):
    *before, line = lines
    for each in before:
        assert main(shlex.split(each)) == 0
    left = here / folder / ABANDONED
    left.parent.mkdir(exist_ok=True, parents=True)
    left.touch()
    os.utime(left, (0, 0))
    assert main(shlex.split(line)) == 0
    assert not left.exists()
    assert [path for path in here.rglob("*.tmp") if path.is_file()] == []

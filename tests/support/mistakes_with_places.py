"""What the schema lets through, and data or network do not; it has its place all the same."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image

from .mistakes import TINY, TRAIN, Mistake, changed, config, stored_mistakes

FEW = TINY.replace("480", "60").replace("64", "0")


def twin_folders(patch: pytest.MonkeyPatch) -> None:
    """Two folders whose names look the same."""
    for name in ("\u00e9", "e\u0301"):
        (Path("pics") / name).mkdir(parents=True)
        Image.new("L", (8, 8)).save(f"pics/{name}/0.png")


PLACES = [
    *stored_mistakes("mistakes_with_places.txt"),
    Mistake(
        "two class folders of one name in two forms",
        f"{TRAIN} --set 'data.dataset={{image_folder: {{train: pics, size: 8}}}}'",
        (
            "pics: the folders 'e\\u0301' and '\\xe9' have one name in two forms of Unicode",
            "move the pictures of one into the other",
        ),
        prepare=twin_folders,
    ),
    Mistake(
        "a group that no parameter matches",
        "summary --config tiny.yaml",
        ("tiny.yaml:12:42: optimizer.groups.0: no parameter matches conv2d_9.*; the network has ",),
        prepare=changed("momentum: 0.9}", "groups: [{parameters: conv2d_9.*, lr_factor: 2}]}"),
    ),
    Mistake(
        "a mean for each of three channels of grey pictures",
        f"{TRAIN} --set data.normalize.mean=[0.1,0.2,0.3]",
        ("data.normalize.mean: has 3 numbers", "have 1 channel; give one number\n"),
    ),
    Mistake(
        "a file that is text, and no config",
        "train --config tiny.yaml --threads 1 --device numpy",
        ("tiny.yaml:1:1: expected a mapping with the keys name, ", "(got 'hello')\n"),
        prepare=config("hello\n"),
    ),
    Mistake(
        "batch norm over one value per channel",
        "train --config tiny.yaml --device numpy --set data.batch_size=1",
        (
            "tiny.yaml:10:5: layer 'batch_norm_1' (batch_norm): a batch of 1 gives one value",
            "raise data.batch_size",
        ),
        prepare=changed("  - flatten\n", "  - flatten\n  - batch_norm\n"),
    ),
]

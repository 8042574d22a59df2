"""What the schema lets through, and data or network do not; it has its place all the same."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image

from .mistakes import TINY, TRAIN, Mistake, changed, config
from .mistakes_in_configs import BLOCK

FEW = TINY.replace("480", "60").replace("64", "0")


def twin_folders(patch: pytest.MonkeyPatch) -> None:
    """Two folders whose names look the same."""
    for name in ("\u00e9", "e\u0301"):
        (Path("pics") / name).mkdir(parents=True)
        Image.new("L", (8, 8)).save(f"pics/{name}/0.png")


PLACES = [
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
        "a batch larger than the training set",
        TRAIN,
        (
            "tiny.yaml:3:15: data.batch_size: 500 is more than the 416 training samples",
            "set it to 416",
        ),
        prepare=changed("batch_size: 32", "batch_size: 500"),
    ),
    Mistake(
        "the same by an override",
        f"{TRAIN} --set data.batch_size=500",
        ("--set data.batch_size=500: data.batch_size: 500 is more than the 416 training samples",),
    ),
    Mistake(
        "a key that is not written has the place of its section",
        TRAIN,
        ("tiny.yaml:2:3: data.batch_size: 64 is more than the 60 training samples",),
        prepare=config(
            TINY.replace("480", "60").replace("  batch_size: 32\n", "").replace("64", "0")
        ),
    ),
    Mistake(
        "a group that no parameter matches",
        "summary --config tiny.yaml",
        ("tiny.yaml:12:42: optimizer.groups.0: no parameter matches conv2d_9.*; the network has ",),
        prepare=changed("momentum: 0.9}", "groups: [{parameters: conv2d_9.*, lr_factor: 2}]}"),
    ),
    Mistake(
        "a cutout larger than the pictures",
        "data --config tiny.yaml",
        ("tiny.yaml:3:21: data.augment.0.cutout: size 99 is larger than a side",),
        prepare=changed("batch_size: 32", "augment: [cutout: {size: 99}]"),
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
        "an option of a layer from the command line",
        "train --config tiny.yaml --device numpy --set layers.conv2d_1.kernel_size=29",
        (
            "tiny.yaml:6:5 (changed by --set layers.conv2d_1.kernel_size=29): layer 1 'conv2d_1' "
            "(conv2d): a window of 29x29 does not fit",
        ),
    ),
    Mistake(
        "an option of a layer inside a block from the command line",
        "summary --config tiny.yaml --set layers.residual_1.body.conv2d_1.kernel_size=99",
        (
            "tiny.yaml:6:27 (in block 'basic', used at tiny.yaml:9:5; changed by "
            "--set layers.residual_1.body.conv2d_1.kernel_size=99): layer 1.body.1 "
            "'residual_1.conv2d_1' (conv2d): a window of 99x99 does not fit",
        ),
        prepare=config(BLOCK),
    ),
    Mistake(
        "whitened filters of an inner layer",
        "summary --config tiny.yaml",
        (
            "tiny.yaml:6:27 (in block 'basic', used at tiny.yaml:9:5): layer "
            "'residual_1.conv2d_1': whiten needs patches of the pictures",
            "give this layer another kernel_initializer",
        ),
        prepare=config(
            BLOCK.replace("kernel_size: 1", "kernel_size: 1, kernel_initializer: whiten").replace(
                "filters: 4", "filters: 1"
            )
        ),
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

"""What the schema lets through, and data or network do not; it has its place all the same."""

from __future__ import annotations

from mistakes import TINY, TRAIN, Mistake, changed, config

FEW = TINY.replace("480", "60").replace("64", "0")

PLACES = [
    Mistake(
        "a batch larger than the training set",
        TRAIN,
        ("tiny.yaml:3:15: data.batch_size: 500 is more than the 416 samples", "set it to 416"),
        prepare=changed("batch_size: 32", "batch_size: 500"),
    ),
    Mistake(
        "the same by an override",
        f"{TRAIN} --set data.batch_size=500",
        ("--set data.batch_size=500: data.batch_size: 500 is more than the 416 samples",),
    ),
    Mistake(
        "a key that is not written has the place of its section",
        TRAIN,
        ("tiny.yaml:2:3: data.batch_size: 64 is more than the 60 samples",),
        prepare=config(
            TINY.replace("480", "60").replace("  batch_size: 32\n", "").replace("64", "0")
        ),
    ),
    Mistake(
        "a group that no parameter fits",
        "summary --config tiny.yaml",
        ("tiny.yaml:12:42: optimizer.groups.0: no parameter fits conv2d_9.*; the network has ",),
        prepare=changed("momentum: 0.9}", "groups: [{parameters: conv2d_9.*, lr_factor: 2}]}"),
    ),
    Mistake(
        "a cutout larger than the pictures",
        "data --config tiny.yaml",
        ("tiny.yaml:3:21: data.augment.0.cutout: size 99 is more than a side",),
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
]

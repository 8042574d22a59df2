"""Normalisation by what is measured on the pictures to train on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from dnnstack.datasets import describe, load, split_validation
from dnnstack.reports.training_text import beginning
from dnnstack.training import normalization
from dnnstack.training.augmentation import mean_pixel
from dnnstack.training.listener import Listener, Started
from dnnstack.training.normalization import preprocessing
from dnnstack.training.preprocessing import Preprocessing
from dnnstack.training.records.resume import open_resume
from dnnstack.training.trainer import train

from ..support.augmented import MEASURED, OPTIONS
from ..support.trainings import end_of


def test_what_was_measured_is_told(tiny, reference):
    told: list[Started] = []

    class Told(Listener):
        def started(self, started: Started) -> None:
            told.append(started)

    config = tiny(MEASURED, "run.device=numpy", "train.max_steps=2")
    first = train(config, reference, Path("unused"), listener=Told())
    longer = tiny(MEASURED, "run.device=numpy", "train.max_steps=3")
    source = open_resume(first.run, lambda text: None)
    train(longer, reference, Path("unused"), resume=source, listener=Told())
    data = load("strokes", "train", root=Path("unused"), options=OPTIONS)
    pixels = data.images[split_validation(200, 32, config.seed)[0]] / 255.0
    line = f"normalize   mean {pixels.mean():.4g}, deviation {pixels.std():.4g} (measured)"
    assert [line in beginning(each) for each in told] == [True, True]
    train(tiny("run.device=numpy"), reference, Path("unused"), listener=Told())
    assert told[2].measured is None
    assert not [each for each in beginning(told[2]) if each.startswith("normalize")]


def test_a_resume_takes_the_measured_values_of_the_checkpoint(tiny, reference, monkeypatch):
    from dnnstack.training import trainer

    config = tiny(MEASURED, "run.device=numpy", "train.max_steps=3")
    first = train(config, reference, Path("unused"))

    def never(*arguments: object) -> None:
        raise AssertionError("measured again")

    monkeypatch.setattr(trainer, "preprocessing_of", never)
    longer = tiny(MEASURED, "run.device=numpy", "train.max_steps=5")
    source = open_resume(first.run, lambda text: None)
    second = train(longer, reference, Path("unused"), resume=source)
    assert end_of(first).provenance.preprocessing == end_of(second).provenance.preprocessing


def test_a_channel_that_never_changes_is_only_shifted(tiny):
    info = describe("strokes", options=OPTIONS)
    scaling = preprocessing(tiny(MEASURED), info, ((0.5,), (0.0,)))
    assert scaling == Preprocessing.standardize((0.5,), (1.0,))
    # For what asks for shapes alone.
    assert preprocessing(tiny(MEASURED), info) == Preprocessing((1 / 255,), (-0.0,))


def test_the_mean_pixel():
    scaling = Preprocessing.standardize((0.4914, 0.0, 2.0), (0.25, 1.0, 0.3))
    assert mean_pixel(scaling) == (125, 0, 255)
    near = scaling(np.array(mean_pixel(scaling), np.uint8)[:, None, None])
    assert abs(near[0, 0, 0]) < 0.5 / 255 / 0.25 + 1e-6


def test_pictures_that_nobody_can_change_are_measured_once(monkeypatch):
    counted: list[int] = []
    measured = normalization._measured

    def counting(images: np.ndarray, index: np.ndarray) -> normalization.Found:
        counted.append(len(index))
        return measured(images, index)

    monkeypatch.setattr(normalization, "_measured", counting)
    find = normalization.mean_and_deviation
    images = np.random.default_rng(1).integers(0, 256, (9, 1, 2, 2), np.uint8)
    index = np.arange(6, dtype=np.int32)
    before = find(images, index)
    images[0] = 255 - images[0]
    assert find(images, index) == measured(images, index) != before
    assert counted == [6, 6]
    images.setflags(write=False)
    assert find(images, index) == find(images, index.copy()) == measured(images, index)
    assert counted == [6, 6, 6]
    # Others of them, and other pictures.
    index[0] = 7
    assert find(images, index) == measured(images, index)
    other = images[::-1]
    assert find(other, index) == measured(other, index)
    assert counted == [6] * 5

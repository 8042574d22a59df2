"""The depth of integer pixels goes with the network: checkpoints, evaluation, answers, resumes."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dnnstack.backends.base import Backend
from dnnstack.common.errors import CheckpointError, ConfigError
from dnnstack.common.typed_json import from_json
from dnnstack.configs import RunConfig, parse_config
from dnnstack.datasets import ImageSet
from dnnstack.datasets.integer_pixels import Depth
from dnnstack.many.ensemble import check_members
from dnnstack.training.assemble import load_data
from dnnstack.training.inference.forward import Forward
from dnnstack.training.inference.parts import load_part
from dnnstack.training.inference.predict import Prediction, predict, preparation
from dnnstack.training.inference.trained import Trained, find_trained
from dnnstack.training.records.formats.dnnz import read_compressed, save_compressed
from dnnstack.training.records.formats.provenance import Provenance
from dnnstack.training.records.resume import open_resume
from dnnstack.training.trainer import train
from PIL import Image

from ..support.stored import beside

CONFIG = "\n" + beside(__file__, "pixel_depth_config.yaml")


def paint(root: Path, most: int, begin: int = 0) -> None:
    for part, count in (("pics", 4), ("tests", 1)):
        for label, name in enumerate("ab"):
            for number in range(begin, begin + count):
                pixels = np.full((4, 4), 60 + number + label, np.uint16)
                pixels[label] = most
                path = root / part / name / f"{number}.png"
                path.parent.mkdir(parents=True, exist_ok=True)
                Image.fromarray(pixels).save(path)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    paint(tmp_path, 900)
    return tmp_path


def parsed(root: Path, *overrides: str) -> RunConfig:
    return parse_config(CONFIG, "own.yaml", [f"run.dir={root / 'runs'}", *overrides])


@pytest.fixture
def learn(root: Path, reference: Backend) -> Callable[..., Trained]:
    def run(*overrides: str) -> Trained:
        train(parsed(root, *overrides), reference, root)
        return find_trained(None, None, root / "runs", lambda text: None)

    return run


def test_a_checkpoint_keeps_the_depth_and_all_go_by_it(
    root: Path, learn: Callable[..., Trained], reference: Backend
) -> None:
    trained = learn()
    assert trained.checkpoint.provenance.pixel_bits == 10
    # Further pictures do not change what a trained network sees.
    paint(root, 65535, 4)
    pixels = np.full((4, 4), 500, np.uint16)
    Image.fromarray(pixels).save(root / "tests" / "a" / "0.png")
    for part, most in (("train", 900 >> 2), ("test", 255)):
        images, _ = load_part(trained, part, root)
        assert images.bits == 10
        assert images.images.max() == most
    assert images.images[0].max() == 125
    (answer,) = predict(Forward(trained, reference), [root / "tests" / "a" / "0.png"], 1)
    assert isinstance(answer, Prediction)
    np.testing.assert_array_equal(answer.picture.image, images.images[0])
    assert answer.preprocessing == ("10_to_8_bits",)


def test_only_a_depth_that_says_something_is_written(
    root: Path, learn: Callable[..., Trained]
) -> None:
    assert learn().checkpoint.provenance.to_json()["pixel_bits"] == 10
    paint(root, 65535)
    whole = learn("name=whole").checkpoint.provenance
    assert whole.pixel_bits == 16
    assert "pixel_bits" not in whole.to_json()


@pytest.mark.parametrize("bits", [8, 12, "10", None])
def test_what_a_checkpoint_may_say(root: Path, learn: Callable[..., Trained], bits: Any) -> None:
    said = {**learn().checkpoint.provenance.to_json(), "pixel_bits": bits}
    text = json.dumps(said)
    if bits in (8, 12):
        assert from_json(text, Provenance).pixel_bits == bits
    else:
        with pytest.raises(ValueError, match="pixel_bits"):
            from_json(text, Provenance)


def test_a_checkpoint_of_before_has_16_bits(root: Path, learn: Callable[..., Trained]) -> None:
    trained = learn()
    before = dataclasses.replace(trained.checkpoint.provenance, pixel_bits=16)
    checkpoint = dataclasses.replace(trained.checkpoint, provenance=before)
    old = dataclasses.replace(trained, checkpoint=checkpoint)
    images, _ = load_part(old, "train", root)
    assert (images.bits, images.images.max()) == (16, 900 >> 8)
    assert preparation(old, None, False).bits == 16


def test_networks_of_another_depth_are_not_compared(
    root: Path, learn: Callable[..., Trained]
) -> None:
    first = learn()
    check_members((first, learn("name=same")))
    paint(root, 65535)
    with pytest.raises(CheckpointError, match=r"other.*takes 16 bits of integer .* takes 10; net"):
        check_members((first, learn("name=other")))


def test_no_key_of_a_config_sets_a_depth(root: Path) -> None:
    with pytest.raises(ConfigError, match="bits: unknown key"):
        parsed(root, "data.dataset.image_folder.bits=12")
    # Other data sets have none.
    few = parsed(root, "data.dataset={strokes: {train_count: 20}}")
    assert load_data(few, "train", root, None, 10).bits is None


def test_a_compressed_network_keeps_the_depth(
    root: Path, tmp_path: Path, learn: Callable[..., Trained]
) -> None:
    for most, bits in ((900, 10), (65535, 16)):
        paint(root, most)
        trained = learn(f"name=n{most}")
        save_compressed(trained.checkpoint, tmp_path / "a.dnnz")
        found = read_compressed(tmp_path / "a.dnnz").checkpoint.provenance
        assert found.pixel_bits == bits


@pytest.mark.parametrize("bits", [8, 10, 16])
def test_a_resumed_training_goes_on_with_the_depth(
    root: Path, reference: Backend, bits: Depth
) -> None:
    """Also where it began before there was a choice: with 16 bits."""
    seen: list[int | None] = []

    def load(*given: Any) -> ImageSet:
        images = load_data(*given) if seen else load_data(*given[:-1], bits)
        seen.append(images.bits)
        return images

    for epochs in (1, 2):
        runs = root / "runs" / "own"
        resume = open_resume(runs, lambda text: None) if seen else None
        config = parsed(root, "name=own", f"train.epochs={epochs}")
        train(config, reference, root, resume=resume, load=load, same_samples=True)
        found = find_trained("own", None, root / "runs", lambda text: None)
        assert found.checkpoint.provenance.pixel_bits == bits
        paint(root, 4000, 4)
    assert seen == [bits, bits]

"""Networks without weights that depend on the size of a picture take pictures of any size."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import dnnstack
import numpy as np
import pytest
from dnnstack.arguments import picture_size
from dnnstack.common.errors import DatasetError, DnnstackError, ShapeError
from dnnstack.common.random import key
from dnnstack.datasets import describe, load
from dnnstack.datasets.pictures import read_picture, resized
from dnnstack.datasets.registry import DATASETS
from dnnstack.datasets.strokes import Strokes
from dnnstack.ensemble import Ensemble
from dnnstack.many.ensemble import Mixture
from dnnstack.training.inference.forward import Forward
from dnnstack.training.inference.parts import load_part
from dnnstack.training.inference.trained import Trained, find_trained
from dnnstack.training.trainer import train
from PIL import Image

from ...support.stored import tuples

# The mean of what each pixel gives: as many of each pixel change nothing.
POOLED = "[{conv2d: {filters: 4, kernel_size: 1}}, relu, global_avg_pool2d, {dense: {units: 10}}]"


class Large(Strokes):
    """The test digits, each pixel four times."""

    known = replace(Strokes.known, name="large", shape=(1, 56, 56))

    def draw(self, stream, count):
        images, labels = super().draw(key(0, "strokes", "test"), count)
        return images.repeat(2, 2).repeat(2, 3), labels


@pytest.fixture
def trained(tiny, reference, tmp_path):
    return trained_with(tiny, reference, tmp_path, f"layers={POOLED}")


def trained_with(tiny, backend, folder: Path, *overrides: str) -> Trained:
    train(tiny("run.device=numpy", "train.max_steps=3", *overrides), backend, folder)
    return find_trained(None, None, folder / "runs", lambda text: None)


def test_it_answers_alike_at_every_size(trained, backend, tmp_path):
    images, _ = load_part(trained, "test", tmp_path)
    forward = Forward(trained, backend)
    expected = forward(images.images)
    wide = forward(images.images.repeat(3, 3))
    both = forward(images.images.repeat(2, 2).repeat(2, 3))
    np.testing.assert_allclose(wide, expected, rtol=1e-4)
    np.testing.assert_allclose(both, expected, rtol=1e-4)
    # No more than three stay compiled: the first goes.
    forward(images.images[:, :, :14])
    shapes = [picture[1:] for _, _, picture in forward._batches]
    assert shapes == [(28, 84), (56, 56), (14, 28)]
    np.testing.assert_allclose(forward(images.images), expected, rtol=1e-6)
    forward.close()


@pytest.mark.parametrize(("layers", "size", "message"), tuples(__file__, "fixed"))
def test_the_layer_that_fixes_the_size_is_named(tiny, reference, tmp_path, layers, size, message):
    found = trained_with(tiny, reference, tmp_path, f"layers={layers}")
    assert found.at_size(None) is found.at_size((28, 28)) is found
    with pytest.raises(ShapeError, match=message):
        found.at_size(size)
    with pytest.raises(ShapeError, match=message):
        load_part(found, "test", tmp_path, size=size)


def test_a_larger_data_set_is_evaluated_as_it_is(trained, backend, tmp_path, monkeypatch):
    monkeypatch.setitem(DATASETS, "large", Large(test_count=20))
    monkeypatch.setitem(DATASETS, "classes", Large(test_count=20))
    said: list[str] = []
    with dnnstack.Classifier(trained, backend, said.append) as model:
        expected, found = model.evaluate(), model.evaluate(dataset="large")
        assert said == ["pictures are 1x56x56; in training they were 1x28x28"]
        np.testing.assert_array_equal(found.confusion, expected.confusion)
        assert found.loss == pytest.approx(expected.loss, rel=1e-4)
        assert (expected.to_json()["size"], found.to_json()["size"]) == ([28, 28], [56, 56])
        small = model.evaluate(dataset="large", size=28)
        assert (small.size, small.count) == ((28, 28), 20)


def test_one_of_another_size_needs_a_network_that_takes_it(tiny, reference, tmp_path, monkeypatch):
    monkeypatch.setitem(DATASETS, "large", Large())
    found = trained_with(tiny, reference, tmp_path)
    with pytest.raises(ShapeError, match=r"cannot take pictures of 1x56x56: layer 'dense_1'"):
        load_part(found, "test", tmp_path, "large")
    with dnnstack.Classifier(found, reference) as model:
        assert model.evaluate(dataset="large", size="28").size == (28, 28)


def test_an_ensemble_takes_it_as_its_networks_do(trained, tiny, reference, tmp_path):
    other = trained_with(
        tiny, reference, tmp_path, f"layers={POOLED}", "seed=8", "data.split_seed=7"
    )
    images, _ = load_part(trained, "test", tmp_path)
    large = images.images.repeat(2, 2).repeat(2, 3)
    mixture = Mixture.of(2, "probabilities")
    with Ensemble([trained, other], reference, mixture) as both:
        expected = both.predict_proba(images.images)
        np.testing.assert_allclose(both.predict_proba(large, size=56), expected, rtol=1e-4)
        found = both.evaluate(size=(20, 24))
        assert [each.size for each in (found, *found.members)] == [(20, 24)] * 3
        both.fit_weights(size=(20, 24))
        seen, _ = both.load_part("test", size="20x24")
        np.testing.assert_array_equal(seen.images, resized(images.images, (20, 24)))
        assert both.weights != (0.5, 0.5)


def test_files_are_scaled_to_the_size(trained, reference, tmp_path):
    path = tmp_path / "digit.png"
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (90, 70), np.uint8)).save(path)
    with dnnstack.Classifier(trained, reference) as model:
        picture = read_picture(path, (1, 20, 40)).image
        expected = model.predict_proba(picture, size=(20, 40))
        np.testing.assert_array_equal(model.predict_proba(path, size=(20, 40)), expected)
        (told,) = model.predict_each(path, size=(20, 40), top=10)
        np.testing.assert_array_equal(told.picture.image, picture)
        np.testing.assert_allclose(told.probabilities, expected[0], rtol=1e-6)
        assert model.predict(path, size=20).shape == (1,)
        assert model.evaluate(picture, [3], size=(20, 40)).size == (20, 40)
        with pytest.raises(DatasetError, match="pictures are 1x28x28, and an array of shape"):
            model.predict(picture)
        with pytest.raises(DatasetError, match="pictures are 1x20x20, and an array of shape"):
            model.predict(np.zeros((1, 1, 28, 28), np.uint8), size=20)


@pytest.mark.parametrize(
    ("given", "size"),
    [
        (None, None),
        (64, (64, 64)),
        ("64", (64, 64)),
        ("48x64", (48, 64)),
        ([1, 4096], (1, 4096)),
        ((np.int64(5), 6), (5, 6)),
    ],
)
def test_a_size_is_a_number_or_two(given, size):
    assert picture_size(given) == size


@pytest.mark.parametrize("size", [0, 4097, (), (28, 28, 1), "28x", (28, 2.0), (-1, 28), True])
def test_a_size_that_is_none(trained, reference, size):
    with (
        dnnstack.Classifier(trained, reference) as model,
        pytest.raises(DnnstackError, match=r"^size: expected pixels .* at most 4096 \(got "),
    ):
        model.predict(np.zeros((1, 28, 28), np.uint8), size=size)


def test_own_pictures_are_read_again_at_the_size(tiny, reference, tmp_path):
    rng = np.random.default_rng(1)
    for number in range(24):
        place = tmp_path / "own" / "ab"[number % 2]
        place.mkdir(parents=True, exist_ok=True)
        picture = rng.integers(0, 256, (12, 12, 3), np.uint8)
        Image.fromarray(picture).save(place / f"{number}.png")
    own = {"train": "own", "size": 6}
    given = f"data={{dataset: {{image_folder: {own}}}, batch_size: 4, root: {tmp_path}}}"
    layers = f"layers={POOLED}".replace("10", "2")
    found = trained_with(tiny, reference, tmp_path, given.replace("'", ""), layers)
    images, index = load_part(found, "train", tmp_path, size=(12, 12))
    plain, same = load_part(found, "train", tmp_path)
    there = load("image_folder", "train", root=tmp_path, options={**own, "size": (12, 12)})
    np.testing.assert_array_equal(images.images, there.images)
    np.testing.assert_array_equal(index, same)
    assert plain.images.shape[2:] == (6, 6)


def test_the_middle_of_pixels_is_scaled():
    images = np.zeros((2, 3, 4, 8), np.uint8)
    images[1, 2, :, 2:6] = 200
    found = resized(images, (4, 4))
    assert (found.shape, found.dtype) == ((2, 3, 4, 4), np.uint8)
    assert (found[0].max(), found[1, :2].max(), found[1, 2].min()) == (0, 0, 200)
    # All of it: the bright middle is a half of each row.
    whole = resized(images, (8, 8), True)[1, 2]
    assert (whole[:, 3:5].min(), whole[:, [0, 7]].max()) == (200, 0)


def test_sequences_are_of_any_length(tiny, reference, tmp_path):
    layers = "[{conv1d: {filters: 4, kernel_size: 1}}, global_avg_pool1d, {dense: {units: 3}}]"
    data = "data={dataset: {series: {train_count: 60, test_count: 20}}, batch_size: 12}"
    found = trained_with(tiny, reference, tmp_path, data, f"layers={layers}")
    with dnnstack.Classifier(found, reference) as model:
        info, images = describe("series"), load("series", "test", root=tmp_path).images[:5]
        values = images[:, :, 0] * info.scale[0] + info.shift[0]
        expected = model.predict_proba(values)
        assert expected.shape == (5, 3)
        np.testing.assert_allclose(model.predict_proba(values[1]), expected[1:2], rtol=1e-5)
        twice = model.predict_proba(values.repeat(2, 2), size=(1, 256))
        np.testing.assert_allclose(twice, expected, rtol=1e-4)
        shorter, _ = model.load_part("test", size=(1, 64))
        np.testing.assert_array_equal(shorter.images[:5], resized(images, (1, 64), True))
        with pytest.raises(DatasetError, match=r"a series, not on pictures; .* sequences of the"):
            list(model.predict_each("x.png"))
        with pytest.raises(DatasetError, match="trained on a series is evaluated on that itself"):
            model.evaluate(values, [0] * 5)
    broad = replace(found, network=found.at_size((1, 5)).network)
    assert broad.input_shape == (1, 1, 5)

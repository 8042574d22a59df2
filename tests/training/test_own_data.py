"""Training on folders of pictures, on colour pictures and on tables, through to the answer."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from dnnstack.common.errors import ConfigError, DatasetError
from dnnstack.configs import RunConfig, parse_config
from dnnstack.datasets import Downloads, load
from dnnstack.reports.data_report import report
from dnnstack.reports.data_samples import save_samples
from dnnstack.reports.data_text import as_text
from dnnstack.reports.summary import summarize
from dnnstack.training.assemble import describe_data
from dnnstack.training.inference.evaluate import evaluate
from dnnstack.training.inference.forward import Forward
from dnnstack.training.inference.parts import load_part
from dnnstack.training.inference.predict import Prediction, predict
from dnnstack.training.inference.trained import Trained, find_trained
from dnnstack.training.normalization import preprocessing
from dnnstack.training.records.formats.store import newest_checkpoint
from dnnstack.training.trainer import train
from PIL import Image

from ..support.stored import beside, cases

COLOURS = {"blue": (30, 60, 220), "green": (40, 200, 50), "red": (210, 40, 30)}
FOLDER = "\n" + beside(__file__, "own_data_folder.yaml")
TABLE = "\n" + beside(__file__, "own_data_table.yaml")


@pytest.fixture
def root(tmp_path):
    """Pictures in three colours and many sizes, with something bright at their left border."""
    draw = np.random.default_rng(1)
    for part, count in (("paint", 12), ("unseen", 4)):
        for name, colour in COLOURS.items():
            folder = tmp_path / "data" / part / name
            folder.mkdir(parents=True)
            for number in range(count):
                width, height = draw.integers(12, 60, 2).tolist()
                pixels = np.array(colour) + draw.integers(-30, 30, (height, width, 3))
                pixels[:, :4] = 255
                Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(folder / f"{number}.png")
    return tmp_path / "data"


def parsed(text: str, folder: Path, *overrides: str) -> RunConfig:
    return parse_config(text, "own.yaml", [f"run.dir={folder / 'runs'}", *overrides])


@pytest.fixture
def learn(tmp_path, reference):
    """Train a config and find what came of it."""

    def run(text: str, *overrides: str) -> Trained:
        config = parsed(text, tmp_path, *overrides)
        train(config, reference, tmp_path / "data", downloads=Downloads(offline=True))
        return find_trained(None, None, tmp_path / "runs", lambda text: None)

    return run


@pytest.mark.parametrize("fit", ["crop", "resize"])
def test_a_net_of_ones_own_pictures(root, learn, reference, fit):
    where = "data.dataset={image_folder: {train: paint, test: unseen, size: [6, 9], fit: %s}}"
    trained = learn(FOLDER, where % fit)
    assert trained.classes == ("blue", "green", "red")
    images, index = load_part(trained, "test", root)
    found = evaluate(trained, reference, images, index, "test")
    np.testing.assert_array_equal(found.confusion, 4 * np.eye(3))
    paths = [root / "unseen" / name / f"{n}.png" for name in COLOURS for n in range(4)]
    answers = list(predict(Forward(trained, reference), paths, 3))
    for label, (path, answer) in enumerate(zip(paths, answers, strict=True)):
        assert isinstance(answer, Prediction)
        assert answer.best.label == path.parent.name
        np.testing.assert_array_equal(answer.picture.image, images.images[label])
    # The bright border is what cropping cuts off of wide pictures.
    whole = next(predict(Forward(trained, reference), paths[:1], 1, raw=True))
    assert isinstance(whole, Prediction)
    same = np.array_equal(whole.picture.image, images.images[0])
    assert same == (fit == "resize")


def test_digits_from_a_folder_are_not_sought_on_a_page(tmp_path, learn, reference):
    draw = np.random.default_rng(2)
    for name in "0123456789":
        (tmp_path / "data" / "d" / name).mkdir(parents=True)
        for number in range(2):
            pixels = draw.integers(0, 256, (40, 40), np.uint8)
            Image.fromarray(pixels).save(tmp_path / "data" / "d" / name / f"{number}.png")
    options = "data.dataset={image_folder: {train: d, size: 28, mode: grey}}"
    layers = "layers=[flatten, {dense: {units: 10}}]"
    trained = learn(FOLDER, options, layers, "data.validation=0", "train.epochs=1")
    data = load("image_folder", "test", root=tmp_path / "data", options=_options(trained))
    paths = sorted((tmp_path / "data" / "d").glob("*/*.png"))
    seen = [next(predict(Forward(trained, reference), [path], 1)) for path in paths]
    images = {answer.picture.image.tobytes() for answer in seen if isinstance(answer, Prediction)}
    assert len(images) == 20
    assert {image.tobytes() for image in data.images} < images


def _options(trained: Trained) -> dict[str, object]:
    return {key: value for key, value in trained.config.data.dataset if key != "type"}


def test_validation_samples_of_its_own(root, learn, reference, tmp_path):
    Path(root / "unseen").rename(root / "checked")
    own = "data={dataset: {image_folder: {train: paint, validation: checked, size: [6, 9]}}, "
    own += "batch_size: 4, evaluation_batch_size: 5}"
    trained = learn(FOLDER, own, "checkpoint.best=true")
    parts, index = load_part(trained, "validation", root)
    assert [parts.sources[at] for at in index] == [
        str(root / "checked" / name / f"{n}.png") for name in COLOURS for n in range(4)
    ]
    found = evaluate(trained, reference, parts, index, "validation")
    np.testing.assert_array_equal(found.confusion, 4 * np.eye(3))
    best = trained.checkpoint.state.best
    assert best is not None
    assert best.accuracy == 1.0
    assert best.loss == pytest.approx(found.loss)
    assert [len(load_part(trained, part, root)[1]) for part in ("train", "test")] == [30, 6]
    # What is trained does not depend on what is validated on.
    plain = own.replace("validation: checked, ", "").replace("4,", "4, validation: 0,", 1)
    alone = learn(FOLDER, plain)
    last = newest_checkpoint(trained.path.parent).arrays
    for name, array in newest_checkpoint(alone.path.parent).arrays.items():
        np.testing.assert_array_equal(array, last[name])
    counts = report(parsed(FOLDER, tmp_path, own), root).counts
    assert {part: each.tolist() for part, each in counts.items()} == {
        "train": [10] * 3,
        "validation": [4] * 3,
        "test": [2] * 3,
    }
    (root / "checked").rename(root / "gone")
    with pytest.raises(DatasetError, match="validation: there is no folder"):
        load_part(trained, "validation", root)


def test_a_summary_needs_no_folder_where_the_classes_are_given(tmp_path):
    where = "data.dataset={image_folder: {train: nowhere, size: 224, classes: 1000}}"
    config = parsed(FOLDER, tmp_path, where, "layers.dense_1.units=1000")
    found = summarize(config, Path("own.yaml"))
    assert (found.input_shape, len(found.classes)) == ((3, 224, 224), 1000)
    assert found.parameters == 3 * 224 * 224 * 1000 + 1000
    with pytest.raises(DatasetError, match="there is no folder 'nowhere'"):
        summarize(parsed(FOLDER, tmp_path, "data.dataset.image_folder.train=nowhere"), Path("x"))


def test_a_table_is_learned(tmp_path, learn, reference):
    trained = learn(TABLE)
    images, index = load_part(trained, "test", tmp_path)
    found = evaluate(trained, reference, images, index, "test")
    np.testing.assert_array_equal(found.confusion, [[1, 0], [0, 3]])
    with pytest.raises(DatasetError, match="trained on a table, not on pictures"):
        next(predict(Forward(trained, reference), [tmp_path / "5.png"], 1))


def test_values_of_a_table_are_normalized_as_they_are_written(tmp_path):
    config = parsed(TABLE, tmp_path)
    info = describe_data(config)
    pixels = np.array([[0, 0], [0, 1], [1, 0], [1, 1]], np.float32)
    for normalize, wanted in (
        ("{mean: 0, std: 1}", [[0, -1], [0, 1], [1, -1], [1, 1]]),
        ("{mean: [0.5, 0], std: [0.5, 2]}", [[-1, -0.5], [-1, 0.5], [1, -0.5], [1, 0.5]]),
    ):
        scaling = preprocessing(parsed(TABLE, tmp_path, f"data.normalize={normalize}"), info)
        seen = pixels * np.float32(scaling.scale) + np.float32(scaling.shift)
        np.testing.assert_array_equal(seen, wanted)
    found = report(config, tmp_path)
    assert found.mean == pytest.approx((0.5, 0.0), abs=1e-15)
    assert found.std == pytest.approx((0.5, 1.0))
    assert found.seen == (pytest.approx((0.5, 0.0), abs=1e-6), pytest.approx((0.5, 1.0)))
    text = as_text(found)
    assert "files       none: the samples are written in the config" in text
    assert "\nvalue " in text
    save_samples(found, 1, tmp_path / "sheet.png")
    advice = text.rpartition("normalize: ")[2]
    again = report(parsed(TABLE, tmp_path, f"data.normalize={advice}"), tmp_path)
    assert again.seen == (pytest.approx((0.0, 0.0), abs=1e-6), pytest.approx((1.0, 1.0)))


@pytest.mark.parametrize(
    ("change", "message"), cases(__file__, "mistakes_in_a_table_are_shown_with_their_place")
)
def test_mistakes_in_a_table_are_shown_with_their_place(tmp_path, change, message):
    inputs = "" if "inputs" in change else "inputs: [[0, 0], [0, 1], [1, 0], [1, 1]], "
    with pytest.raises(ConfigError, match=message):
        parsed(TABLE, tmp_path, f"data.dataset={{table: {{{inputs}{change}}}}}")

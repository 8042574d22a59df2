"""What does not fit a network is refused in a sentence that says what would."""

from __future__ import annotations

from pathlib import Path

import dnnstack
import numpy as np
import pytest
from dnnstack.inputs import _as_batch
from PIL import Image

GREY = np.zeros((2, 28, 28), np.uint8)


@pytest.fixture(scope="module")
def model(run):
    return dnnstack.load(run, device="numpy")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (np.zeros((2, 30, 28), np.uint8), r"1x28x28, and an array of shape \(2, 30, 28\)"),
        (np.zeros((2, 3, 28, 28), np.uint8), "give PIL.Image.fromarray"),
        (np.zeros(784, np.uint8), r"shape \(784,\)"),
        (np.full((1, 28, 28), 0.25), r"^the array: has 0.25 as a pixel.*\(255 \* x\)"),
        (np.eye(28)[None], r"has 1 as a pixel"),
        (np.full((1, 28, 28), np.nan), r"^the array: has pixels that are infinite or not a number"),
        (
            np.full((1, 28, 28), 256),
            "^the array: has pixels from 256 to 256; they must be from 0 to 255",
        ),
        (np.full((1, 28, 28), -1), "from -1 to -1"),
        ([GREY[0], GREY], "picture 2: is an array of 2 pictures"),
        ([GREY[0], GREY[0].astype(np.float32) + 0.5], "picture 2: has 0.5 as a pixel"),
        ([[1, 2], [3]], "the rows of the lists have different lengths"),
        ("none.png", "none.png: no such file"),
        ("", "^the picture: its path is empty"),
        (["none.png"], "none.png: no such file"),
        (Path("."), "is not a file"),
        (Image.new("L", (40, 40), 255), "the picture: "),
        ([GREY[0], Image.new("L", (40, 40), 255)], "picture 2: "),
    ],
)
def test_pictures_that_do_not_fit(model, given, message):
    with pytest.raises(dnnstack.DnnstackError, match=message):
        model.predict(given)


@pytest.mark.parametrize("given", [None, 5j, {"a": 1}, [None], [object()], np.array(["a"])])
def test_what_is_no_picture(model, given):
    with pytest.raises(TypeError, match="expected an array of pixels, a picture of Pillow's"):
        model.predict(given)


def test_one_number_is_no_batch(model):
    with pytest.raises(
        dnnstack.DnnstackError,
        match="expected a picture of 1x28x28 numbers, got the single number 5",
    ):
        model.predict(5)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([1], "labels: there are 1, for 2 samples"),
        ([1, 10], "labels: a sample has the label 10, but there are 10 classes, counted from 0"),
        ([-1, 0], "a sample has the label -1"),
        (["1", "ten"], "labels: 'ten' is none of the classes"),
        ([0.5, 1.0], "labels: has numbers that are no classes"),
    ],
)
def test_labels_that_do_not_fit(model, labels, message):
    with pytest.raises(dnnstack.DnnstackError, match=message):
        model.evaluate(GREY, labels)


def test_an_evaluation_needs_pictures_and_labels(model):
    with pytest.raises(TypeError, match="without their pictures"):
        model.evaluate(labels=[1, 2])
    for given, meant in (("tset", "test"), ("validation", "validation"), ("5.png", "test")):
        with pytest.raises(TypeError, match=f"'{given}' was given without.*split='{meant}'"):
            model.evaluate(given)
    with pytest.raises(TypeError, match="without their labels"):
        model.evaluate(GREY)
    with pytest.raises(dnnstack.DnnstackError, match="no picture to evaluate on"):
        model.evaluate(GREY[:0], [])


def test_colours_in_both_orders_of_axes(tmp_path):
    """A network of three channels; an array of 3 x 3 x 3 has its channels first."""
    colours = np.random.default_rng(0).integers(0, 256, (8, 3, 3, 3), np.uint8)
    folder = tmp_path / "pictures"
    for number, picture in enumerate(colours):
        place = folder / "train" / "ab"[number % 2]
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(picture.transpose(1, 2, 0)).save(place / f"{number}.png")
    history = dnnstack.train(
        {
            "data": {
                "dataset": {"image_folder": {"train": str(folder / "train"), "size": 3}},
                "batch_size": 4,
                "validation": 0,
            },
            "layers": ["flatten", {"dense": {"units": 2}}, "softmax"],
            "optimizer": {"type": "sgd", "lr": 0.1},
            "train": {"max_steps": 2},
        },
        device="numpy",
        runs_dir=tmp_path / "runs",
    )
    model = dnnstack.load(history.run, device="numpy")
    expected = model.predict_proba(colours)
    np.testing.assert_allclose(model.predict_proba(colours[0]), expected[:1], rtol=1e-6)
    wide = [Image.fromarray(picture.transpose(1, 2, 0)) for picture in colours]
    np.testing.assert_array_equal(model.predict_proba(wide), expected)


@pytest.mark.parametrize("shape", [(3, 5, 4), (1, 5, 4), (3, 3, 3), (2, 1, 1), (3, 1, 5)])
def test_axes_in_either_order(shape):
    batch = np.arange(6 * np.prod(shape)).reshape(6, *shape)
    shown = {"N, C, H, W": batch, "N, H, W, C": batch.transpose(0, 2, 3, 1), "rows": batch}
    shown["rows"] = batch.reshape(6, -1)
    if shape[1] == 1:
        shown["N, C, L"] = batch[:, :, 0]
        np.testing.assert_array_equal(_as_batch(batch[1, :, 0], shape, ""), batch[1:2])
    if shape[0] == shape[1]:
        # Both orders look alike: the channels come first.
        del shown["N, H, W, C"]
    for name, given in shown.items():
        np.testing.assert_array_equal(_as_batch(given, shape, ""), batch, name)
    np.testing.assert_array_equal(_as_batch(batch[1], shape, ""), batch[1:2])
    if shape[0] != shape[1]:
        np.testing.assert_array_equal(_as_batch(shown["N, H, W, C"][1], shape, ""), batch[1:2])


def test_sequences_have_the_axes_that_were_trained_on():
    given = np.arange(18).reshape(2, 3, 3)
    np.testing.assert_array_equal(_as_batch(given, (3, 1, 3), "")[:, :, 0], given)
    turned = _as_batch(given, (3, 1, 3), "", "NLC")[:, :, 0]
    np.testing.assert_array_equal(turned, given.transpose(0, 2, 1))
    np.testing.assert_array_equal(_as_batch(np.arange(3), (3, 1, 1), "").ravel(), np.arange(3))


def test_the_numbers_of_a_table(tmp_path):
    """Values are those of the config's columns, and any others between them."""
    table = {"inputs": [[0, 0], [0, 2], [1, 0], [1, 2]], "targets": [0, 1, 1, 1]}
    history = dnnstack.train(
        {
            "data": {"dataset": {"table": table}, "batch_size": 4, "validation": 0},
            "layers": ["flatten", {"dense": {"units": 2}}, "softmax"],
            "optimizer": {"type": "sgd", "lr": 1.0},
            "train": {"epochs": 200},
        },
        device="numpy",
        runs_dir=tmp_path / "runs",
    )
    model = dnnstack.load(history.run, device="numpy")
    assert model.predict(table["inputs"]).tolist() == ["0", "1", "1", "1"]
    assert model.evaluate().accuracy == 1.0
    between = model.predict_proba([[0.0, 0.0], [0.0, 0.5], [0.0, 1.0], [0.0, 2.0]])[:, 1]
    assert (np.diff(between) > 0).all()
    with pytest.raises(dnnstack.DnnstackError, match="was trained on a table, not on pictures"):
        model.predict("some.png")
    with pytest.raises(dnnstack.DnnstackError, match=r"call evaluate\(\) without arguments"):
        model.evaluate([[0, 0]], [0])


@pytest.mark.parametrize(
    ("act", "error", "message"),
    [
        (lambda run: dnnstack.load(5), TypeError, "run: expected a str or a .*got int"),
        (lambda run: dnnstack.load(run, runs_dir=5), TypeError, "runs_dir: expected a str"),
        (lambda run: dnnstack.load(run, threads="a"), TypeError, "threads: expected a whole"),
        (
            lambda run: dnnstack.load(run, threads=0),
            dnnstack.DnnstackError,
            r"threads: expected a whole number of at least 1 \(got 0\)$",
        ),
        (
            lambda run: dnnstack.load(run, device="gpu"),
            dnnstack.DnnstackError,
            r"device: expected auto, cpu, numpy or cuda \(got 'gpu'; did you mean 'cuda'\?\)",
        ),
        (
            lambda run: dnnstack.compare(run, run, device="gpu"),
            dnnstack.DnnstackError,
            "device: expected auto",
        ),
        (lambda run: dnnstack.compare(run, 5), TypeError, "second: expected a str"),
        (
            lambda run: dnnstack.compare(run, run, tta="x"),
            dnnstack.DnnstackError,
            "tta: expected none, mirror",
        ),
        (
            lambda run: dnnstack.load_ensemble([run, run], combine="x"),
            dnnstack.DnnstackError,
            "combine: expected probabilities, logits or votes",
        ),
        (
            lambda run: dnnstack.load_ensemble([run, run], device="gpu"),
            dnnstack.DnnstackError,
            "device: expected auto",
        ),
        (lambda run: dnnstack.load_ensemble(5), TypeError, "runs: expected paths in a list"),
        (lambda run: dnnstack.load_ensemble([run, 5]), TypeError, "runs: expected a str"),
        (lambda run: dnnstack.load_plugin(5), TypeError, "path: expected a str"),
        (lambda run: dnnstack.train(5), TypeError, "config: expected a file, the name of a"),
        (lambda run: dnnstack.load_config(None), TypeError, "config: expected a file.*NoneType"),
        (lambda run: dnnstack.train("digits.yaml", data_dir=5), TypeError, "data_dir: expected"),
        (lambda run: dnnstack.train("digits.yaml", runs_dir=5), TypeError, "runs_dir: expected"),
        (lambda run: dnnstack.train("digits.yaml", resume=5), TypeError, "resume: expected"),
        (
            lambda run: dnnstack.train_group("digits.yaml", seeds="a"),
            TypeError,
            "seeds: expected a whole number, got str",
        ),
    ],
)
def test_arguments_that_do_not_fit(run, act, error, message):
    """Each is refused by its name, before anything is trained or computed."""
    with pytest.raises(error, match=f"^{message}"):
        act(run)


def test_averages_over_views_that_there_are_not(model):
    for given in ((), (GREY, [1, 2])):
        with pytest.raises(dnnstack.DnnstackError, match=r"^tta: expected none, mirror.*got 'x'"):
            model.evaluate(*given, tta="x")


def test_no_pictures_have_no_answers(model):
    assert model.predict([]).shape == (0,)
    assert model.predict_proba(()).shape == (0, 10)


def test_files_one_by_one(model, tmp_path):
    """A path is one file, whatever its type; what is no path is refused by its argument."""
    file = tmp_path / "a.png"
    Image.fromarray(np.eye(28, dtype=np.uint8) * 255).save(file)
    for given in (file, str(file), [file], [str(file)], iter([file])):
        (answer,) = model.predict_each(given, top=2, raw=True)
        assert isinstance(answer, dnnstack.Prediction)
        assert (answer.path, len(answer.top)) == (file, 2)
        assert len(repr(answer).splitlines()) == 1
        assert repr(answer).startswith(f"<Prediction of {str(file)!r}: {answer.best.label!r} with ")
    (missing,) = model.predict_each("none.png")
    assert isinstance(missing, dnnstack.DnnstackError)
    with pytest.raises(dnnstack.DnnstackError, match="top: expected a whole number of at least 1"):
        model.predict_each([file], top=0)
    with pytest.raises(TypeError, match=r"^paths: expected a str or a pathlib\.Path, got int$"):
        list(model.predict_each([5]))  # type: ignore[list-item]

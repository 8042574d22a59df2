"""``dnnstack.load``: arrays, Pillow's pictures and files in; one row for each of them out."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import dnnstack
import numpy as np
import pytest
from dnnstack.backends.select import open_backend
from dnnstack.common.errors import DatasetError, UsageError
from dnnstack.datasets import ImageSet
from dnnstack.exports.door import in_integers
from dnnstack.many.answers import answers
from dnnstack.training.inference.forward import Forward
from dnnstack.training.inference.trained import find_trained
from numpy.typing import NDArray
from PIL import Image


def _plain(run: Path, pictures: NDArray[np.uint8], device: str) -> NDArray[np.float32]:
    """The probabilities of the forward pass, one picture after the other."""
    trained = find_trained(str(run), None, run.parent, lambda text: None)
    graph = trained.network.infer_graph(1)
    backend = open_backend("numpy" if device == "numpy" else "cpu", 1)
    executable = trained.compile(backend, graph)
    rows = []
    for picture in pictures:
        executable.write(graph["x"], (picture / np.float32(255)).astype(np.float32)[None])
        executable.run("infer")
        rows.append(executable.read(graph["probabilities"])[0])
    return np.array(rows)


def _device(model: dnnstack.Classifier) -> str:
    return "numpy" if "numpy" in repr(model) else "cpu"


@pytest.mark.parametrize("count", [1, 2, 12, 13, 20])
def test_a_batch_of_any_size_is_the_networks_own_answer(model, run, samples, count, monkeypatch):
    # Twelve are a batch of the config's evaluation.
    pictures = samples[0][:count]
    found = model.predict_proba(pictures)
    assert (found.shape, found.dtype) == ((count, 10), np.float32)
    np.testing.assert_allclose(found, _plain(run, pictures, _device(model)), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(found.sum(1), 1.0, rtol=1e-5)
    # As they are to be, pictures are not looked at any further.
    monkeypatch.delattr("dnnstack.classifier.as_inputs")
    expected = model.classes_[found.argmax(1)]
    answers = model.predict(np.array(pictures))
    np.testing.assert_array_equal(answers, expected)
    assert answers.shape == (count,)


@pytest.mark.parametrize("tta", ["mirror", "mirror+translate"])
@pytest.mark.parametrize("count", [1, 5])
def test_views_of_a_picture_are_averaged_as_an_evaluation_does(model, run, samples, tta, count):
    device = _device(model)
    viewed = dnnstack.load(run, device="numpy" if device == "numpy" else "cpu", threads=1, tta=tta)
    pictures = samples[0][:count]
    found = viewed.predict_proba(pictures)
    trained = find_trained(str(run), None, run.parent, lambda text: None)
    images = ImageSet("some", pictures, np.zeros(count, np.int32), trained.classes)
    backend = open_backend("numpy" if device == "numpy" else "cpu", 1)
    index = np.arange(count, dtype=np.int32)
    wanted = answers(trained, backend, images, index, "test", tta=tta).probabilities
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-6)
    assert not np.allclose(found, model.predict_proba(pictures), rtol=1e-3)
    if tta == "mirror":
        # Scores are averaged, so of probabilities it is the geometric mean.
        both = model.predict_proba(pictures) * model.predict_proba(pictures[..., ::-1].copy())
        mean = np.sqrt(both)
        np.testing.assert_allclose(found, mean / mean.sum(1, keepdims=True), rtol=1e-3, atol=1e-6)


def test_views_that_do_not_exist_are_wrong_usage(run):
    with pytest.raises(UsageError, match=r"tta: expected none, mirror .*'upside'"):
        dnnstack.load(run, device="numpy", tta="upside")


def test_sizes_in_any_order_do_not_mix(model, run, samples):
    """Batches are used again, padded and freed; no answer may be that of an earlier call."""
    pictures = samples[0]
    expected = _plain(run, pictures, _device(model))
    rng = np.random.default_rng(3)
    for _ in range(30):
        chosen = rng.permutation(20)[: rng.integers(1, 20)]
        found = model.predict_proba(pictures[chosen])
        np.testing.assert_allclose(found, expected[chosen], rtol=1e-4, atol=1e-6)


def test_what_is_compiled_is_bounded_and_a_size_that_comes_again_fits(run, samples):
    trained = find_trained(str(run), None, run.parent, lambda text: None)
    forward = Forward(trained, open_backend("numpy"))
    pictures = samples[0]
    sizes = []
    for count in (1, 12, 7, 7, 5, 9, 2, 3, 11):
        forward(pictures[:count])
        sizes.append(sorted(size for size, *_ in forward._batches))
    # 7 of 12 fit at first; 5 fit into 7, 9 into 12; 2 does not fit, and 1 has waited longest.
    assert sizes[:4] == [[1], [1, 12], [1, 12], [1, 7, 12]]
    assert sizes[5] == [1, 7, 12]
    assert sizes[6] == [2, 7, 12]
    assert max(map(len, sizes)) == 3
    forward.close()
    assert forward._batches == {}
    assert forward(pictures[:2]).shape == (2, 10)


@pytest.mark.parametrize(
    "shown",
    [
        pytest.param(lambda x: x, id="N, C, H, W"),
        pytest.param(lambda x: x[:, 0], id="N, H, W"),
        pytest.param(lambda x: x.transpose(0, 2, 3, 1), id="N, H, W, C"),
        pytest.param(lambda x: x.reshape(len(x), -1), id="rows"),
        pytest.param(lambda x: x.astype(np.float64), id="whole floats"),
        pytest.param(lambda x: x.astype(np.int64), id="integers"),
        pytest.param(lambda x: x[:, 0].tolist(), id="lists of numbers"),
        pytest.param(lambda x: [p[0] for p in x], id="list of arrays"),
        pytest.param(lambda x: [p[0] if p.sum() % 2 else p for p in x], id="of both shapes"),
        pytest.param(lambda x: [Image.fromarray(p[0]) for p in x], id="Pillow's"),
        pytest.param(lambda x: tuple(Image.fromarray(p[0]).convert("RGB") for p in x), id="RGB"),
    ],
)
def test_every_form_of_the_same_pictures(run, samples, shown):
    assert callable(shown)
    model = dnnstack.load(run, device="numpy")
    pictures = samples[0][:6]
    np.testing.assert_array_equal(
        model.predict_proba(shown(pictures)), model.predict_proba(pictures)
    )


def test_one_picture_is_a_batch_of_one(run, samples, tmp_path):
    model = dnnstack.load(run, device="numpy")
    picture = samples[0][0]
    expected = model.predict_proba(picture)
    assert expected.shape == (1, 10)
    image = Image.fromarray(picture[0])
    image.save(tmp_path / "one.png")
    file = tmp_path / "one.png"
    for given in (picture[0], image, file, str(file), [file], [str(file)]):
        np.testing.assert_array_equal(model.predict_proba(given), expected)
    assert model.predict_proba(samples[0][:0]).shape == (0, 10)
    assert model.predict([file, image, picture]).shape == (3,)


def test_answers_are_those_of_the_command(run, samples, tmp_path):
    """Also of a digit on a large page, which has to be located: the same bits."""
    page = Image.new("L", (300, 200), 255)
    page.paste(Image.fromarray(255 - samples[0][3, 0]).resize((90, 90)), (50, 60))
    page.save(tmp_path / "page.png")
    model = dnnstack.load(run, device="cpu", threads=1)
    (answer,) = model.predict_each([tmp_path / "page.png"], top=10)
    assert isinstance(answer, dnnstack.Prediction)
    found = {each.index: each.probability for each in answer.top}
    for given in (tmp_path / "page.png", page):
        assert model.predict_proba(given)[0].astype(float).tolist() == [found[k] for k in range(10)]
    raw = model.predict_proba(page, raw=True)
    assert (raw != model.predict_proba(page)).any()
    assert (model.predict_proba(page, raw=True, invert=True) != raw).any()


def test_evaluation_of_a_split_and_of_arrays(run, samples):
    model = dnnstack.load(run, device="numpy")
    pictures, labels = samples
    whole = model.evaluate()
    given = model.evaluate(pictures, labels)
    assert whole.count == given.count == 20
    assert given.loss == pytest.approx(whole.loss, rel=1e-6)
    np.testing.assert_array_equal(given.confusion, whole.confusion)
    expected = (model.predict_proba(pictures).argmax(1) == labels).mean()
    assert model.score(pictures, labels) == whole.accuracy == pytest.approx(expected)
    assert model.score(pictures, [str(label) for label in labels]) == whole.accuracy
    assert model.evaluate(split="validation").count == 32
    assert model.evaluate(split="train").part == "train"


def test_threads_may_share_it(run, samples):
    model = dnnstack.load(run, device="cpu", threads=1)
    pictures = samples[0]
    expected = model.predict_proba(pictures)
    wrong: list[str] = []

    def ask(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for _ in range(20):
            first, count = int(rng.integers(0, 10)), int(rng.integers(1, 10))
            found = model.predict_proba(pictures[first : first + count])
            if not np.allclose(found, expected[first : first + count], rtol=1e-4, atol=1e-6):
                wrong.append(f"{first} + {count}")

    threads = [threading.Thread(target=ask, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_what_it_says_of_itself(run):
    model = dnnstack.load(run, device="numpy")
    assert model.classes_.tolist() == [str(digit) for digit in range(10)]
    assert model.input_shape == (1, 28, 28)
    assert model.checkpoint == run / "checkpoints" / "step-25.safetensors"
    assert model.config.name == "tiny"
    assert repr(model) == (
        f"<dnnstack.Classifier {str(model.checkpoint)!r}: 1x28x28 -> 10 classes, on numpy>"
    )
    assert repr(model.trained) == (
        f"<Trained network of {str(model.checkpoint)!r}: 1x28x28 -> 10 classes>"
    )
    checkpoint = model.trained.checkpoint
    assert repr(checkpoint) == f"<Checkpoint {str(model.checkpoint)!r}: step 25, 4 arrays>"
    by_file = dnnstack.load(model.checkpoint, device="numpy")
    by_name = dnnstack.load("tiny", runs_dir=run.parent, device="numpy")
    latest = dnnstack.load(run.parent / "latest", device="numpy")
    newest = dnnstack.load(runs_dir=run.parent, device="numpy")
    for found in (by_file, by_name, latest, newest):
        assert found.checkpoint.samefile(model.checkpoint)


def test_it_leaves_as_a_file(run, tmp_path, monkeypatch):
    path = tmp_path / "net.py"
    with dnnstack.load(run, device="numpy") as model:
        found = model.export(path)
        assert found.format == "numpy"
        assert (found.checked.what, found.checked.count) == ("samples of strokes/test", 20)
        monkeypatch.setattr("dnnstack.classifier.MOST", 7)
        assert model.export(path).checked.count == 7
        assert model.export(path, check=False).checked is None
        assert "quantize(" not in path.read_text()
        # Twenty samples cannot show a tenth of a point.
        model.export(path, "numpy", int8=True, check=False)
        assert "quantize(" in path.read_text()
        warmer = replace(model.trained, network=model.trained.network.judged(2.0, False))
        assert (
            in_integers(warmer, model.backend, *model.load_part("train")).network.temperature == 2
        )
        with pytest.raises(UsageError, match="raw: numpy takes no options"):
            model.export(path, raw=True)

        def missing(part: str, *given: object) -> None:
            raise DatasetError(f"{part}: not there")

        monkeypatch.setattr(model, "load_part", missing)
        checked = model.export(path).checked
        assert (checked.what, checked.count) == ("drawn samples", 100)
        with pytest.raises(DatasetError, match="train: not there"):
            model.export(path, int8=True)

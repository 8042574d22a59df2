"""What a checkpoint alone can do: evaluate and predict, checked against its plain network."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from dnnstack.backends.base import Backend
from dnnstack.common.errors import CheckpointError, DatasetError, Warned
from dnnstack.common.locks import lock
from dnnstack.configs import RunConfig
from dnnstack.datasets import ImageSet
from dnnstack.reports.evaluate_text import as_text
from dnnstack.training.inference.evaluate import Part, evaluate
from dnnstack.training.inference.forward import Forward
from dnnstack.training.inference.parts import load_part
from dnnstack.training.inference.predict import Prediction, predict
from dnnstack.training.inference.trained import Trained, find_trained
from dnnstack.training.records.formats.store import write_checkpoint
from dnnstack.training.trainer import train
from numpy.typing import NDArray
from PIL import Image

Tiny = Callable[..., RunConfig]


@pytest.fixture
def trained(tiny, reference, tmp_path):
    train(tiny("run.device=numpy"), reference, tmp_path)
    return find_trained(None, None, tmp_path / "runs", lambda text: None)


def _scores(found: Trained, backend: Backend, images: NDArray[np.uint8]) -> NDArray[np.float64]:
    """Probabilities, one picture after the other."""
    graph = found.network.infer_graph(1)
    executable = found.compile(backend, graph)
    rows = []
    for image in images:
        executable.write(graph["x"], (image / np.float32(255)).astype(np.float32)[None])
        executable.run("infer")
        rows.append(executable.read(graph["probabilities"])[0].astype(np.float64))
    executable.close()
    return np.array(rows)


@pytest.mark.parametrize(("part", "count"), [("test", 20), ("validation", 32), ("train", 168)])
def test_evaluation_counts_every_picture_once(trained, backend, tmp_path, part, count):
    # 12 in a batch leaves a partial last one in two of the three.
    images, index = load_part(trained, part, tmp_path)
    heard: list[int] = []
    found = evaluate(trained, backend, images, index, part, heard.append)
    p = _scores(trained, backend, images.images[index])
    labels = images.labels[index]
    expected = np.zeros((10, 10), np.int64)
    np.add.at(expected, (labels, p.argmax(1)), 1)
    assert len(index) == found.count == sum(heard) == count
    np.testing.assert_array_equal(found.confusion, expected)
    assert found.loss == pytest.approx(-np.log(p[np.arange(count), labels]).mean(), rel=1e-5)
    assert found.to_json()["correct"] == expected.trace()


def test_train_and_validation_are_the_parts_of_training(trained, tmp_path):
    together = np.concatenate([load_part(trained, part, tmp_path)[1] for part in _PARTS])
    assert sorted(together.tolist()) == list(range(200))


_PARTS: tuple[Part, Part] = ("train", "validation")


def test_another_set_must_fit(trained, tmp_path):
    with pytest.raises(DatasetError, match=r"pictures 3x32x32 and 10 classes; .* needs 1x28x28"):
        load_part(trained, "test", tmp_path, "cifar10")


def test_a_class_without_samples_has_no_accuracy(trained, reference, tmp_path):
    images, index = load_part(trained, "test", tmp_path)
    index = index[images.labels[index] != 3]
    found = evaluate(trained, reference, images, index, "test")
    assert found.to_json()["per_class"][3]["accuracy"] is None
    row = next(line for line in as_text(found).splitlines() if line.lstrip().startswith("3"))
    assert row.split()[3:] == ["0.00%", "0.00%", "-", "0.00%"]


def test_classes_with_long_names_are_listed_with_numbers(trained, reference, tmp_path):
    images, index = load_part(trained, "test", tmp_path)
    found = evaluate(trained, reference, images, index, "test")
    names = tuple(f"a class with the number {k}" for k in range(10))
    text = as_text(replace(found, classes=names))
    # The first line is the checkpoint's path, which may be of any length.
    assert max(map(len, text.splitlines()[1:])) <= 80
    assert all(name in text for name in names)
    assert "confusion: a row is a true class, a column what the network answered, by number" in text


def test_prediction_is_what_the_network_says(trained, backend, tmp_path):
    images, _ = load_part(trained, "test", tmp_path)
    paths = _saved(images, tmp_path)
    found = list(predict(Forward(trained, backend), [*paths, tmp_path / "none.png"], 10))
    p = _scores(trained, backend, images.images[:4])
    assert isinstance(found.pop(), DatasetError)
    for prediction, path, row in zip(found, paths, p, strict=True):
        assert isinstance(prediction, Prediction)
        assert prediction.path == path
        answers = {answer.index: answer.probability for answer in prediction.top}
        np.testing.assert_allclose([answers[k] for k in range(10)], row, rtol=1e-5)
        assert prediction.best.index == row.argmax()
        assert [answer.label for answer in prediction.top] == [str(a.index) for a in prediction.top]
        assert [a.probability for a in prediction.top] == sorted(answers.values(), reverse=True)


def _saved(images: ImageSet, folder: Path) -> list[Path]:
    paths = [folder / f"{i}.png" for i in range(4)]
    for path, image in zip(paths, images.images, strict=False):
        Image.fromarray(image[0]).save(path)
    return paths


def test_preprocessing_comes_from_the_checkpoint(tiny, reference, tmp_path):
    train(tiny("run.device=numpy", "data.normalize={mean: 0.2, std: 0.5}"), reference, tmp_path)
    found = find_trained("tiny", None, tmp_path / "runs", lambda text: None)
    images, index = load_part(found, "test", tmp_path)
    evaluated = evaluate(found, reference, images, index, "test").confusion
    paths = _saved(images, tmp_path)
    for path, label in zip(paths, images.labels, strict=False):
        (prediction,) = predict(Forward(found, reference), [path], 1)
        assert isinstance(prediction, Prediction)
        assert evaluated[label, prediction.best.index] > 0
    graph = found.network.infer_graph(1)
    executable = found.compile(reference, graph)
    x = (images.images[:1] / 255 - 0.2) / 0.5
    executable.write(graph["x"], x.astype(np.float32))
    executable.run("infer")
    (prediction,) = predict(Forward(found, reference), paths[:1], 10)
    assert isinstance(prediction, Prediction)
    assert prediction.best.probability == pytest.approx(
        float(executable.read(graph["probabilities"]).max()), rel=1e-5
    )


def test_the_latest_run_is_found_and_named(trained, tmp_path):
    heard: list[str] = []
    runs = tmp_path / "runs"
    assert find_trained(None, None, runs, heard.append).path == trained.path
    what = f"{trained.path.name} (best on validation)"
    assert heard == [f"using {runs / 'tiny'}, the latest run: {what}"]
    heard.clear()
    assert find_trained(None, trained.path, runs, heard.append).path == trained.path
    assert heard == []
    with pytest.raises(CheckpointError, match="is a folder"):
        find_trained(None, trained.path.parent, runs, heard.append)


def test_an_earlier_run_is_taken_if_the_latest_has_no_checkpoint(trained, tmp_path):
    runs = tmp_path / "runs"
    older, failed = runs / "older", runs / "failed"
    shutil.copytree(runs / "tiny", older)
    for manifest in (older / "checkpoints").glob("*.json"):
        os.utime(manifest, (0, 0))
    failed.mkdir()
    shutil.copy(runs / "tiny" / "config.yaml", failed)
    (runs / "latest").unlink()
    (runs / "latest").symlink_to("failed")
    heard: list[str] = []
    assert find_trained(None, None, runs, heard.append).path == trained.path
    why = f"since {failed}, the latest run, has no checkpoint"
    assert heard == [f"using {runs / 'tiny'}, {why}: {trained.path.name} (best on validation)"]
    with pytest.raises(CheckpointError, match="has no checkpoint yet"):
        find_trained("failed", None, runs, heard.append)
    for name in ("tiny", "older"):
        shutil.rmtree(runs / name)
    with pytest.raises(CheckpointError, match="has no checkpoint yet"):
        find_trained(None, None, runs, heard.append)


def test_the_best_on_validation_is_taken_not_the_newest(trained, reference, tmp_path):
    state, provenance = trained.checkpoint.state, trained.checkpoint.provenance
    assert state.best is not None
    worse = replace(state, step=state.step + 5)
    write_checkpoint(trained.path.parent, trained.checkpoint.arrays, worse, provenance, keep=3)
    heard: list[str] = []
    found = find_trained("tiny", None, tmp_path / "runs", heard.append)
    assert found.path == trained.path
    assert "(best on validation)" in heard[-1]
    none = replace(state, step=state.step + 9, best=None)
    write_checkpoint(trained.path.parent, trained.checkpoint.arrays, none, provenance, keep=3)
    found = find_trained("tiny", None, tmp_path / "runs", heard.append)
    assert found.path.name == f"step-{state.step + 9}.safetensors"
    assert "(the newest)" in heard[-1]
    write_checkpoint(
        trained.path.parent,
        trained.checkpoint.arrays,
        replace(none, step=state.step + 12),
        provenance,
        keep=3,
    )
    (trained.path.parent / f"step-{state.step + 12}.safetensors").write_bytes(b"")
    heard.clear()
    assert find_trained("tiny", None, tmp_path / "runs", heard.append).path == found.path
    assert [isinstance(text, Warned) for text in heard] == [True, False]
    assert heard[-1].endswith(f"{found.path.name} (the newest that can be used)")


def test_a_save_that_is_going_on_is_no_damage(trained, tmp_path):
    """The lock of the run's training decides between a save that goes on and one that was cut."""
    checkpoint, runs = trained.checkpoint, tmp_path / "runs"
    later = replace(checkpoint.state, step=checkpoint.state.step + 5)
    path = write_checkpoint(
        trained.path.parent, checkpoint.arrays, later, checkpoint.provenance, keep=3
    )
    Path(path).with_suffix(".json").unlink()
    for held, said in ((True, "a training is saving it right now"), (False, "was interrupted")):
        heard: list[str] = []
        with lock(runs / "tiny" / "lock") if held else contextlib.nullcontext():
            assert find_trained("tiny", None, runs, heard.append).path == trained.path
        assert [said in text for text in heard] == [True, False]

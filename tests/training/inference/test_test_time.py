"""Views of a picture that are averaged when a network is judged."""

from __future__ import annotations

import numpy as np
import pytest
from dnnstack.backends.base import Backend
from dnnstack.common.errors import ConfigError, ShapeError
from dnnstack.configs import parse_config
from dnnstack.datasets import describe
from dnnstack.reports.evaluate_text import as_text
from dnnstack.training.assemble import build_network
from dnnstack.training.augmentation import TEST_TIME, views_of
from dnnstack.training.inference.evaluate import evaluate, load_part
from dnnstack.training.inference.trained import Trained, find_trained
from dnnstack.training.preprocessing import Preprocessing
from dnnstack.training.trainer import train

from ...support.stored import cases


@pytest.fixture
def trained(tiny, reference, tmp_path):
    train(tiny("run.device=numpy", "evaluate.tta=mirror"), reference, tmp_path)
    return find_trained(None, None, tmp_path / "runs", lambda text: None)


def seen(picture: np.ndarray, flip: bool, by: int) -> np.ndarray:
    """A view of a picture (1, H, W): a window of the picture padded by 1, then perhaps flipped."""
    padded = np.pad(picture, ((0, 0), (1, 1), (1, 1)), "reflect")
    view = padded[:, 1 + by : 29 + by, 1 + by : 29 + by]
    return view[:, :, ::-1] if flip else view


VIEWS = cases(__file__, "views")


@pytest.mark.parametrize("tta", VIEWS)
def test_views_are_averaged_before_the_softmax(trained, backend, tmp_path, tta):
    """20 pictures in batches of 12: the last is filled up with masked samples."""
    images, index = load_part(trained, "test", tmp_path)
    found = evaluate(trained, backend, images, index, "test", tta=tta)
    scores = scores_of(trained, backend, images.images[index], VIEWS[tta])
    labels = images.labels[index]
    confusion = np.zeros((10, 10), np.int64)
    np.add.at(confusion, (labels, scores.argmax(1)), 1)
    np.testing.assert_array_equal(found.confusion, confusion)
    shifted = scores - scores.max(1, keepdims=True)
    log_p = shifted - np.log(np.exp(shifted).sum(1, keepdims=True))
    assert found.loss == pytest.approx(-log_p[np.arange(len(index)), labels].mean(), rel=1e-5)
    assert (found.tta, found.to_json()["tta"]) == (tta, tta)
    count = len(VIEWS[tta])
    text = f"scores averaged over {count} views of each picture"
    assert (text in as_text(found)) == (tta != "none")
    assert found.to_json()["tta_share"] == 1


def scores_of(
    trained: Trained, backend: Backend, pictures: np.ndarray, views: list[tuple[bool, int, float]]
) -> np.ndarray:
    """The average over the views, each picture of each alone in its batch."""
    graph = trained.network.infer_graph(1)
    executable = trained.compile(backend, graph)
    scores = np.zeros((len(pictures), 10))
    for row, picture in enumerate(pictures):
        for flip, by, weight in views:
            view = seen(picture, flip, by).astype(np.float32) / np.float32(255)
            executable.write(graph["x"], view[None])
            executable.run("infer")
            scores[row] += weight * executable.read(graph["scores"])[0].astype(np.float64)
    executable.close()
    return scores


@pytest.mark.parametrize("tta", ["mirror", "mirror+translate"])
def test_a_share_is_of_those_with_the_closest_scores(tiny, reference, backend, tmp_path, tta):
    """Batches of 12 and of 8: five of each, 0.4 of a batch of 12, are seen in all views."""
    config = tiny("run.device=numpy", "evaluate.tta=mirror+translate", "evaluate.tta_share=0.4")
    train(config, reference, tmp_path)
    trained = find_trained(None, None, tmp_path / "runs", lambda text: None)
    images, index = load_part(trained, "test", tmp_path)
    batch = trained.config.data.evaluation_batch_size
    assert (len(index), batch) == (20, 12)
    pictures, labels = images.images[index], images.labels[index]
    wanted = scores_of(trained, backend, pictures, VIEWS["none"])
    averages = scores_of(trained, backend, pictures, VIEWS[tta])
    second, best = np.sort(wanted, 1)[:, -2:].T
    for first in range(0, 20, batch):
        rows = first + np.argsort((best - second)[first : first + batch])
        rows = rows[: 5 if first == 0 else 4]  # 40% of the samples, of which the last batch has 8
        wanted[rows] = averages[rows]
    found: list[np.ndarray] = []
    result = evaluate(
        trained, backend, images, index, "test", tta=tta, hear=lambda *got: found.append(got[1])
    )
    np.testing.assert_allclose(np.concatenate(found), wanted, rtol=1e-4, atol=1e-5)
    log_p = wanted - np.log(np.exp(wanted).sum(1, keepdims=True))
    assert result.loss == pytest.approx(-log_p[np.arange(20), labels].mean(), rel=1e-5)
    assert result.correct == (wanted.argmax(1) == labels).sum()
    assert (result.tta_share, result.to_json()["tta_share"]) == (0.4, 0.4)
    count = len(VIEWS[tta])
    text = f"{count} views of the 40% of each batch with the closest scores"
    assert text in " ".join(as_text(result).split())
    alone = evaluate(trained, backend, images, index, "test", tta="none")
    assert alone.tta_share == 1
    assert alone.loss != result.loss


@pytest.mark.parametrize(
    ("share", "count", "seen"),
    [(0.25, 2000, 500), (0.07, 100, 7), (0.07, 101, 8), (0.01, 3, 1), (1e-9, 9, 1), (1.0, 12, 12)],
)
def test_a_share_is_rounded_up(share, count, seen):
    assert views_of("mirror", share).seen(count) == seen
    assert views_of("none", share).seen(count) == count


def test_the_same_layers_come_twice_whatever_their_names(reference):
    """A layer inside one that is called ``views`` has the name of another behind it."""
    one = "conv2d: {filters: 2, kernel_size: 1, name: one}"
    layers = f"[sequential: {{name: views, layers: [{one}]}}, {one}, flatten, dense: {{units: 10}}]"
    text = f"data: {{dataset: mnist}}\nlayers: {layers}\n"
    rest = "optimizer: {type: sgd, lr: 0.1}\ntrain: {epochs: 1}\n"
    network = build_network(parse_config(text + rest, "x.yaml"), describe("mnist"))
    views = views_of("mirror", 0.5)
    graph = network.evaluate_graph(4, "x", 4, 1, Preprocessing((1.0,), (0.0,)), views)
    names = [tensor.name for op in graph.ops for tensor in op.tensors(op.outputs)]
    assert {"views.one.y", "one.y", "views/one.y", "views/views.one.y"} <= {*names}


def test_a_share_needs_two_classes(reference):
    text = "data: {dataset: mnist}\nlayers: [flatten, dense: {units: 10}]\n"
    rest = "optimizer: {type: sgd, lr: 0.1}\ntrain: {epochs: 1}\n"
    network = build_network(parse_config(text + rest, "x.yaml"), describe("mnist"))
    network.classes = 1
    with pytest.raises(
        ConfigError, match=r"^evaluate\.tta_share: compares the scores of two class"
    ):
        network.evaluate_graph(2, "x", 2, 1, Preprocessing((1.0,), (0.0,)), views_of("mirror", 0.5))


def test_the_config_says_which_views(trained, backend, tmp_path):
    images, index = load_part(trained, "test", tmp_path)
    own = evaluate(trained, backend, images, index, "test")
    assert own.tta == "mirror"
    assert own.loss == evaluate(trained, backend, images, index, "test", tta="mirror").loss
    assert own.loss != evaluate(trained, backend, images, index, "test", tta="none").loss


@pytest.mark.parametrize("share", [1.0, 0.3])
def test_validation_takes_the_same_views(tiny, backend, tmp_path, share):
    views = ("evaluate.tta=mirror+translate", f"evaluate.tta_share={share}")
    config = tiny("run.device=numpy", *views, "checkpoint.best=true")
    summary = train(config, backend, tmp_path)
    found = find_trained(None, summary.checkpoint, tmp_path / "runs", lambda text: None)
    images, index = load_part(found, "validation", tmp_path)
    result = evaluate(found, backend, images, index, "validation")
    assert summary.validation is not None
    assert result.correct == summary.validation.correct
    assert result.loss == pytest.approx(summary.validation.loss, rel=1e-6)


def test_pictures_too_small_to_be_moved(reference):
    text = "data: {dataset: mnist}\nlayers: [flatten, dense: {units: 10}]\n"
    rest = "optimizer: {type: sgd, lr: 0.1}\ntrain: {epochs: 1}\n"
    config = parse_config(text + rest, "x.yaml")
    info = describe("mnist")
    network = build_network(config, info)
    network.input_shape = (1, 1, 5)
    with pytest.raises(ShapeError, match=r"by 1 pixel .* have 1x5 pixels; use 'mirror'"):
        network.evaluate_graph(
            2, "x", 2, 1, Preprocessing((1.0,), (0.0,)), TEST_TIME["mirror+translate"]
        )

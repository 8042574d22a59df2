"""Networks that are trained on arrays of the program: which, how they go on, what they answer."""

from __future__ import annotations

import json
import logging
from typing import Any

import dnnstack
import numpy as np
import pytest
from dnnstack.cli.main import main
from dnnstack.datasets import describe

from ..support.stored import cases

RANDOM = np.random.default_rng(5)
PIXELS = RANDOM.integers(0, 256, (60, 4, 5), dtype=np.uint8)
LABELS = (PIXELS[:, 0, 0] > 127).astype(np.int64)
NUMBERS = RANDOM.normal(size=(60, 3, 5)).astype(np.float32)


@pytest.fixture
def config(tmp_path, monkeypatch):
    """A config without a data set; 5 steps are an epoch."""
    monkeypatch.chdir(tmp_path)
    return {
        "name": "own",
        "data": {"batch_size": 10, "validation": 10},
        "layers": ["flatten", {"dense": {"units": 2}}, "softmax"],
        "loss": "cross_entropy",
        "optimizer": {"type": "sgd", "lr": 0.1},
        "train": {"epochs": 2},
        "run": {"device": "numpy", "threads": 1},
    }


def bits(history: dnnstack.History) -> bytes:
    return history.checkpoint.read_bytes()[-168:]


class Frame:
    """What a table of another library is to NumPy."""

    def __init__(self, values: Any) -> None:
        self.values = values

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return np.asarray(self.values, dtype)


def test_the_same_bits_from_arrays_and_from_a_file(config, tmp_path):
    given = dnnstack.train(config, data=(PIXELS, LABELS))
    assert PIXELS.flags.writeable
    np.savez(tmp_path / "a.npz", x_train=PIXELS, y_train=LABELS, x_test=PIXELS, y_test=LABELS)
    read = dnnstack.train(config, overrides={"data.dataset": {"npz": {"train": "a.npz"}}})
    listed = dnnstack.train(config, data=[Frame(PIXELS), LABELS.astype(np.int8).tolist()])
    assert bits(given) == bits(read) == bits(listed)
    assert given.history == read.history


def test_a_checkpoint_from_elsewhere_reads_no_files(config, tmp_path):
    np.save(tmp_path / "x.npy", PIXELS)
    np.save(tmp_path / "y.npy", LABELS)
    files = [str(tmp_path / "x.npy"), str(tmp_path / "y.npy")]
    found = dnnstack.train(config, overrides={"data.dataset": {"npz": {"train": files}}})
    assert dnnstack.load(found.run, device="numpy").evaluate().count == 12
    (tmp_path / "elsewhere").mkdir()
    for path in (found.checkpoint, found.checkpoint.with_suffix(".json")):
        path.rename(tmp_path / "elsewhere" / path.name)
    model = dnnstack.load(tmp_path / "elsewhere" / found.checkpoint.name, device="numpy")
    with pytest.raises(dnnstack.DnnstackError, match=r"names samples in '.*x.npy', but is not in"):
        model.evaluate()


def test_resuming_takes_the_same_arrays(config):
    first = dnnstack.train(config, data=(PIXELS, LABELS), overrides={"train.epochs": 1})
    with pytest.raises(dnnstack.DnnstackError, match=r"arrays are in the program .*data=\(x, y\)"):
        dnnstack.train(first.run / "config.yaml", resume=True)
    changed = PIXELS.copy()
    changed[59, 3, 4] ^= 1
    for x, y in ((changed, LABELS), (PIXELS, 1 - LABELS), (PIXELS[1:], LABELS[1:])):
        with pytest.raises(dnnstack.DnnstackError, match="give the same arrays, in the same order"):
            dnnstack.train(config, data=(x, y), resume=True)
    with pytest.raises(dnnstack.DnnstackError, match=r"arrays.shape.2: 5 -> 4"):
        dnnstack.train(config, data=(PIXELS[..., 1:], LABELS), resume=True)
    more = dnnstack.train(config, data=(PIXELS, LABELS), resume=True)
    assert more.run == first.run
    assert bits(more) == bits(dnnstack.train(config, data=(PIXELS, LABELS)))


def test_arrays_to_validate_on_are_validated_on_alone(config):
    own = (PIXELS[:7], LABELS[:7])
    found = dnnstack.train(config, data=(PIXELS, LABELS), validation=own)
    assert found.step == 12
    lines = [json.loads(line) for line in (found.run / "log.jsonl").read_text().splitlines()]
    assert {line["count"] for line in lines if line["event"] == "validation"} == {7}
    model = dnnstack.load(found.run, device="numpy")
    assert model.evaluate(*own).loss == pytest.approx(found.best.loss, rel=1e-6)
    with pytest.raises(dnnstack.DnnstackError, match="validation, y: a sample has the label 2"):
        dnnstack.train(config, data=(PIXELS, LABELS), validation=(PIXELS, LABELS + 1))


def test_a_part_of_the_arrays_is_evaluated(config):
    found = dnnstack.train(config, data=(PIXELS, LABELS))
    with dnnstack.load(found.run, device="numpy") as model:
        held = model.evaluate(PIXELS, LABELS, split="validation")
        assert held.count == 10
        assert held.loss == pytest.approx(found.history["val_loss"][-1], rel=1e-6)
        assert model.evaluate(PIXELS, LABELS, split="train").count == 50
        assert model.evaluate(PIXELS, LABELS).count == 60
        with pytest.raises(dnnstack.DnnstackError, match="give the same arrays"):
            model.evaluate(PIXELS[::-1], LABELS, split="validation")
        with pytest.raises(dnnstack.DnnstackError, match=r"or model.evaluate\(x, y\)"):
            model.evaluate()


@pytest.mark.parametrize(
    ("axes", "x"),
    [("NCL", NUMBERS), ("NLC", NUMBERS.transpose(0, 2, 1)), (None, NUMBERS[:, :, None])],
)
def test_numbers_are_normalised_as_the_config_says_and_not_else(config, axes, x):
    config["data"]["normalize"] = {"mean": 1.0, "std": 2.0}
    found = dnnstack.train(config, data=(x, np.where(LABELS, "yes", "no")), axes=axes)
    with dnnstack.load(found.run, device="numpy") as model:
        assert model.input_shape == (3, 1, 5)
        assert model.classes_.tolist() == ["no", "yes"]
        given = model.predict_proba(x)
        np.testing.assert_array_equal(given, model.predict_proba(NUMBERS[:, :, None]))
        shapes = {"dense_1.weight": (2, 15), "dense_1.bias": (2,)}
        weight, bias = model.trained.checkpoint.parameters(shapes).values()
        scores = np.exp((NUMBERS.reshape(60, 15) - 1) / 2 @ weight.T + bias)
        np.testing.assert_allclose(given, scores / scores.sum(1, keepdims=True), rtol=1e-5)
        right = (given.argmax(1) == LABELS).sum()
        assert model.evaluate(x, np.where(LABELS, "yes", "no")).correct == right
        with pytest.raises(dnnstack.DnnstackError, match="trained on numbers, not on pictures"):
            model.predict("5.png")


def test_a_column_of_numbers_is_an_array_too(config):
    config |= {"layers": [{"dense": {"units": 1}}], "loss": "mse"}
    x = np.linspace(-1, 1, 60)
    found = dnnstack.train(config, data=(x, 2 * x), classes=["twice"])
    with dnnstack.load(found.run, device="numpy") as model:
        assert model.classes_.tolist() == ["twice"]
        assert model.predict_proba(x).shape == (60, 1)


@pytest.mark.parametrize(
    ("factor", "told"), [(0.021, False), (99, False), (101, True), (0.019, True)]
)
def test_inputs_far_from_1_are_told(config, caplog, factor, told):
    x = np.float32(factor) * np.eye(2, dtype=np.float32)[LABELS]
    caplog.set_level(logging.WARNING, "dnnstack")
    dnnstack.train(config, data=(-3 * x / 3, LABELS), overrides={"name": "far"})
    assert ("the largest input is" in caplog.text) == told
    caplog.clear()
    measured = {"data.normalize": "measured"}
    dnnstack.train(config, data=(x, LABELS), overrides=measured)
    assert "the largest input" not in caplog.text


def test_groups_and_sweeps_share_the_arrays(config, tmp_path, caplog):
    given = {"data": (100 * PIXELS.astype(float), LABELS), "axes": "NHW"}
    seeds = dnnstack.train_group(config, seeds=2, **given)
    assert seeds.finished == 2
    assert caplog.text.count("the largest input is") == 1
    alone = dnnstack.train(config, overrides={"seed": 1}, **given)
    metrics = [run / "metrics.csv" for run in (alone.run, seeds.path / "seed-1")]
    assert metrics[0].read_bytes() == metrics[1].read_bytes()
    assert dnnstack.train_group(config, folds=2, **given).finished == 2
    search = "{sampler: grid, keys: {optimizer.lr: [0.1, 0.05]}}"
    (tmp_path / "own.yaml").write_text(f"{json.dumps(config)[:-1]}, search: {search}}}")
    found = dnnstack.sweep("own.yaml", workers=1, **given)
    assert [trial.state for trial in found.trials] == ["complete", "complete"]
    with pytest.raises(dnnstack.DnnstackError, match="workers: the arrays are in this process"):
        dnnstack.train_group(config, seeds=2, workers=2, **given)
    with pytest.raises(dnnstack.DnnstackError, match="workers: the arrays are in this process"):
        dnnstack.sweep("own.yaml", workers=2, **given)


@pytest.mark.parametrize(("given", "error", "message"), cases(__file__, "refused"))
def test_what_cannot_be_meant_is_refused(config, given, error, message):
    """Lists stand for arrays."""
    kind = TypeError if error == "TypeError" else dnnstack.DnnstackError
    with pytest.raises(kind, match=message):
        dnnstack.train(config, **given)


def test_the_commands_say_where_the_arrays_are(config, capsys):
    run = dnnstack.train(config, data=(PIXELS, LABELS)).run
    own = str(run / "config.yaml")
    for line in (
        ["train", "--config", own],
        ["train", "--config", own, "--resume"],
        ["data", "--config", own],
        ["eval", "--run", str(run)],
    ):
        assert main([*line]) == 1
        told = capsys.readouterr().err
        assert "data.dataset.arrays: the arrays are in the program that trained; give" in told
    for line in (["summary", "--config", own], ["runs"], ["explain", "--config", own]):
        assert main(line) == 0
    info = describe("arrays", options={"shape": (1, 4, 5), "classes": ("0", "1"), "floats": True})
    assert (info.shape, info.floats, info.kind) == ((1, 4, 5), True, "class")

"""What a network is and computes inside, and commands as objects."""

from __future__ import annotations

import json
import math

import dnnstack
import numpy as np
import pytest
from dnnstack.common.errors import UsageError
from dnnstack.configs import parse_config

from ..support.training_fixtures import TINY

X = np.random.default_rng(3).integers(0, 256, (6, 1, 28, 28), np.uint8)
Y = [3, 1, 4, 1, 5, 9]


@pytest.fixture(scope="module")
def history(tmp_path_factory):
    folder = tmp_path_factory.mktemp("looking") / "runs"
    config = parse_config(TINY, "tiny.yaml", [f"run={{device: numpy, dir: {folder}}}"])
    return dnnstack.train(config.model_dump())


@pytest.fixture(scope="module")
def model(history):
    return dnnstack.load(history.run, device="numpy")


def test_layers(model):
    assert list(model.layers) == [
        *("conv2d_1", "relu_1", "max_pool2d_1", "flatten_1", "dense_1", "softmax_1")
    ]
    assert model.layers["conv2d_1"] == ("conv2d_1", "conv2d", (4, 12, 12), 104)
    assert model.layers["dense_1"].parameters == model.layers["dense_1"][3] == 1450
    assert model.layers["flatten_1"].parameters == 0


def test_weights_are_copies(model):
    found = model.weights()
    assert {name: array.shape for name, array in found.items()} == {
        "conv2d_1.weight": (4, 1, 5, 5),
        "conv2d_1.bias": (4,),
        "dense_1.weight": (10, 144),
        "dense_1.bias": (10,),
    }
    before = found["dense_1.bias"].copy()
    found["dense_1.bias"] += 1
    np.testing.assert_array_equal(model.weights()["dense_1.bias"], before)


def test_activations_and_gradients_fit_each_other(model):
    """The gradient of softmax and cross-entropy is known: p minus the true class."""
    inside, p = model.activations(X), model.predict_proba(X)
    for name, layer in model.layers.items():
        if name in inside:
            assert inside[name].shape == (6, *layer.output_shape)
    np.testing.assert_allclose(inside["probabilities"], p, atol=1e-6)
    weights = model.weights()
    scores = inside["flatten_1"] @ weights["dense_1.weight"].T + weights["dense_1.bias"]
    np.testing.assert_allclose(inside["dense_1"], scores, atol=1e-5)
    slope = (p - np.eye(10)[Y]) / len(X)
    found = model.gradients(X, Y)
    assert {name: each.shape for name, each in found.items()} == {
        name: each.shape for name, each in weights.items()
    }
    np.testing.assert_allclose(found["dense_1.bias"], slope.sum(0), atol=1e-6)
    np.testing.assert_allclose(found["dense_1.weight"], slope.T @ inside["flatten_1"], atol=1e-5)
    named = model.gradients(X, [str(label) for label in Y])
    np.testing.assert_array_equal(named["conv2d_1.weight"], found["conv2d_1.weight"])
    assert np.abs(found["conv2d_1.weight"]).max() > 0
    with pytest.raises(dnnstack.DnnstackError, match="there are 2, for 6 samples"):
        model.gradients(X, Y[:2])


def test_summary_and_explain_say_what_the_commands_say(capsys):
    from dnnstack.cli.main import main

    small = ["--config", "digits.yaml", "--set", "optimizer.lr=0.5", "--json"]
    assert main(["summary", *small, "--batch-size", "8"]) == 0
    how = {"overrides": {"optimizer.lr": 0.5}}
    found = dnnstack.summary("digits.yaml", batch_size=8, **how)
    assert found.to_dict() == json.loads(capsys.readouterr().out)
    assert found._repr_html_().startswith("<pre>")
    assert "conv2d_1" in found._repr_html_()
    assert main(["explain", *small, "--device", "numpy"]) == 0
    explained = dnnstack.explain("digits.yaml", device="numpy", **how)
    assert explained.to_dict() == json.loads(capsys.readouterr().out)
    assert "max_pool2d_1" in explained._repr_html_()


def test_runs(history):
    (found,) = dnnstack.runs(history.run.parent)
    assert (found.name, found.folder, found.state) == ("tiny", history.run, "finished")
    assert found.best == history.best.accuracy
    assert found.config.optimizer.lr == 0.05
    np.testing.assert_equal(found.history, history.columns)
    assert found.load(device="numpy").checkpoint == dnnstack.load(history.run).checkpoint
    assert dnnstack.runs(history.run / "none") == []


def test_what_a_notebook_shows(history, model):
    table = model._repr_html_()
    assert "<th>output_shape</th>" in table
    assert "<td>conv2d_1</td><td>conv2d</td><td>(4, 12, 12)</td><td>104</td>" in table
    assert table.startswith("<p>&lt;dnnstack.Classifier ")
    shown = history._repr_html_()
    assert shown.count("<tr>") == 1 + len(history.columns["step"])
    assert f"<td>{history.history['loss'][0]:.5g}</td>" in shown
    assert any(map(math.isnan, history.columns["loss"]))
    assert "<td>nan</td>" in shown
    compared = dnnstack.compare(history.run, history.run, split="validation", device="numpy")
    assert f"<td>{compared.first.accuracy:.5g}</td>" in compared._repr_html_()


def test_a_step_on_a_card_that_need_not_be_there():
    found = dnnstack.explain(
        "mlp.yaml", device="cuda", card="h100", overrides={"run.fusion": False}
    )
    functions = {call.bound.function for each in found.operations for call in each.calls}
    assert {"cublasSgemm", "cublasSgemv", "cublasSaxpy"} <= functions
    assert found.foreseen.card.name == "NVIDIA H100 80GB HBM3"
    assert found._repr_html_().count("Not measured") == 1
    with pytest.raises(UsageError, match=r"card: expected h100, .* did you mean 'h100'"):
        dnnstack.explain("mlp.yaml", card="h10")
    with pytest.raises(UsageError, match="nothing can be measured on card t4"):
        dnnstack.explain("mlp.yaml", card="t4", measure=True)

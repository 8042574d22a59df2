"""A step shows the numbers that the sequential loops of a lecture give, before and after it."""

from __future__ import annotations

import json

import dnnstack
import numpy as np
import pytest
from dnnstack.cli.main import main
from dnnstack.common.errors import ConfigError, DatasetError, UsageError

from ..support.opened import NAMES, opened


def _forward(x, w):
    """Y[m,h,w] = sum over c,p,q of X[c,h+p,w+q] W[m,c,p,q]."""
    maps, channels, k, _ = w.shape
    side = x.shape[1] - k + 1
    y = np.zeros((maps, side, side))
    for m, h, v, c, p, q in np.ndindex(maps, side, side, channels, k, k):
        y[m, h, v] += x[c, h + p, v + q] * w[m, c, p, q]
    return y


def _backward(x, w, dy):
    """dE/dX and dE/dW, by the loops that spread and collect each dE/dY."""
    dx, dw = np.zeros(x.shape), np.zeros(w.shape)
    for m, h, v, c, p, q in np.ndindex(*dy.shape, *w.shape[1:]):
        dx[c, h + p, v + q] += dy[m, h, v] * w[m, c, p, q]
        dw[m, c, p, q] += x[c, h + p, v + q] * dy[m, h, v]
    return dx, dw


@pytest.mark.parametrize("device", NAMES)
@pytest.mark.parametrize(
    ("name", "layer", "dy"),
    [("toy-gradients", "conv", "flatten_1.dx"), ("toy-unroll", "conv2d_1", "flatten_1.dx")],
)
def test_the_toys_are_computed_as_the_loops_do(name, layer, dy, device):
    opened(device)
    found = dnnstack.step(f"{name}.yaml", device=device)
    tensors = found.tensors
    x, w = tensors["x"][0], tensors[f"{layer}.weight"]
    y = _forward(x, w)
    np.testing.assert_array_equal(tensors[f"{layer}.y"][0], y)
    gap = y.reshape(1, -1) - tensors["target"]
    np.testing.assert_array_equal(tensors["loss.dx"], gap / y.size)
    assert tensors["loss"] == pytest.approx(0.5 * (gap**2).sum() / y.size)
    assert np.abs(tensors["loss.dx"]).sum() >= 5
    dx, dw = _backward(x, w, tensors[dy][0])
    np.testing.assert_array_equal(tensors[f"{layer}.weight.grad"], dw)
    if name == "toy-gradients":
        np.testing.assert_array_equal(tensors["conv.dx"][0], dx)
        np.testing.assert_array_equal(
            x[1], [[0, 2, 1, 0], [0, 3, 2, 1], [1, 1, 0, 2], [2, 1, 0, 3]]
        )
    else:
        windows = [x[:, h : h + 2, v : v + 2].ravel() for h in (0, 1) for v in (0, 1)]
        np.testing.assert_array_equal(tensors["conv2d_1.columns"], windows)
        # A view of the weights, which the update must not have moved.
        np.testing.assert_array_equal(tensors["conv2d_1.matrix"], w.reshape(2, 12))
        assert tensors["conv2d_1.columns"].size / x.size == pytest.approx(1.78, abs=0.01)
    assert found.rate == pytest.approx(0.1)
    np.testing.assert_allclose(tensors[f"after/{layer}.weight"], w - 0.1 * dw, rtol=1e-6)


def test_the_page_shows_each_tensor_once_and_again_where_it_was_changed():
    page = dnnstack.step("toy-gradients.yaml", device="numpy").as_text()
    head = "A training step of toy-gradients.yaml on numpy: sample 0, lr 0.1\n"
    assert page.startswith(head)
    block = (
        "conv, forward\n\n"
        "  Conv2d: y = f(x * w + bias): y[n,o,p,q] = "
        "sum over c,i,j of w[o,c,i,j] x[n,c,p s + i d,q s + j d].\n"
        "    numpy matmul\n"
        "    x = first.y  1x3x4x4, as above\n"
        "    w = conv.weight  1x3x3x3\n"
        "      1 0 1   0 1 0   1 1 0\n"
        "      0 1 0   1 0 1   0 0 1\n"
        "      1 0 0   0 0 1   0 1 0\n"
        "    y = conv.y  1x1x2x2\n"
        "      18 13\n"
        "      10 18\n"
    )
    assert block in page
    assert page.count("conv.weight  1x3x3x3\n") == 2
    assert page.count("w = conv.weight  1x3x3x3, as above\n") == 1
    assert "parameters = after/conv.weight  1x3x3x3\n       0.8 -0.1  0.4 " in page
    assert "(1 / K) sum over k of (x[k] - t[k])^2, half of it with half; " in page


SMALL = {
    "data.dataset": {"strokes": {"train_count": 200, "test_count": 10}},
    "data.batch_size": 9,
    "data.validation": 20,
}


def test_large_tensors_are_abbreviated_and_kept_whole(tmp_path):
    how = {**SMALL, "optimizer.clip_norm": 0.01, "train.max_steps": 3}
    found = dnnstack.step("lenet.yaml", overrides=how, device="numpy", data_dir=tmp_path)
    assert len(found.samples) == 9
    assert found.samples != tuple(range(9))
    page, told = found.as_text(), json.loads(json.dumps(found.to_json()))
    assert f"sample {', '.join(map(str, found.samples[:8]))}, ..., lr" in page
    weight = found.tensors["conv2d_1.weight"]
    begin = f"mean {weight.mean():.4g}, deviation {weight.std():.4g}; it begins with\n"
    row = page.partition(f"w = conv2d_1.weight  20x1x5x5\n      {begin}")[2].split("\n")
    assert row[0].split() == [f"{each:.4g}" for each in weight[0, 0, 0, :3]]
    assert [len(each.split()) for each in row[:3]] == [3, 3, 3]
    assert row[3].startswith("    y = ")
    # A clipped gradient has no value of before.
    assert "    dw = after/conv2d_1.weight.grad  20x1x5x5\n" in page
    assert "conv2d_1.weight.grad" not in found.tensors
    assert told["tensors"]["x"] == {
        "shape": [9, 1, 28, 28],
        "dtype": "float32",
        "mean": pytest.approx(found.tensors["x"].mean()),
        "deviation": pytest.approx(found.tensors["x"].std()),
    }
    assert told["tensors"]["target"]["values"] == found.tensors["target"].tolist()
    first = next(each for each in told["operations"] if each["op"] == "Conv2d")
    assert (first["layer"], first["phase"]) == ("conv2d_1", "forward")
    assert first["reads"]["w"] == ["conv2d_1.weight"]
    assert first["calls"] == ["numpy matmul"]
    found.save(tmp_path / "step.npz")
    with np.load(tmp_path / "step.npz") as kept:
        assert set(kept.files) == set(found.tensors)
        np.testing.assert_array_equal(kept["conv2d_1.weight"], weight)


def test_one_sample_is_a_batch_of_its_own(tmp_path):
    found = dnnstack.step("mlp-xor.yaml", sample=np.int64(2), device="numpy")
    assert found.samples == (2,)
    np.testing.assert_array_equal(found.tensors["x"][:, :, 0, 0], [[1, 0]])
    with pytest.raises(
        UsageError, match="sample 4: the training set has 4 samples, counted from 0"
    ):
        dnnstack.step("mlp-xor.yaml", sample=4)


def test_what_is_no_number_is_none_in_json():
    how = {"optimizer.lr": 1e38}
    found = dnnstack.step("toy-gradients.yaml", overrides=how, device="numpy").to_json()
    weights = found["tensors"]["after/conv.weight"]
    assert (weights["mean"], weights["values"][0][0][0][2]) == (None, None)
    assert found["tensors"]["conv.weight"]["values"][0][0][0] == [1, 0, 1]


def test_the_command_writes_what_it_prints(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    line = ["step", "--config", "mlp-xor.yaml", "--device", "numpy", "--sample", "1"]
    assert main([*line, "--json", "--save", "step.npz"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["samples"] == [1]
    with np.load("step.npz") as kept:
        assert set(kept.files) == set(told["tensors"])
    assert main([*line, "--save", "step.txt"]) == 2
    assert "choose a name that ends in .npz" in capsys.readouterr().err


def test_a_table_of_pictures_says_what_does_not_fit():
    with pytest.raises(DatasetError, match="'shape': 3x3x4 does not have the 27 values of a row"):
        dnnstack.step("toy-unroll.yaml", overrides={"data.dataset.table.shape": [3, 3, 4]})
    with pytest.raises(ConfigError, match=r"expected three numbers, \[C, H, W\]"):
        dnnstack.step("toy-unroll.yaml", overrides={"data.dataset.table.shape": [3, 9]})

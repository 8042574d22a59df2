"""The file for PyTorch: its text, what it answers, and how it trains on.

What it answers is computed by a few modules in NumPy; the last test asks PyTorch itself.
"""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from dnnstack.common.errors import ExportError
from dnnstack.exports import door, torch_file
from dnnstack.exports.c_integers import answers
from dnnstack.exports.door import Samples
from dnnstack.exports.plain import Plain
from dnnstack.exports.torch_file import Torch
from dnnstack.graph import ops
from dnnstack.graph.ops import Quantization
from dnnstack.training.inference.trained import Trained
from dnnstack.training.records.formats.pytorch_names import their_names
from safetensors.numpy import load

from ..support import numpy_torch
from ..support.exported import compared, packaged
from ..support.untrained import untrained

CONV = "{conv2d: {filters: %d, kernel_size: 3, padding: 1, use_bias: false}}"
BLOCK = f"{{residual: {{body: [{CONV}, batch_norm, relu, {CONV}, batch_norm]}}}}, relu"
BLOCKS = (
    f"[{CONV % 8}, {BLOCK % (8, 8)}, "
    "{residual: {body: ["
    "{conv2d: {filters: 12, kernel_size: 3, stride: 2, padding: same, use_bias: false}}, "
    "{batch_norm: {momentum: 0.3, eps: 0.001}}], shortcut: projection}}, gelu, "
    f"{BLOCK % (12, 12)}, {{dropout: {{rate: 0.2}}}}, "
    "{concat: {branches: [[{conv2d: {filters: 2, kernel_size: 1}}, relu], []]}}, "
    "{concat: {branches: [[{conv2d: {filters: 3, kernel_size: 1}}, relu], []]}}, "
    "global_avg_pool2d, {dense: {units: 3}}]"
)
VGG = (
    "[{conv2d: {filters: 2, kernel_size: 3, name: conv1_1}}, relu, "
    "{conv2d: {filters: 2, kernel_size: 3, name: conv1_2}}, relu, max_pool2d, flatten, "
    "{dense: {units: 5, name: fc6}}, relu, dropout, {dense: {units: 4, name: fc7}}, relu, "
    "dropout, {dense: {units: 3, name: fc8}}]"
)
TWO = "{residual: {name: %s, body: [%s, {dense: {units: 3, name: to}}]}}"


@pytest.fixture
def in_numpy(monkeypatch):
    numpy_torch.install(monkeypatch)


def files(trained: Trained) -> tuple[str, dict[str, Any]]:
    found = Torch().files(Plain.of(trained))
    return found[""].decode(), load(found[".safetensors"])


def test_the_text_has_the_layers_of_the_config():
    net = untrained(
        "[{max_pool2d: {name: one}}, relu, flatten, {dense: {units: 3}}]",
        (1, 7, 7),
        3,
        loss="hinge",
    )
    text = files(net)[0]
    assert (
        text[text.index("class Net") : text.index("def load")]
        == '''class Net(Layers):
    """(N, 1, 7, 7), as ``preprocess`` gives it -> (N, 3) scores."""

    def __init__(self):
        super().__init__({
            "one": nn.MaxPool2d((2, 2), (2, 2), padding=(0, 0)),
            "relu_1": nn.ReLU(),
            "flatten_1": nn.Flatten(),
            "dense_1": nn.Linear(9, 3, bias=True),
        })


def preprocess(raw):
    """raw: (N, 1, 7, 7) pixels from 0 to 255 -> what the network takes."""
    return torch.as_tensor(raw, dtype=torch.float32) * SCALE + SHIFT


'''
    )


@pytest.mark.parametrize("trained", [lambda: packaged("resnet18.yaml"), lambda: untrained(VGG)])
def test_names_are_those_of_torchvision(trained):
    net = untrained(VGG, (1, 8, 8), 3) if trained.__code__.co_names[0] == "untrained" else trained()
    names = {name for name in files(net)[1] if not name.endswith("num_batches_tracked")}
    assert names == {*their_names(net.checkpoint.arrays).values()}


def test_names_that_a_module_has_already(tmp_path, in_numpy):
    given = (
        "[{dense: {units: 4, name: train}}, {tanh: {name: class}}, {elu: {name: _1}}, "
        "{relu: {name: _}}, {dense: {units: 3, name: a-b}}, "
    )
    trained = untrained(
        f"{given}{{dense: {{units: 3, name: a_b}}}}, {TWO % ('r', 'relu')}, {TWO % ('s', 'tanh')}, "
        "{sequential: {name: _modules, layers: [{dense: {units: 3, name: type}}]}}]",
        (3, 1, 1),
        3,
        floats=True,
    )
    assert compared(Torch(), trained, tmp_path).largest < 1e-6
    names = {*files(trained)[1]}
    assert {
        "train_.weight",
        "a-b.weight",
        "a_b.weight",
        "r.to_.bias",
        "_modules_.type_.bias",
    } <= names


def test_what_follows_the_scores(in_numpy, tmp_path):
    numbers = untrained(
        "[{dense: {units: 2}}]", (3, 1, 1), 2, kind="numbers", loss="mse", floats=True
    )
    assert files(numbers)[0].endswith("    return net(preprocess(raw))\n")
    loss = "binary_cross_entropy"
    questions = untrained(
        "[flatten, {dense: {units: 2}}, sigmoid]", (1, 2, 2), 2, kind="yes_no", loss=loss
    )
    assert files(questions)[0].endswith("    return net(preprocess(raw)).sigmoid()\n")
    assert compared(Torch(), questions, tmp_path).largest < 1e-6


def _changed(plain: Plain, factor: float | None) -> Plain:
    """With another operation between the scores and the softmax."""
    *before, last = plain.ops
    y = plain.graph.tensor(f"by {factor}", last.x.shape)
    fields = {"x": last.x, "y": y, "origin": last.origin}
    new = ops.Scale(factor=factor, **fields) if factor else ops.Heaviside(**fields)
    return replace(plain, graph=plain.graph.with_ops([*before, new, replace(last, x=y)]))


def test_the_temperature_is_a_factor(in_numpy, tmp_path):
    trained = untrained("[flatten, {dense: {units: 3}}]", (1, 2, 2), 3)
    plain = _changed(Plain.of(trained), 0.625)
    path = tmp_path / "net.py"
    door._write(path, Torch().files(plain), durable=False)
    assert "(net(preprocess(raw)) * 0.625).softmax(1)" in path.read_text()
    raw = Samples.drawn(trained).stored
    twin: Any = Torch().twin(path, plain)
    np.testing.assert_allclose(twin.answers(raw), answers(plain, raw), atol=1e-6)
    with pytest.raises(ExportError, match="torch has no Heaviside after the scores"):
        Torch().files(_changed(plain, None))


def test_what_it_cannot_write_is_refused(monkeypatch):
    trained = untrained("[flatten, {dense: {units: 3, name: one}}]", (1, 2, 2), 3)
    whole = replace(trained.checkpoint, quantization={"one": Quantization(0.1, True)})
    with pytest.raises(ExportError, match=r"^layer 'one' \(dense\): torch has no .* in 8-bit inte"):
        Torch().check(Plain.of(Trained.of(whole)))
    monkeypatch.delitem(torch_file.MODULES, "tanh")
    unknown = Plain.of(untrained("[flatten, tanh, {dense: {units: 3}}]", (1, 2, 2), 3))
    expected = r"^layer 'tanh_1' \(tanh\): torch has no module for it; formats that "
    with pytest.raises(ExportError, match=f"{expected}have it: .*numpy"):
        Torch().check(unknown)


def test_without_pytorch_nothing_runs_the_file(monkeypatch, tmp_path):
    monkeypatch.setattr(torch_file.importlib.util, "find_spec", lambda name: None)
    assert Torch().twin(tmp_path / "net.py", Plain.of(untrained(VGG, (1, 8, 8), 3))) is None


def test_it_trains_on_in_pytorch(tmp_path):
    torch = pytest.importorskip("torch", reason="PyTorch, which no extra installs, is missing")
    torch.set_num_threads(1)
    trained = untrained(BLOCKS, (1, 7, 7), 3)
    assert compared(Torch(), trained, tmp_path).largest < 1e-5
    spec: Any = importlib.util.spec_from_file_location("net", tmp_path / "net.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    net = module.load()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    x = module.preprocess(Samples.drawn(trained).stored[:30])
    labels = torch.arange(30) % 3
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    net.train()
    losses = []
    for _ in range(30):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(net(x), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert np.mean(losses[-5:]) < 0.9 * np.mean(losses[:5])
    same = [name for name, value in net.state_dict().items() if torch.equal(value, before[name])]
    assert same == []

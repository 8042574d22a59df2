"""PyTorch's step beside ours: the same network, loss and rule, and what it refuses."""

from __future__ import annotations

import importlib.util
import sys
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from dnnstack.common.errors import BackendUnavailableError, ExportError
from dnnstack.configs import load_config
from dnnstack.exports.torch_step import torch_steps
from dnnstack.training.timing import made_up

from ..support import numpy_torch
from ..support.training_fixtures import *  # noqa: F403

ADAM = "optimizer={type: adamw, lr: 0.1, betas: [0.5, 0.75], weight_decay: 0.125}"


@pytest.fixture
def said(monkeypatch) -> dict[str, Any]:
    """PyTorch in NumPy, without gradients, and what it was asked for, by name."""
    said: dict[str, Any] = {"backward": 0, "step": 0}
    numpy_torch.install(monkeypatch)
    torch: Any = sys.modules["torch"]

    @contextmanager
    def autocast(device, dtype, enabled):
        said["autocast"] = (device, dtype, enabled)
        yield

    def counted(name):
        return lambda *given, **options: said.__setitem__(name, said[name] + 1)

    def rule(name):
        def make(parameters, **options):
            said["rule"] = (name, options)
            return SimpleNamespace(step=counted("step"), zero_grad=lambda set_to_none: None)

        return make

    def compiled(function):
        raise RuntimeError("no compiler\nsecond line")

    def cross_entropy(scores, targets, **options):
        said["scores"], said["targets"], said["loss"] = np.asarray(scores), targets, options
        return SimpleNamespace(backward=counted("backward"))

    tensor = numpy_torch.Tensor
    monkeypatch.setattr(tensor, "to", lambda x, device: x, raising=False)
    module = numpy_torch.Module
    # Its batch norm knows no training.
    monkeypatch.setattr(module, "to", lambda net, device: net.eval(), raising=False)
    monkeypatch.setattr(module, "parameters", lambda net: [], raising=False)
    names = {"SGD": rule("SGD"), "AdamW": rule("AdamW")}
    more = {
        "from_numpy": lambda array: np.asarray(array).view(tensor),
        "set_num_threads": lambda count: said.update(threads=count),
        "backends": SimpleNamespace(
            cuda=SimpleNamespace(matmul=SimpleNamespace()), cudnn=SimpleNamespace()
        ),
        "optim": SimpleNamespace(**names),
        "bfloat16": "bfloat16",
        "autocast": autocast,
        "compile": compiled,
    }
    vars(torch).update(more)
    torch.nn.functional.cross_entropy = cross_entropy
    return said


def _steps(config, backend):
    told: list[str] = []
    with made_up(config, Path("x"), backend, print) as session:
        return session, torch_steps(session, backend, told.append), told


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        (
            "optimizer={type: sgd, lr: 0.1, momentum: 0.5, nesterov: true, weight_decay: 0.25}",
            ("SGD", {"momentum": 0.5, "nesterov": True, "weight_decay": 0.25}),
        ),
        (ADAM, ("AdamW", {"betas": (0.5, 0.75), "eps": 1e-8, "weight_decay": 0.125})),
    ],
)
def test_loss_and_rule_are_those_of_the_config(tiny, onednn, said, change, rule):
    config = tiny(change, "loss={type: cross_entropy, label_smoothing: 0.2, reduction: sum}")
    _, steps, told = _steps(config, onednn)
    name, options = rule
    assert said["rule"] == (name, {"lr": 0.0, "fused": True, **options})
    assert said["loss"] == {"label_smoothing": 0.2, "reduction": "sum"}
    assert said["scores"].shape == (16, 10)
    assert (len(said["targets"]), said["threads"]) == (16, onednn.waiting_threads)
    assert said["autocast"] == ("cpu", "bfloat16", False)
    assert [*steps] == ["torch"]
    assert told == ["torch.compile fails, so it is left out: RuntimeError: no compiler"]
    said["backward"] = said["step"] = 0
    assert steps["torch"](3) > 0
    assert (said["backward"], said["step"]) == (3, 3)


@pytest.mark.parametrize("name", ["mlp.yaml", "lenet5.yaml", "cifar10-resnet20.yaml"])
def test_networks_of_the_package_have_a_step(onednn, said, name):
    config = load_config(name, ["data.batch_size=4", "data.validation=0"]).config
    _, steps, _ = _steps(config, onednn)
    assert said["scores"].shape == (4, 10)
    assert steps


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ("loss=hinge", "loss 'hinge'"),
        ("optimizer={type: muon, lr: 0.1, rest: {type: sgd, lr: 0.1}}", "optimizer 'muon'"),
    ],
)
def test_what_has_no_translation_is_refused(tiny, onednn, said, change, what):
    with pytest.raises(ExportError, match=f"^{what}: is not translated to PyTorch; compare with"):
        _steps(tiny(change), onednn)


def test_without_pytorch_it_says_how_to_install_it(tiny, onednn, monkeypatch):
    find = importlib.util.find_spec
    absent = lambda name: None if name == "torch" else find(name)  # noqa: E731
    monkeypatch.setattr(importlib.util, "find_spec", absent)
    with pytest.raises(BackendUnavailableError, match="python3 -m pip install torch"):
        _steps(tiny(), onednn)


def test_pytorch_itself_takes_steps(tiny, onednn):
    pytest.importorskip("torch", reason="PyTorch, which no extra installs, is missing")
    _, steps, told = _steps(tiny("run.precision=bf16"), onednn)
    assert [*steps] == (["torch"] if told else ["torch", "torch.compile"])
    assert all(run(2) > 0 for run in steps.values())

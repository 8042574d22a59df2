"""PyTorch's step beside ours: the same network, loss and rule, and what it refuses."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import pytest
from dnnstack.common.errors import BackendUnavailableError, ExportError
from dnnstack.configs import load_config
from dnnstack.exports.torch_step import torch_steps
from dnnstack.training.timing import made_up

from ..support import numpy_torch
from ..support.training_fixtures import *  # noqa: F403


@pytest.fixture
def torch(monkeypatch) -> Any:
    """PyTorch in NumPy, without gradients and compiler, that notes what it was asked for."""
    numpy_torch.install(monkeypatch)
    torch: Any = sys.modules["torch"]
    tensor, module = numpy_torch.Tensor, numpy_torch.Module
    monkeypatch.setattr(tensor, "to", lambda x, device: x, raising=False)
    # Its batch norm knows no training.
    monkeypatch.setattr(module, "to", lambda net, device: net.eval(), raising=False)
    monkeypatch.setattr(module, "parameters", lambda net: ["w"], raising=False)
    for name in ("autocast", "backends", "bfloat16", "optim", "set_num_threads"):
        setattr(torch, name, MagicMock())
    torch.from_numpy = lambda array: np.asarray(array).view(tensor)
    torch.compile = MagicMock(side_effect=RuntimeError("no compiler\nsecond line"))
    torch.nn.functional.cross_entropy = MagicMock()
    return torch


def _steps(config, backend):
    told: list[str] = []
    with made_up(config, Path("x"), backend, print) as session:
        return torch_steps()(session, backend, told.append), told


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        (
            "optimizer={type: sgd, lr: 0.1, momentum: 0.5, nesterov: true, weight_decay: 0.25}",
            ("SGD", {"momentum": 0.5, "nesterov": True, "weight_decay": 0.25}),
        ),
        (
            "optimizer={type: adamw, lr: 0.1, betas: [0.5, 0.75], weight_decay: 0.125}",
            ("AdamW", {"betas": (0.5, 0.75), "eps": 1e-8, "weight_decay": 0.125}),
        ),
    ],
)
def test_loss_and_rule_are_those_of_the_config(tiny, onednn, torch, change, rule):
    config = tiny(change, "loss={type: cross_entropy, label_smoothing: 0.2, reduction: sum}")
    steps, told = _steps(config, onednn)
    name, options = rule
    made, loss = getattr(torch.optim, name), torch.nn.functional.cross_entropy
    made.assert_called_with(["w"], lr=0.0, fused=True, **options)
    (scores, targets), given = loss.call_args
    assert given == {"label_smoothing": 0.2, "reduction": "sum"}
    assert (scores.shape, targets.shape, targets.dtype) == ((16, 10), (16,), np.int64)
    torch.set_num_threads.assert_called_with(onednn.waiting_threads)
    torch.autocast.assert_called_with("cpu", torch.bfloat16, enabled=False)
    assert torch.backends.cudnn.allow_tf32 is False
    assert [*steps] == ["torch"]
    assert told == [
        "beside torch of PyTorch in NumPy",
        "torch.compile fails, so it is left out: RuntimeError: no compiler",
    ]
    calls = loss.return_value.backward, made.return_value.step, made.return_value.zero_grad
    before = [call.call_count for call in calls]
    assert steps["torch"](3) > 0
    assert [call.call_count for call in calls] == [count + 3 for count in before]


@pytest.mark.parametrize("name", ["mlp.yaml", "lenet5.yaml", "cifar10-resnet20.yaml"])
def test_networks_of_the_package_have_a_step(onednn, torch, name):
    _steps(load_config(name, ["data.batch_size=4", "data.validation=0"]).config, onednn)
    assert torch.nn.functional.cross_entropy.call_args.args[0].shape == (4, 10)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ("loss=hinge", "loss 'hinge'"),
        ("optimizer={type: muon, lr: 0.1, rest: {type: sgd, lr: 0.1}}", "optimizer 'muon'"),
    ],
)
def test_what_has_no_translation_is_refused(tiny, onednn, torch, change, what):
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
    steps, told = _steps(tiny(), onednn)
    assert [*steps] == [line.split()[1] for line in told if line.startswith("beside ")]
    assert "torch" in steps
    assert all(run(2) > 0 for run in steps.values())

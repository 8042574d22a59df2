"""``weights``: what a file contains, what a network takes of it, and a file for PyTorch."""

from __future__ import annotations

import json
import platform
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest
from dnnstack.cli.main import main
from safetensors.numpy import save_file

CONFIG = """\
data: {dataset: strokes, normalize: {mean: 0.5}}
layers: [flatten, {dense: {units: 10, name: fc}}]
optimizer: {type: sgd, lr: 0.1}
train: {epochs: 1}
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("mine.yaml").write_text(CONFIG)
    arrays = {
        "fc.weight": np.ones((10, 784), np.float32),
        "fc.bias": np.ones(9, np.float32),
        "more": np.array(3, np.int64),
    }
    save_file(arrays, "w.safetensors")
    return tmp_path


def test_names_of_others_are_printed_so_that_nothing_obeys_them(capsys):
    save_file({"a\x1b[31m\nFAKE: b": np.ones(2, np.float32)}, "e.safetensors")
    assert main(["weights", "e.safetensors"]) == 0
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert r"a\x1b[31m\nFAKE: b" in out


@pytest.mark.parametrize("words", [("eval", "--checkpoint"), ("predict", "5.png", "--checkpoint")])
def test_weights_alone_are_no_checkpoint(words, capsys):
    """Nor a damaged one: the message says what they are good for."""
    assert main([*words, "w.safetensors"]) == 1
    said = " ".join(capsys.readouterr().err.split())
    assert "w.safetensors: has weights alone, without the config of their network;" in said
    assert said.endswith("begin a training with them: --init-from w.safetensors")
    Path("w.json").write_text("{}", encoding="utf-8")
    assert main([*words, "w.safetensors"]) == 1
    assert "has weights alone" not in capsys.readouterr().err


def test_of_a_run_the_versions_are_shown(capsys):
    train = ["train", "--config", "mine.yaml", "--device", "numpy", "--set", "train.max_steps=1"]
    assert main(train) == 0
    capsys.readouterr()
    assert main(["weights", "mine"]) == 0
    made = f"trained with dnnstack {version('dnnstack')}, Python {platform.python_version()}, NumPy"
    assert capsys.readouterr().out.splitlines()[2].startswith(made)
    assert main(["weights", "mine", "--json"]) == 0
    versions = json.loads(capsys.readouterr().out)["versions"]
    assert versions["NumPy"] == versions["numpy"] == np.__version__
    assert main(["weights", "w.safetensors", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["versions"] is None

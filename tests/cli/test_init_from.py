"""``train --init-from``, as a person types it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from dnnstack.cli.main import main
from safetensors.numpy import save_file

from .conftest import TINY

BASE = ("--set", "train={max_steps: 2}", "--device", "numpy", "--threads", "1")
Train = Callable[..., tuple[int, str, str]]


@pytest.fixture
def train(tmp_path, cache, monkeypatch, capsys):
    """Exit status, output and errors of a short training in a folder with ``tiny.yaml``."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DNNSTACK_CACHE", str(cache))
    small = TINY.replace("train_count: 480, test_count: 100", "train_count: 160, test_count: 10")
    Path("tiny.yaml").write_text(small)

    def run(*words: str, config: str = "tiny.yaml") -> tuple[int, str, str]:
        status = main(["train", "--config", config, *BASE, *words])
        return status, *capsys.readouterr()

    return run


def test_a_file_beside_the_config_and_one_of_the_command_line(train, tmp_path):
    there = tmp_path / "there"
    there.mkdir()
    for place in (there, tmp_path):
        arrays = {"dense_1.bias": np.zeros(10), "a\x1b[31m\nFAKE: b": np.ones(2)}
        save_file(arrays, place / "w.safetensors")
    (there / "mine.yaml").write_text(f"init_from: w.safetensors\n{Path('tiny.yaml').read_text()}")
    for given, folder in (((), there), (("--init-from", "w.safetensors"), tmp_path)):
        status, out, err = train(*given, config="there/mine.yaml")
        assert status == 0
        assert err.endswith("to begin it anew: --set init_from.skip=dense_1.*\n")
        path = folder / "w.safetensors"
        assert f"init        1 of 4 arrays from {path}\n" in out
        assert "\x1b" not in out
        assert r"left        a\x1b[31m\nFAKE: b (2,): the network has none" in out
        # The config of the run leads to the same file from everywhere.
        assert f"\ninit_from: {path}\n" in Path("runs/latest/config.yaml").read_text()


def test_a_file_that_cannot_be_read_leaves_no_run(train, tmp_path):
    for name in ("model.pth", "other.safetensors"):
        Path(name).write_bytes(b"\x80\x04x")
        status, _, err = train("--init-from", name)
        assert status == 1
        assert err.startswith(f"dnnstack: error: {tmp_path / name}: is a pickle of PyTorch")
    assert not Path("runs").exists()


def test_a_wrong_pattern_has_its_place(train):
    assert train()[0] == 0
    text = Path("tiny.yaml").read_text()
    Path("mine.yaml").write_text(f"init_from: {{source: tiny, skip: dens_1.*}}\n{text}")
    assert train(config="mine.yaml")[2] == (
        "dnnstack: error: mine.yaml:1:33: init_from.skip: no array of the network matches "
        "'dens_1.*'; it has conv2d_1.weight, conv2d_1.bias, dense_1.weight, dense_1.bias\n"
    )
    Path("mine.yaml").write_text(f"freeze: [conv2d_1, dense]\n{text}")
    assert train(config="mine.yaml")[2] == (
        "dnnstack: error: mine.yaml:1:20: freeze.1: no layer matches 'dense'; did you mean "
        "'dense_1'? The layers with parameters are conv2d_1, dense_1\n"
    )

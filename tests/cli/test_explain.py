"""``dnnstack explain``: text and JSON, measured or not."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., subprocess.CompletedProcess[str]]


def _notes(stderr: str) -> list[str]:
    """What was said, but for the load of the machine, which is not the test's."""
    load = ("dnnstack: other programs ", "dnnstack: the fastest calls were chosen again",
            "dnnstack: timing the library's calls")  # fmt: skip
    return [line for line in stderr.splitlines() if not line.startswith(load)]


@pytest.mark.parametrize("device", ["numpy", "cpu"])
def test_text_tells_layer_by_layer(run, device, environment, monkeypatch):
    monkeypatch.setitem(environment, "COLUMNS", "80")
    done = run("explain", "--config", "tiny.yaml", "--device", device)
    assert (done.returncode, _notes(done.stderr)) == (0, [])
    lines = done.stdout.splitlines()
    assert lines[0] == "A training step of tiny.yaml, batch 32"
    assert max(map(len, lines)) <= 79
    layers = [line.split()[0] for line in lines if line[:1].isalpha()][2:]
    assert layers == [
        *("data", "conv2d_1", "relu_1", "max_pool2d_1", "flatten_1", "dense_1"),
        *("loss", "sgd", "total"),
    ]
    assert "            fused: Conv2d + BiasAdd + Activation relu of relu_1" in lines
    assert "            all at once: conv2d_1, dense_1" in lines
    if device == "cpu":
        page = (Path(__file__).parents[2] / "docs/explain.md").read_text("utf-8")
        kinds = re.findall(r"\[(\w+):", done.stdout)
        layouts = [name for name in re.findall(r"f32 (\w+) ", done.stdout) if name[0] in "nx"]
        assert kinds
        assert layouts
        for name in (*kinds, *layouts):
            assert f"`{name}`" in page, name
    assert " us" not in done.stdout
    assert "of limit" not in done.stdout


def test_a_pipe_gets_whole_lines(run):
    done = run("explain", "--config", "tiny.yaml", "--device", "cpu", "--measure")
    lines = done.stdout.splitlines()
    (backward,) = [line for line in lines if "Conv2dBackwardFilter  " in line]
    assert re.search(r"32x1x28x28, .*-> 4x1x5x5.*  [\d.]+ (M|k)  .* [um]s", backward)
    after = lines[lines.index(backward) + 1 :]
    (arguments,) = [line for line in after if "diff_weights=" in line][:1]
    assert "src=" in arguments
    assert "diff_dst=" in arguments
    assert not any(line.endswith(",") for line in lines)


def test_a_short_training_can_be_measured(run):
    run(
        *("explain", "--config", "tiny.yaml", "--device", "numpy", "--measure", "--json"),
        *("--set", "train={max_steps: 1}", "--set", "optimizer.lr=1e30"),
        status=0,
    )

"""``dnnstack explain``: text and JSON, measured or not."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., subprocess.CompletedProcess[str]]

# The tiny net's plain graph has these; fusing unites them and loses none.
FORWARD = {"Conv2d", "Pool2d", "Reshape", "MatMul"}


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


def test_json_is_one_object(run):
    done = run("explain", "--config", "tiny.yaml", "--device", "numpy", "--measure", "--json")
    assert (done.returncode, _notes(done.stderr)) == (0, [])
    found = json.loads(done.stdout)
    assert list(found) == [
        *("config", "backend", "versions", "batch_size", "limits", "layers", "totals"),
        "whole_step",
    ]
    assert list(found["totals"]) == ["data", "forward", "loss", "backward", "update", "step"]
    step = found["totals"].pop("step")
    for key in ("operations", "calls", "flops", "bytes"):
        assert step[key] == sum(total[key] for total in found["totals"].values())
    assert step["seconds"] == pytest.approx(
        sum(total["seconds"] for total in found["totals"].values())
    )
    speed, bandwidth = found["limits"]["gflops"], found["limits"]["gbytes_per_second"]
    operations = [op for layer in found["layers"] for op in layer["operations"]]
    assert {op["op"] for op in operations if op["phase"] == "forward"} == FORWARD
    for op in operations:
        assert all(call["seconds"] >= 0 for call in op["calls"])
        limit = max(op["flops"] / speed, op["bytes"] / bandwidth)
        assert op["limit_seconds"] == pytest.approx(limit / 1e9)
        share = op["limit_seconds"] / op["seconds"]
        assert op["fraction_of_limit"] == (pytest.approx(share) if share <= 1 else None)


def test_a_short_training_can_be_measured(run):
    run(
        *("explain", "--config", "tiny.yaml", "--device", "numpy", "--measure", "--json"),
        *("--set", "train={max_steps: 1}", "--set", "optimizer.lr=1e30"),
        status=0,
    )


def test_no_graph_is_taken_and_explained_on_a_cpu(run):
    done = run("explain", "--config", "tiny.yaml", "--device", "numpy", "--no-graph", status=0)
    assert "--no-graph has no effect here" in done.stderr

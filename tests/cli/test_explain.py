"""``dnnstack explain``: text and JSON, measured or not."""

from __future__ import annotations

import re


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

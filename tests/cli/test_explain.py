"""``dnnstack explain``: text and JSON, measured or not."""

from __future__ import annotations

import json
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


def test_algorithms_are_compared_instead(run):
    words = ("explain", "--config", "tiny.yaml", "--device", "numpy", "--algorithms")
    done = run(*words, status=0)
    assert done.stdout.startswith("The convolutions of tiny.yaml, batch 32, forward, in float32\n")
    assert "refused: winograd takes a window of 3x3 with stride and dilation 1 alone, not 5x5" in (
        done.stdout
    )
    (first, *_) = json.loads(run(*words, "--json", status=0).stdout)["convolutions"]
    assert (first["layer"], first["y"][0]) == ("conv2d_1", 32)
    assert [way["name"] for way in first["algorithms"]] == ["direct", "im2col", "fft"]
    for other in ("--measure", "--ranks=2"):
        wrong = run(*words, other, status=2)
        assert "--algorithms cannot be used with --measure or --ranks" in wrong.stderr

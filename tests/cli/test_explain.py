"""``dnnstack explain``: text and JSON, measured or not."""

from __future__ import annotations

import json
import re
import sys

import pytest
from dnnstack.backends.ahead import NVIDIA_DRIVER

from ..support.ran import ran

H100 = "NVIDIA H100 80GB HBM3"


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


@pytest.mark.parametrize(("value", "told"), [("lecture", "lecture"), ("best", None)])
def test_calls_that_are_not_the_best_are_told(run, value, told):
    given = ("explain", "--config", "tiny.yaml", "--device", "numpy", "--json")
    done = run(*given, "--set", f"run.calls={value}", status=0)
    assert json.loads(done.stdout)["versions"].get("calls") == told
    assert ("run.calls: the lecture's calls are a GPU's" in done.stderr) == (told is not None)


BLOCKED = """
import sys
blocked = ("cupy", "cupy_backends", "cudnn", "cuda")
sys.modules.update(dict.fromkeys(blocked))
from dnnstack.cli.main import main
status = main(sys.argv[1:])
print([name for name in blocked if sys.modules[name]], file=sys.stderr)
sys.exit(status)
"""


@pytest.mark.parametrize("command", ["explain", "summary"])
def test_a_card_needs_neither_a_gpu_nor_its_packages(command, tmp_path):
    line = [sys.executable, "-c", BLOCKED, command, "--config", "lenet.yaml", "--card", "h100"]
    done = ran(line, cwd=tmp_path)
    first, *_ = done.stdout.splitlines()
    assert first == f"Not measured, no GPU was used: a step on one {H100}"
    assert done.stderr == "[]\n"


def test_a_card_s_calls_limits_and_what_timing_decides(run):
    given = ("explain", "--config", "tiny.yaml", "--set", "run.precision=bf16")
    lines = run(*given, "--card", "H100", status=0).stdout.splitlines()
    assert lines[1].startswith("limits by its maker: 989.4 TFLOP/s in bf16, 3350 GB/s, 132 multi")
    assert lines[2].startswith("choices: the defaults; explain lists what is decided")
    assert lines[4].startswith("at a glance: the step takes at least ")
    assert "at least" in next(line for line in lines if "FLOP   bytes" in line)
    decided = [line.strip() for line in lines if line.strip().startswith("decided by")]
    assert "decided by timing on the card: cublasGemmEx" in "\n".join(decided)
    told = json.loads(run(*given, "--card", "h100", "--json", status=0).stdout)
    assert (told["limits"], told["whole_step"], told["backend"]) == (None, None, "cuda")
    card = told["foreseen"]
    assert card.pop("needed") > 1e8
    assert card == {
        "card": H100,
        "precision": "bf16",
        "limits": {"gflops": 989.4e3, "gbytes_per_second": 3350},
        "timed": None,
    }
    for op in (op for layer in told["layers"] for op in layer["operations"]):
        if op["calls"]:
            least = max(op["flops"] / 989.4e12, op["bytes"] / 3.35e12)
            assert op["limit_seconds"] == pytest.approx(least)
        functions = " + ".join(dict.fromkeys(call["function"] for call in op["calls"]))
        functions = functions or "no call of its own"
        assert functions in op.get("candidates", [functions])
        assert all(call["seconds"] is None for call in op["calls"])


@pytest.mark.skipif(NVIDIA_DRIVER.exists(), reason="this machine has a GPU")
def test_a_gpu_that_is_wanted_and_not_there_is_foreseen(run):
    given = ("explain", "--config", "tiny.yaml", "--device", "cuda")
    assert H100 in run(*given, status=0).stdout
    assert "device 'cuda'" in run(*given, "--measure", status=1).stderr
    assert H100 in run(*given[:3], "--set", "run.device=cuda", status=0).stdout
    assert H100 not in run(*given[:3], "--device", "numpy", status=0).stdout


def test_what_is_foreseen_for_a_run_is_not_stored(run_in, trained):
    before = sorted((trained / "runs/tiny").iterdir())
    run_in(trained, "explain", "--config", "runs/tiny/config.yaml", "--card", "t4", status=0)
    assert sorted((trained / "runs/tiny").iterdir()) == before


def test_a_card_that_can_not_be_had_is_wrong_usage(run):
    for words, said in (
        (["--card", "h10"], "'h10' is not one of 'h100', 'h200', 'a100'"),
        (["--card", "h100", "--measure"], "nothing can be measured on card h100"),
        (["--card", "h100", "--device", "cpu"], "card h100 is a GPU: it does not go with the dev"),
        (["--card", "h100", "--ranks", "2"], "--card is of one GPU: leave out --ranks"),
    ):
        assert said in run("explain", "--config", "tiny.yaml", *words, status=2).stderr
    said = run("summary", "--config", "tiny.yaml", "--card", "t4", "--ranks", "2", status=2).stderr
    assert "--card is of one GPU: leave out --ranks" in said


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

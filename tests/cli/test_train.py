"""Training from the command line: what is printed and written, resuming, stopping."""

from __future__ import annotations

import json
import os
import pty
import re
import shlex
import subprocess

import pytest
from dnnstack.configs import parse_config

STEPS = 26


@pytest.mark.parametrize("device", ["numpy", "cpu"])
def test_a_day(run, tmp_path, device):
    trained = run("train", "--config", "tiny.yaml", "--device", device, status=0)
    lines = trained.stdout.splitlines()
    assert lines[0] == "config      tiny (tiny.yaml)"
    assert re.match(r"device      (numpy|onednn): .*threads \d", lines[1])
    assert lines[2] == "run         runs/tiny"
    assert lines[3] == "data        416 pictures for training, 64 for validation"
    assert lines[4] == f"steps       {STEPS}: batches of 32, 13 per epoch"
    logged = re.compile(
        r"step +\d+/26  epoch \d\.\d\d/2  loss \d\.\d{4}  accuracy \d+\.\d\d%  lr 0\.1  "
        r"\d+ pictures/s  .* left"
    )
    assert [int(line.split()[1].split("/")[0]) for line in lines if logged.fullmatch(line)] == [
        *(5, 10, 15, 20, 25, 26)
    ]
    validated = [line for line in lines if re.match(r"epoch [12]: validation loss ", line)]
    assert len(validated) == 2
    assert validated[0].endswith(" (best)")
    assert f"saved       runs/tiny/checkpoints/step-{STEPS}.safetensors" in lines
    assert lines[-1] == "next        dnnstack eval"
    assert "\r" not in trained.stdout
    assert {path.name for path in (tmp_path / "runs" / "tiny").iterdir()} >= {
        *("config.yaml", "log.jsonl", "metrics.csv", "checkpoints")
    }

    evaluated = run(*shlex.split(lines[-1].partition("dnnstack ")[2]), "--json", status=0)
    assert json.loads(evaluated.stdout)["count"] == 100
    assert "using runs/tiny, the latest run" in evaluated.stderr


def test_a_packaged_config_says_so(run):
    done = run(
        *("train", "--config", "digits.yaml", "--device", "numpy", "--threads", "1"),
        *("--runs-dir", "my runs", "--set", "train.epochs=1"),
        *("--set", "data.dataset={strokes: {train_count: 96, test_count: 32}}"),
        *("--set", "data.validation=32"),
        status=0,
    )
    lines = done.stdout.splitlines()
    assert re.fullmatch(r"config      digits \(ships with the package\)", lines[0])
    assert lines[2] == "run         my runs/digits"
    assert lines[-1] == "next        dnnstack eval --run 'my runs/digits'"


def test_flags_are_part_of_the_effective_config(run, tmp_path):
    done = run(
        *("train", "--config", "tiny.yaml", "--device", "numpy", "--threads", "1"),
        *("--set", "train={max_steps: 1}", "--gpus", "0,1"),
        status=0,
    )
    assert "--gpus has no effect here: the device is numpy, not cuda" in done.stderr
    text = (tmp_path / "runs" / "tiny" / "config.yaml").read_text("utf-8")
    config = parse_config(text, "config.yaml")
    assert (config.run.device, config.run.threads, config.train.max_steps) == ("numpy", 1, 1)


@pytest.mark.parametrize(("columns", "rate"), [(80, ""), (120, "lr 0.1 ")])
def test_a_terminal_gets_a_bar(run, tmp_path, environment, command, columns, rate):
    parent, child = pty.openpty()
    with subprocess.Popen(
        [*command, "train", "--config", "tiny.yaml", "--device", "numpy"],
        cwd=tmp_path,
        env={**environment, "COLUMNS": str(columns), "LINES": "24"},
        stdout=child,
        stderr=subprocess.PIPE,
    ) as process:
        os.close(child)
        pieces = []
        try:
            while piece := os.read(parent, 65536):
                pieces.append(piece)
        except OSError:
            pass  # how Linux says that the other end of a terminal has closed
        assert process.stderr is not None
        assert process.stderr.read() == b""
    os.close(parent)
    shown = b"".join(pieces).decode()
    assert process.returncode == 0
    bars = [part for part in re.split(r"[\r\n]+", shown) if "|" in part]
    # A terminal that echoes ^C behind the bar must not wrap it.
    assert max(map(len, bars)) <= columns - len("^C")
    full = r"26/26 100% \|.*\| epoch 2\.00/2 loss \d\.\d+ acc \d+\.\d% " + rate + r"\d+/s 0:00 left"
    assert any(re.fullmatch(full, bar.strip()) for bar in bars)
    assert not re.search(r"(?m)^step ", shown)
    assert "epoch 2: validation loss" in shown
    assert shown.rstrip().endswith("next        dnnstack eval")

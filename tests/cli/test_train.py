"""Training from the command line: what is printed and written, resuming, stopping."""

from __future__ import annotations

import json
import os
import pathlib
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


def test_json_lines_and_nothing_else(run, tmp_path):
    first = ("train", "--config", "tiny.yaml", "--json", "--set", "train.max_steps=13")
    done = run(*first, status=0)
    found = [json.loads(line) for line in done.stdout.splitlines()]
    kinds = [each["event"] for each in found]
    assert kinds == ["start", *["log"] * 3, "validation", "end"]
    assert found[0] == {
        "event": "start",
        "run": "runs/tiny",
        "step": 0,
        "total_steps": 13,
        "steps_per_epoch": 13,
    }
    rows = (tmp_path / "runs" / "tiny" / "metrics.csv").read_text().splitlines()[1:]
    losses = [each.get("loss", each.get("val_loss")) for each in found[1:-1]]
    assert losses == [float(row.split(",")[3]) for row in rows]
    assert [each["step"] for each in found[1:]] == [5, 10, 13, 13, 13]
    end = {key: found[-1][key] for key in ("state", "run", "step", "goal")}
    assert end == {"state": "finished", "run": "runs/tiny", "step": 13, "goal": None}
    assert found[-1]["best"]["accuracy"] == found[-2]["val_accuracy"]
    assert "history" not in found[-1]
    more = ("--set", "train.goal={accuracy: 1}", "--set", "optimizer.lr=1e-9", "--resume")
    again = run("train", "--config", "tiny.yaml", "--json", *more, status=3)
    lines = [json.loads(line) for line in again.stdout.splitlines()]
    assert (lines[0]["event"], lines[0]["step"], lines[-1]["goal"]) == ("start", 13, False)
    # Notes are elsewhere.
    assert "resuming with a changed config" in again.stderr


def test_json_of_what_is_not_finite(capsys):
    from dnnstack.cli.progress import JsonLines

    JsonLines().on_log({"step": 3, "loss": float("nan"), "accuracy": 0.5, "run": pathlib.Path("a")})
    expected = {"event": "log", "step": 3, "loss": None, "accuracy": 0.5, "run": "a"}
    assert json.loads(capsys.readouterr().out) == expected


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

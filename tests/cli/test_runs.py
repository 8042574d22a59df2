"""The list of runs, and what a run says of a rollback and of its early end."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from typing import Any

Child = Callable[..., Any]
Run = Callable[..., subprocess.CompletedProcess[str]]
TRAIN = ("train", "--config", "tiny.yaml", "--device", "numpy", "--threads", "1")


def test_a_list_and_its_json(run_in, trained, tmp_path):
    shown = run_in(trained, "runs")
    assert (shown.returncode, shown.stderr) == (0, "")
    head, line = shown.stdout.splitlines()
    assert head.split() == ["run", "state", "best", "step", "time", "config"]
    assert re.fullmatch(r"tiny  finished  +\d+\.\d\d%  26/26  \d+:\d\d  tiny", line)
    (entry,) = json.loads(run_in(trained, "runs", "--json").stdout)
    assert (entry["run"], entry["state"], entry["step"]) == ("tiny", "finished", 26)
    elsewhere = run_in(tmp_path, "runs", "--runs-dir", str(trained / "runs"))
    assert elsewhere.stdout.splitlines()[1] == line
    nothing = run_in(tmp_path, "runs", status=0)
    assert nothing.stdout.startswith("no run in runs yet; dnnstack train --config digits.yaml")


def test_a_rollback_is_told_now_and_at_a_resume(child, run, tmp_path):
    rolled = ("--set", "train.on_nan=rollback", "--set", "checkpoint={every_steps: 4}")
    nan = {"nan_at": 7, "nan_above": 0.06}
    ended = child(tmp_path, *TRAIN, *rolled, phase="end", signal=15, **nan)
    assert ended.status == 143, ended.text
    told = "going back to step 4 with 0.5 times the learning rate (rollback 1 of 3)"
    assert told in ended.text.replace("\n", " ")
    again = run(*TRAIN, *rolled, "--set", "train.epochs=3", "--resume", status=0)
    assert "rate        0.5 times the schedule's, after a rollback" in again.stdout.splitlines()


def test_divergence_is_an_error_that_names_step_tensor_and_layer(child, run, tmp_path):
    ended = child(tmp_path, *TRAIN, nan_at=7, nan_above=0.0)
    assert ended.status == 1
    assert "Traceback" not in ended.text
    assert "error: step 7: SgdUpdate of layer 'conv2d_1' (update) gave the first" in ended.text
    assert "100 nan of 100 in 'conv2d_1.weight' (4, 1, 5, 5)" in ended.text
    assert re.search(r"(?m)^tiny  failed ", run("runs").stdout)


def test_an_early_end_is_told(run, tmp_path):
    rate = ("--set", "optimizer.lr=1e-20", "--set", "train={epochs: 9, patience: 1}")
    done = run(*TRAIN, *rate, status=0)
    lines = done.stdout.splitlines()
    assert any(line.startswith("finished    at step 26 of 117 ") for line in lines)
    assert "early       no validation after step 13 was better" in lines

"""The list of runs, and what a run says of a rollback and of its early end."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from typing import Any

Child = Callable[..., Any]
Run = Callable[..., subprocess.CompletedProcess[str]]
TRAIN = ("train", "--config", "tiny.yaml", "--device", "numpy", "--threads", "1")


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

"""``dnnstack eval`` on a finished run: text, JSON, splits."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., subprocess.CompletedProcess[str]]
STEPS = 26
CHECKPOINT = f"runs/tiny/checkpoints/step-{STEPS}.safetensors"
KEYS = [
    *("checkpoint", "dataset", "split", "count", "correct", "accuracy", "loss"),
    *("per_class", "confusion_matrix"),
]


def _json(run_in: Run, folder: Path, *arguments: str) -> dict[str, Any]:
    done = run_in(folder, "eval", "--json", *arguments)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\n") == 1
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("device", ["numpy", "cpu"])
@pytest.mark.parametrize(("split", "count"), [("test", 100), ("validation", 64), ("train", 416)])
def test_json_counts_every_picture_once(
    run_in: Run, trained: Path, split: str, count: int, device: str
) -> None:
    found = _json(run_in, trained, "--split", split, "--device", device, "--run", "tiny")
    assert list(found) == KEYS
    assert found["checkpoint"].startswith("runs/tiny/checkpoints/step-")
    assert (found["dataset"], found["split"], found["count"]) == ("strokes", split, count)
    matrix = found["confusion_matrix"]
    assert [len(row) for row in matrix] == [10] * 10
    assert sum(map(sum, matrix)) == count
    assert sum(matrix[i][i] for i in range(10)) == found["correct"]
    assert found["accuracy"] == found["correct"] / count
    assert 0 < found["loss"] < 10
    for index, entry in enumerate(found["per_class"]):
        right, many = matrix[index][index], sum(matrix[index])
        assert entry == {
            "label": str(index),
            "index": index,
            "count": many,
            "correct": right,
            "accuracy": right / many,
        }


def test_validation_is_what_training_said(run_in: Run, trained: Path) -> None:
    log = (trained / "runs" / "tiny" / "log.jsonl").read_text("utf-8").splitlines()
    events = [event for line in log if (event := json.loads(line))["event"] == "validation"]
    best = max(events, key=lambda event: (event["accuracy"], -event["loss"]))
    found = _json(run_in, trained, "--split", "validation", "--device", "numpy")
    assert found["correct"] == best["correct"]
    assert found["loss"] == pytest.approx(best["loss"], rel=1e-6)


def test_text_fits_80_columns(run_in: Run, trained: Path) -> None:
    done = run_in(trained, "eval", "--checkpoint", CHECKPOINT, "--device", "numpy")
    assert (done.returncode, done.stderr) == (0, "")
    found = _json(run_in, trained, "--checkpoint", CHECKPOINT, "--device", "numpy")
    lines = done.stdout.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[:2] == [CHECKPOINT, "on strokes, split test: 100 pictures"]
    accuracy = f"accuracy  {found['accuracy']:.2%}  ({found['correct']} right, "
    assert any(line.startswith(accuracy) for line in lines)
    assert f"loss      {found['loss']:.4f}" in lines
    rows = [line.split() for line in lines[-10:]]
    cells = [[0 if cell == "." else int(cell) for cell in row[1:11]] for row in rows]
    assert cells == found["confusion_matrix"]


def test_the_run_that_is_taken_is_named_on_stderr(run_in: Run, trained: Path) -> None:
    done = run_in(trained, "eval", "--device", "numpy")
    assert done.returncode == 0
    assert "taking runs/tiny, the latest run: step-" in done.stderr
    assert "taking" not in done.stdout


def test_a_checkpoint_needs_nothing_else(run_in: Run, trained: Path, tmp_path: Path) -> None:
    (tmp_path / "alone.safetensors").write_bytes((trained / CHECKPOINT).read_bytes())
    arguments = ("--checkpoint", "alone.safetensors", "--device", "numpy")
    alone = _json(run_in, tmp_path, *arguments)
    assert alone["checkpoint"] == "alone.safetensors"
    there = _json(run_in, trained, "--checkpoint", CHECKPOINT, "--device", "numpy")
    assert {**alone, "checkpoint": ""} == {**there, "checkpoint": ""}

"""``dnnstack lab``: from a skeleton to a training; a fault is one line and status 1."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from dnnstack.cli.main import main

from .conftest import TINY

HOW = ("--config", "tiny.yaml", "--device", "numpy")


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("tiny.yaml").write_text(TINY, "utf-8")
    return tmp_path


def test_from_a_skeleton_to_a_training(here, capsys):
    assert main(["lab", "new", "relu"]) == 0
    assert capsys.readouterr().out == "wrote relu.c\nnext        dnnstack lab run relu.c\n"
    assert main(["lab", "run", "relu.c"]) == 0
    assert capsys.readouterr().out == "relu.c: relu is right in 12 of 12 drawn sizes\n"
    assert main(["lab", "run", "relu.c", *HOW, "--epochs", "1"]) == 0
    out = capsys.readouterr().out
    assert "relu_1  forward  32x4x12x12 -> 32x4x12x12" in out
    assert "finished    at step 13 of 13" in out
    config = Path("runs/tiny/config.yaml").read_text("utf-8")
    assert "epochs: 1," in config
    assert "fusion: false" in config


def test_json(here, capsys):
    assert main(["lab", "new", "matmul", "--language", "python", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"path": "matmul.py"}
    assert main(["lab", "run", "matmul.py", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    told = {"file": "matmul.py", "operation": "matmul", "language": "python"}
    assert found == {**told, "drawn": 12, "taken": 12, "timed": []}


def test_a_class(here, capsys):
    for name in ("relu", "update"):
        assert main(["lab", "new", name]) == 0
    source = Path("update.c").read_text("utf-8")
    Path("update.c").write_text(source.replace("w[i] -=", "w[i] +="), "utf-8")
    capsys.readouterr()
    assert main(["lab", "grade", ".", *HOW]) == 0
    relu, update = csv.DictReader(capsys.readouterr().out.splitlines())
    assert (relu["file"], relu["right"], update["right"]) == ("relu.c", "yes", "no")
    assert update["fault"].startswith("update is wrong: w[")
    Path("update.c").unlink()
    assert main(["lab", "grade", ".", *HOW, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["operation"] == "relu"


@pytest.mark.parametrize(
    ("words", "status", "told"),
    [
        (["run", "relu.c"], 1, "relu.c: relu takes more than 0.5 s"),
        (["run", "none.c"], 1, "none.c: cannot be read: No such file or directory"),
        (["new", "relu"], 1, "relu.c exists"),
        (["new", "rely"], 1, "'rely' is no operation for a kernel; did you mean 'relu'?"),
        (["grade", "."], 2, "grade needs --config"),
        (["run", "relu.c", "--epochs", "2"], 2, "--epochs needs run and --config"),
        (["grade", ".", "--epochs", "2", *HOW], 2, "--epochs needs run and --config"),
        (["run"], 2, "name an operation, a file or a folder, as in dnnstack lab new conv2d"),
        ([], 2, "name new, run or grade, as in dnnstack lab new conv2d"),
    ],
)
def test_what_goes_wrong(words, status, told, here, capsys):
    Path("relu.c").write_text(
        "int relu(const float *x, float *y, int SIZE) { for (;;); }\n", "utf-8"
    )
    assert main(["lab", *words, *["--limit", "0.5"] * bool(words)]) == status
    out, error = capsys.readouterr()
    assert out == ""
    assert told in error.splitlines()[0]
    assert status == 2 or error.count("\n") == 1

"""How much is said, where, and in which colours."""

from __future__ import annotations

import logging
import os
import pty
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from dnnstack.cli import console

Run = Callable[..., subprocess.CompletedProcess[str]]
TRAIN = ("train", "--config", "tiny.yaml", "--device", "numpy", "--set", "train.epochs=1")


def test_quiet_leaves_results_and_errors(run_in, trained):
    loud = run_in(trained, "eval", "--device", "numpy", "--json")
    quiet = run_in(trained, "eval", "--device", "numpy", "--json", "-q")
    assert (quiet.stdout, quiet.stderr) == (loud.stdout, "")
    assert "using runs/tiny" in loud.stderr
    wrong = run_in(trained, "eval", "--run", "tinny", "-q")
    assert (wrong.returncode, wrong.stdout) == (1, "")
    assert wrong.stderr.startswith("dnnstack: error: tinny: no such run; did you mean 'tiny'?")


def test_quiet_leaves_warnings(run, tmp_path):
    """An older network than was asked for, and another config, are no details."""
    assert run(*TRAIN, "--set", "checkpoint.every_steps=5", "-q").returncode == 0
    checkpoints = tmp_path / "runs" / "tiny" / "checkpoints"
    newest = checkpoints / "step-13.safetensors"
    newest.write_bytes(newest.read_bytes()[:1000])
    done = run("eval", "--device", "numpy", "-q", status=0)
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"dnnstack: warning: {newest.relative_to(tmp_path)}: is damaged")
    assert line.endswith("; using step-10.safetensors of step 10 instead")
    again = run(*TRAIN, "-q", "--resume", "--set", "optimizer.lr=0.5", status=0)
    assert again.stderr.splitlines() == [
        line,
        "dnnstack: warning: resuming with a changed config: optimizer.lr: 0.1 -> 0.5",
    ]


def test_a_warning_comes_once(capsys):
    """The same data may be read for several parts of a command."""
    for _ in range(2):
        console.set_loudness()
        for name in ("a.jpg", "b.jpg", "a.jpg"):
            logging.getLogger("dnnstack.datasets").warning("%s is left out", name)
        assert capsys.readouterr().err.splitlines() == [
            "dnnstack: warning: a.jpg is left out",
            "dnnstack: warning: b.jpg is left out",
        ]


def test_verbose_tells_where_things_came_from(run):
    first = run(*TRAIN, "--verbose")
    again = run(*TRAIN, "--verbose", "--set", "train.epochs=2", "--resume")
    assert first.returncode == again.returncode == 0
    for line in first.stderr.splitlines() + again.stderr.splitlines():
        assert line.startswith("dnnstack: ")
    for piece in (
        "config: tiny.yaml",
        "data folder: ",
        "strokes-train: 480 pictures, ",
        "compiled train and evaluate for numpy in ",
        "step-13.safetensors: saved, ",
    ):
        assert piece in first.stderr
    assert "step-13.safetensors: read and verified, " in again.stderr
    assert "strokes-train: 480 pictures, from the cache " in again.stderr


def _on_a_terminal(
    folder: Path, arguments: list[str], environment: dict[str, str]
) -> tuple[int, str]:
    """The exit status, and all that a terminal is sent."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        arguments, cwd=folder, env=environment, stdin=theirs, stdout=theirs, stderr=theirs
    ) as process:
        os.close(theirs)
        text = b""
        try:
            while piece := os.read(ours, 4096):
                text += piece
        except OSError:
            # Linux says so when the other end has been closed.
            pass
        finally:
            os.close(ours)
    return process.returncode, text.decode()


@pytest.mark.parametrize(
    ("setting", "coloured"),
    [({"NO_COLOR": "1"}, False), ({"NO_COLOR": ""}, True), ({"TERM": "dumb"}, False)],
)
def test_colours(setting, coloured, run, command, environment, tmp_path):
    base = {key: value for key, value in environment.items() if key != "NO_COLOR"}
    status, text = _on_a_terminal(
        tmp_path, [*command, "eval"], {**base, "TERM": "xterm", **setting}
    )
    assert status == 1
    assert ("dnnstack: \x1b[31merror:\x1b[0m runs: no run yet" in text) == coloured
    assert ("\x1b" in text) == coloured
    status, text = _on_a_terminal(
        tmp_path, [*command, *TRAIN], {**base, "TERM": "xterm", **setting}
    )
    assert status == 0
    assert ("\x1b[32m(best)\x1b[0m" in text) == coloured
    assert "(best)" in text
    assert bool(re.search(r"\x1b\[\d+m", text)) == coloured


def test_verbose_lines_do_not_break_the_bar(run, command, environment, tmp_path):
    status, text = _on_a_terminal(
        tmp_path, [*command, *TRAIN, "--verbose"], {**environment, "TERM": "xterm"}
    )
    assert status == 0
    assert re.search(r"[\r\n]dnnstack: runs/tiny/checkpoints/step-13.safetensors: saved, ", text)

"""A training that writes no line of its log for long is not silent in a pipe."""

from __future__ import annotations

import subprocess
import sys

import pytest
from dnnstack.cli import progress
from dnnstack.training.listener import Progress
from dnnstack.training.records.formats.state import Metrics


class _Clock:
    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        patch.setattr(progress, "perf_counter", lambda: self.now)


@pytest.fixture
def clock(monkeypatch):
    return _Clock(monkeypatch)


def _lines() -> progress.Lines:
    lines = progress.Lines()
    lines._steps_per_epoch = 100
    lines._printed = 100.0
    return lines


def _at(step: int) -> Progress:
    metrics = Metrics(1.5, 3, 10)
    return Progress(step, 400, step / 100, 4.0, metrics, 0.1, 50.0, 70.0)


def test_eight_seconds_without_a_line(clock, capsys):
    lines = _lines()
    for second in range(1, 31):
        clock.now = 100.0 + second
        lines.progressed(_at(second))
    found = capsys.readouterr().out.splitlines()
    assert [line.split()[1] for line in found] == ["8/400", "16/400", "24/400"]
    # The metrics of an earlier line of the log are not those of now.
    assert found[0] == "step   8/400  epoch 0.08/4  lr 0.1  50 pictures/s  1 min 10 s left"


def test_lines_of_the_log_are_enough(clock, capsys):
    lines = _lines()
    for second in range(1, 31):
        clock.now = 100.0 + second
        lines.progressed(_at(second))
        if second % 5 == 0:
            lines.logged(_at(second))
    found = capsys.readouterr().out.splitlines()
    assert [line.split()[1] for line in found] == [f"{at}/400" for at in range(5, 31, 5)]
    assert all("loss 1.5000" in line for line in found)


def test_a_long_validation_says_so(clock, capsys):
    lines = _lines()
    for tenth in range(200):
        clock.now = 100.0 + tenth / 10
        lines.validating(200)
    assert capsys.readouterr().out.splitlines() == ["epoch 2: validation is under way"] * 2


def test_quiet_stays_quiet(clock, capsys):
    lines = progress.Quiet()
    lines._steps_per_epoch = 100
    clock.now = 1000.0
    lines.progressed(_at(8))
    lines.validating(8)
    assert capsys.readouterr().out == ""


def test_dropped_output_leaves_no_file_open() -> None:
    code = (
        "import os\n"
        "from dnnstack.cli.console import drop_output\n"
        "before = sorted(os.listdir('/proc/self/fd'))\n"
        "drop_output()\n"
        "assert sorted(os.listdir('/proc/self/fd')) == before\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")

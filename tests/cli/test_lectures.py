"""Every command of docs/lectures.md prints what the page says, and every test is there."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from dnnstack.cli.main import main

from ..support.ranks import needs_launcher

TESTS = Path(__file__).resolve().parents[1]
PAGE = (TESTS.parent / "docs" / "lectures.md").read_text("utf-8")
ROWS = [
    [cell.strip() for cell in line[1:-1].split("|")]
    for line in PAGE.splitlines()
    if line.startswith("| ") and not line.startswith(("| slide", "| ---"))
]
COMMANDS = [re.findall(r"`([^`]+)`", cell) for _, _, _, cell, _ in ROWS if cell]
PRINTED = {
    command: [word for line, *words in COMMANDS if line == command for word in words]
    for command, *_ in COMMANDS
}


@pytest.mark.parametrize(
    "line",
    [pytest.param(line, marks=needs_launcher if "--ranks" in line else ()) for line in PRINTED],
)
def test_a_command_prints_what_it_says(line, tmp_path, monkeypatch, capsys, run_in):
    words = shlex.split(line)[1:]
    if "--ranks" in words:
        done = run_in(tmp_path, *words)
        status, said, told = done.returncode, done.stdout, done.stderr
    else:
        monkeypatch.chdir(tmp_path)
        status = main(words)
        said, told = capsys.readouterr()
    assert status == 0, told
    assert [word for word in PRINTED[line] if word not in said] == []


def test_every_row_has_a_slide_and_tests_that_exist():
    named = [name for *_, cell in ROWS for name in re.findall(r"`([^`]+)`", cell)]
    assert [name for name in named if not (TESTS / name).is_file()] == []
    assert len(ROWS) > 70
    assert all(slide and theirs and ours for slide, theirs, ours, _, _ in ROWS)

"""Curves that are drawn by processes of their own."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from dnnstack.reports import drawings
from dnnstack.reports.drawings import Drawings

LOG = """step,epoch,split,loss,accuracy,learning_rate
1,0.5,train,2.0,0.2,0.1
2,1.0,validation,1.0,0.5,0.1
"""


def run_in(folder: Path, log: str = LOG) -> Path:
    folder.mkdir()
    (folder / "metrics.csv").write_text(log, encoding="utf-8")
    return folder


@pytest.mark.parametrize("apart", [True, False])
def test_runs_have_their_curves_when_the_context_ends(apart, tmp_path, monkeypatch):
    said: list[str] = []
    runs = [run_in(tmp_path / str(i)) for i in range(3)]
    # A file that is called like a module is not imported, be it the user's or of a run.
    for folder in (tmp_path, *runs):
        (folder / "csv.py").write_text("raise SystemExit(3)", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    with Drawings(said.append, apart, most=2) as drawn:
        for run in runs:
            drawn.draw(run)
    assert said == []
    assert all((run / "curves.png").read_bytes().startswith(b"\x89PNG") for run in runs)


@pytest.mark.parametrize("apart", [True, False])
def test_what_cannot_be_drawn_is_told(apart, tmp_path):
    said: list[str] = []
    with Drawings(said.append, apart) as drawn:
        drawn.draw(run_in(tmp_path / "run", "no,table\n1,2\n"))
    (text,) = said
    assert "the curves were not drawn" in text
    assert str(tmp_path / "run" / "curves.png") in text


def test_a_process_that_says_nothing_is_told_too(tmp_path, monkeypatch):
    said: list[str] = []
    run = run_in(tmp_path / "run")
    monkeypatch.setattr(drawings, "_PROGRAM", "raise SystemExit(3)")
    with Drawings(said.append, True) as drawn:
        drawn.draw(run)
    assert said == [f"{run / 'curves.png'}: the curves were not drawn (status 3)"]


def test_a_process_that_dies_is_followed_by_another(tmp_path, monkeypatch):
    """What it had in hand is told, the rest is drawn."""
    said: list[str] = []
    program = drawings._PROGRAM
    runs = [run_in(tmp_path / str(i)) for i in range(3)]
    dying = "import sys; sys.stdin.readline(); sys.exit(5)"
    monkeypatch.setattr(drawings, "_PROGRAM", dying)
    with Drawings(said.append, True, most=1) as drawn:
        drawn.draw(runs[0])
        drawn._drawing[0].result()
        monkeypatch.setattr(drawings, "_PROGRAM", program)
        for run in runs[1:]:
            drawn.draw(run)
    assert said == [f"{runs[0] / 'curves.png'}: the curves were not drawn (status 5)"]
    assert [(run / "curves.png").exists() for run in runs] == [False, True, True]


def test_what_others_write_into_its_output_is_no_hindrance(tmp_path, monkeypatch):
    """Also without a line's end."""
    said: list[str] = []
    run = run_in(tmp_path / "run")
    noisy = "import os; os.write(1, b'noise'); "
    monkeypatch.setattr(drawings, "_PROGRAM", noisy + drawings._PROGRAM)
    with Drawings(said.append, True) as drawn:
        drawn.draw(run)
    assert said == ["noise"]
    assert (run / "curves.png").is_file()


def test_where_no_thread_begins_this_one_draws(tmp_path, monkeypatch):
    def refuse(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    runs, said = [run_in(tmp_path / str(i)) for i in range(3)], list[str]()
    with Drawings(said.append, True, most=2) as drawn:
        monkeypatch.setattr(drawn._threads, "submit", refuse)
        for run in runs:
            drawn.draw(run)
    assert said == []
    assert all((run / "curves.png").is_file() for run in runs)


def test_threads_have_no_more_processes_than_they_may_and_none_twice(tmp_path, monkeypatch):
    running: list[int] = []
    counts: list[int] = []
    made: list[list[str]] = []

    class Pipe(list[str]):
        def write(self, text: str) -> None:
            running.append(1)
            counts.append(len(running))
            time.sleep(0.001)

        def flush(self) -> None:
            self.append(f"{drawings._END}\n")

        def __iter__(self) -> Iterator[str]:  # type: ignore[override]
            running.pop()
            yield self.pop()

        def close(self) -> None:
            pass

    class Process:
        def __init__(self, command: list[str], **_: object) -> None:
            made.append(command)
            self.stdin = self.stdout = Pipe()

        def wait(self) -> int:
            return 0

    monkeypatch.setattr(drawings.subprocess, "Popen", Process)
    with Drawings(print, True, most=2) as drawn, ThreadPoolExecutor(16) as threads:
        for done in [threads.submit(drawn.draw, tmp_path) for _ in range(64)]:
            done.result()
    assert made == [[sys.executable, "-c", drawings._PROGRAM]] * 2
    assert (len(counts), max(counts), running) == (64, 2, [])


def test_a_folder_may_lie_anywhere(tmp_path):
    said: list[str] = []
    names = ["two\nlines", "caf\udce9", "\x04"]
    with Drawings(said.append, True, most=1) as drawn:
        for name in names:
            (tmp_path / name).mkdir()
            drawn.draw(run_in(tmp_path / name / "run"))
    assert said == []
    assert all((tmp_path / name / "run" / "curves.png").is_file() for name in names)


def test_where_no_process_begins_this_one_draws(tmp_path, monkeypatch):
    def refuse(*_: object, **__: object) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    run, said = run_in(tmp_path / "run"), list[str]()
    monkeypatch.setattr(drawings.subprocess, "Popen", refuse)
    with Drawings(said.append, True) as drawn:
        drawn.draw(run)
    assert said == []
    assert (run / "curves.png").is_file()


def test_what_a_kill_has_kept_from_being_drawn_is_made_up(tmp_path):
    """Runs that are finished, and have no curves or those of a time before their last line."""
    run_in(tmp_path / "none")
    for name in ("new", "old", "open", "other"):
        (run_in(tmp_path / name) / "curves.png").write_bytes(b"x")
    (tmp_path / "open" / "curves.png").unlink()
    for name in ("none", "new", "old", "open"):
        (tmp_path / name / "config.yaml").write_text(f"name: {name}\n", encoding="utf-8")
        state = "interrupted" if name == "open" else "finished"
        line = f'{{"event": "end", "step": 2, "state": "{state}"}}\n'
        (tmp_path / name / "log.jsonl").write_text(line, encoding="utf-8")
    for name, age in (("old", -1), ("new", 0), ("other", -1)):
        logged = (tmp_path / name / "metrics.csv").stat().st_mtime_ns
        os.utime(tmp_path / name / "curves.png", ns=(logged + age, logged + age))
    said: list[str] = []
    begun = tmp_path / "none" / f".curves.png.{10**30}.0123abcd.tmp"
    begun.touch()
    os.utime(begun, (0, 0))
    with Drawings(said.append, False) as drawn:
        drawn.make_up(tmp_path)
    assert not begun.exists()
    assert said == []
    sizes = {path.parent.name: path.stat().st_size > 1 for path in tmp_path.glob("*/curves.png")}
    assert sizes == {"none": True, "new": False, "old": True, "other": False}

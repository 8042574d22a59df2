"""What `dnnstack runs` says of each run, from its log and its lock."""

from __future__ import annotations

import errno
import json
import os
import shutil
import tracemalloc
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from dnnstack.common.errors import CheckpointError
from dnnstack.many.outcome import outcome
from dnnstack.reports.runs_report import RunReport, as_text, report_runs
from dnnstack.training.records.formats import run_log
from dnnstack.training.records.formats.run_log import cut_log
from dnnstack.training.records.runs import create_run, reopen_run


def write(folder: Path, name: str, *entries: dict[str, Any], tail: str = "") -> Path:
    with create_run(folder, name, f"name: {name}\n", print) as run:
        lines = "".join(json.dumps(entry) + "\n" for entry in entries)
        (run.path / "log.jsonl").write_text(lines + tail)
        return run.path


def event(name: str, step: int, **fields: Any) -> dict[str, Any]:
    return {"event": name, "step": step, **fields}


START = event("start", 0, time=100.0, total_steps=40)
TRAINED = event("train", 10, seconds=2.0)
BEST = event("validation", 10, accuracy=0.75, best=True)
WORSE = event("validation", 20, accuracy=0.5, best=False)


def only(folder: Path) -> RunReport:
    (report,) = report_runs(folder)
    return report


@pytest.mark.parametrize("state", ["finished", "interrupted", "failed"])
def test_how_it_ended(tmp_path, state):
    times = {"training_seconds": 5.0, "validation_seconds": 2.0, "saving_seconds": 0.5}
    end = event("end", 25, state=state, **times, error="Oops: x")
    write(tmp_path, "net", START, TRAINED, BEST, WORSE, end)
    assert only(tmp_path).to_json() == {
        "run": "net",
        "path": str(tmp_path / "net"),
        "config": "net",
        "state": state,
        "early": False,
        "step": 25,
        "total_steps": 40,
        "best_accuracy": 0.75,
        "best_step": 10,
        "seconds": 5.0,
        "started": 100.0,
        "error": "Oops: x",
        "compressed": [],
        "versions": None,
        "measure": "accuracy",
        "validation_seconds": 2.0,
        "saving_seconds": 0.5,
    }


def test_without_an_end_it_died_unless_somebody_holds_it(tmp_path):
    path = write(tmp_path, "net", START, TRAINED, tail='{"event": "val')
    report = only(tmp_path)
    assert (report.state, report.step, report.seconds) == ("died", 10, 2.0)
    with reopen_run(path, print):
        assert only(tmp_path).state == "running"
    assert only(tmp_path).state == "died"
    assert report.best_accuracy is None


def test_a_resume_begins_anew_and_adds_up(tmp_path):
    times = {"training_seconds": 3.0, "validation_seconds": 2.0, "saving_seconds": 0.5}
    end = event("end", 20, state="interrupted", **times)
    again = event("resume", 20, time=500.0, total_steps=80)
    lines = (START, TRAINED, end, again, event("train", 30, seconds=1.5))
    path = write(tmp_path, "net", *lines)
    report = only(tmp_path)
    write(tmp_path / "ended", "net", *lines, {**end, "step": 40})
    ended = only(tmp_path / "ended")
    assert (ended.seconds, ended.validation_seconds, ended.saving_seconds) == (6.0, 4.0, 1.0)
    assert (report.state, report.step, report.total_steps) == ("died", 30, 80)
    assert (report.seconds, report.started) == (4.5, 100.0)
    with reopen_run(path, print):
        assert only(tmp_path).state == "running"


def test_the_time_of_every_process_counts(tmp_path):
    again = [event("resume", step, time=500.0 + step, total_steps=80) for step in (20, 40)]
    first, second, third = (event("train", step, seconds=step / 10) for step in (20, 40, 60))
    write(tmp_path, "net", START, first, again[0], second, again[1], third)
    assert only(tmp_path).seconds == 2.0 + 4.0 + 6.0


def test_a_rollback_takes_steps_back(tmp_path):
    back = event("rollback", 10, rollback=1)
    write(tmp_path, "net", START, TRAINED, event("train", 30), back)
    assert only(tmp_path).step == 10


def test_order_and_strangers(tmp_path):
    write(tmp_path, "b", {**START, "time": 1.0})
    write(tmp_path, "a", {**START, "time": 2.0})
    write(tmp_path, "c")
    (tmp_path / "notes").mkdir()
    assert [one.run for one in report_runs(tmp_path)] == ["c", "b", "a"]
    assert report_runs(tmp_path / "missing") == []


@pytest.mark.parametrize(
    "line",
    [
        '{"event": "validation", "step": 3, "best": true, "accuracy": "high"}',
        '{"event": "validation", "step": 3, "best": true, "accuracy": 1e400}',
        '{"event": "start", "step": 3, "time": "now", "total_steps": []}',
        '{"event": "end", "step": 3, "state": "elsewhere"}',
        '{"event": ["start"], "step": 3}',
        "[" * 100_000,
        "\x00\xff",
    ],
)
def test_a_bad_line_says_nothing_of_its_run_or_of_others(tmp_path, line):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.yaml").write_text("name: x\n")
        (tmp_path / name / "log.jsonl").write_text('{"event": "start", "step": 0, "time": 1.0}\n')
    with (tmp_path / "a" / "log.jsonl").open("a") as log:
        log.write(line + "\n")
    one, other = report_runs(tmp_path)
    assert replace(one, run="", path=tmp_path) == replace(other, run="", path=tmp_path)
    assert as_text([one, other])


def test_a_log_that_cannot_be_read_is_told(tmp_path, monkeypatch):
    for name in ("a", "b"):
        write(tmp_path, name, START)

    def refuse(path: Path, most: int) -> Iterator[bytes]:
        if path.parent.name == "a":
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
        return read(path, most)

    read = run_log.regular_lines
    monkeypatch.setattr(run_log, "regular_lines", refuse)
    faults: list[str] = []
    assert [one.run for one in report_runs(tmp_path, faults.append)] == ["b"]
    assert faults == [f"{tmp_path / 'a' / 'log.jsonl'}: cannot be read: Input/output error"]


def test_a_log_without_a_readable_line_is_told(tmp_path):
    """Of a run that was killed before its first line, nothing is lost."""
    for name, text in (("a", "garbage\n"), ("b", ""), ("c", ""), ("d", '{"event": "st')):
        path = write(tmp_path, name)
        (path / "log.jsonl").write_text(text, encoding="utf-8")
    (tmp_path / "b" / "checkpoints").mkdir()
    (tmp_path / "b" / "checkpoints" / "step-5.json").write_text("{}", encoding="utf-8")
    shutil.copytree(tmp_path / "b", tmp_path / "e")
    (tmp_path / "e" / "log.jsonl").unlink()
    faults: list[str] = []
    assert [(one.run, one.state) for one in report_runs(tmp_path, faults.append)] == [
        ("c", "died"),
        ("d", "died"),
    ]
    assert [text.partition(", so nothing is known")[0] for text in faults] == [
        f"{tmp_path / 'a' / 'log.jsonl'}: has no line that can be read",
        f"{tmp_path / 'b' / 'log.jsonl'}: has no line that can be read",
        f"{tmp_path / 'e' / 'log.jsonl'}: is missing",
    ]
    with reopen_run(tmp_path / "a", print):
        assert report_runs(tmp_path)[0].state == "running"


@pytest.mark.parametrize("content", [b"garbage", b"", b"\xff\xfe", b"seed: 1\nlayers: []\n"])
def test_a_config_that_cannot_be_read_is_told(tmp_path, content):
    """Its log can be, so the run is listed."""
    for name in ("a", "b"):
        write(tmp_path, name, START)
    (tmp_path / "a" / "config.yaml").write_bytes(content)
    faults: list[str] = []
    found = [(one.run, one.config) for one in report_runs(tmp_path, faults.append)]
    assert found == [("a", None), ("b", "b")]
    (fault,) = faults
    assert fault.startswith(f"{tmp_path / 'a' / 'config.yaml'}: cannot be read as a config; ")


def test_a_file_is_no_folder_of_runs(tmp_path):
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(CheckpointError, match="file: is a file, not a folder of runs"):
        report_runs(tmp_path / "file")


def test_a_long_log_takes_no_more_memory_than_a_short_one(tmp_path):
    trained = [event("train", step, seconds=0.1 * step) for step in range(20_000)]
    path = write(tmp_path, "net", START, *trained, BEST)
    report_runs(tmp_path)
    tracemalloc.start()
    try:
        assert only(tmp_path).step == 19_999
        assert outcome(path).seconds == pytest.approx(1999.9)
        cut_log(path, 19_998, 19_998)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
    assert only(tmp_path).step == 19_998

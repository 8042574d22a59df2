"""The records of a run, and cutting them back at a resume."""

from __future__ import annotations

import errno
import json
import math
import os
from typing import NoReturn

import pytest
from dnnstack.common.errors import CheckpointError
from dnnstack.training.records.formats import run_log
from dnnstack.training.records.formats.run_log import (
    CSV,
    HEADERS,
    LOG,
    Line,
    RunLog,
    cut_log,
    log_lines,
)
from dnnstack.training.records.formats.state import Metrics

from ....support.stored import cases

SOME = Metrics(0.1, 3, 4)


def test_metrics_from_sums():
    found = Metrics.from_sums((1.5, 2.0, 3.0))
    assert (found.loss, found.correct, found.count) == (0.5, 2, 3)
    assert found.accuracy == pytest.approx(2 / 3)
    assert math.isnan(Metrics.from_sums((0.0, 0.0, 0.0)).loss)


def test_both_files(tmp_path):
    with RunLog(tmp_path) as log:
        log.event("start", 0, backend="numpy")
        log.metrics("train", 4, 0.4, SOME, 0.01, seconds=1.5)
        log.metrics("validation", 4, 0.4, Metrics(math.inf, 1, 2), 0.01)
    lines = [json.loads(line) for line in (tmp_path / LOG).read_text().splitlines()]
    assert [line["event"] for line in lines] == ["start", "train", "validation"]
    assert lines[1]["accuracy"] == 0.75
    assert lines[1]["seconds"] == 1.5
    assert lines[2]["loss"] is None
    assert (tmp_path / CSV).read_text() == (
        HEADERS["accuracy"] + "4,0.4,train,0.1,0.75,0.01\n4,0.4,validation,inf,0.5,0.01\n"
    )


def test_it_goes_on_where_it_was(tmp_path):
    for step in (4, 8):
        with RunLog(tmp_path) as log:
            log.metrics("train", step, 0.5, SOME, 0.01)
    rows = (tmp_path / CSV).read_text().splitlines()
    assert rows[0] + "\n" == HEADERS["accuracy"]
    assert [row.partition(",")[0] for row in rows[1:]] == ["4", "8"]


def test_cut(tmp_path):
    with RunLog(tmp_path) as log:
        log.event("start", 0)
        for step in (4, 8):
            log.metrics("train", step, 0.5, SOME, 0.01)
        log.metrics("train", 10, 0.5, SOME, 0.01)
        log.metrics("validation", 10, 0.5, SOME, 0.01)
        log.event("checkpoint", 10)
        log.metrics("train", 12, 0.5, SOME, 0.01)
        log.event("checkpoint", 12)
    with (tmp_path / LOG).open("a") as file:
        file.write('{"event": "train", "st')
    with (tmp_path / CSV).open("a") as file:
        file.write("1")
    cut_log(tmp_path, step=10, window_start=8)
    events = [json.loads(line) for line in (tmp_path / LOG).read_text().splitlines()]
    assert [(e["event"], e["step"]) for e in events] == [
        ("start", 0),
        ("train", 4),
        ("train", 8),
        ("validation", 10),
        ("checkpoint", 10),
    ]
    rows = (tmp_path / CSV).read_text()
    assert rows.startswith(HEADERS["accuracy"])
    assert [row.split(",")[0] for row in rows.splitlines()[1:]] == ["4", "8", "10"]
    assert rows.endswith("\n")


def test_cutting_nothing_leaves_the_files_alone(tmp_path):
    cut_log(tmp_path, 3, 3)
    assert list(tmp_path.iterdir()) == []
    with RunLog(tmp_path) as log:
        log.metrics("train", 4, 0.5, SOME, 0.01)
    before = (tmp_path / LOG).stat().st_ino
    cut_log(tmp_path, 4, 4)
    assert (tmp_path / LOG).stat().st_ino == before


def test_a_log_that_cannot_be_written(tmp_path):
    with pytest.raises(CheckpointError, match="cannot be written"):
        RunLog(tmp_path / "missing")


@pytest.mark.parametrize("torn", cases(__file__, "a_damaged_row_does_not_survive"))
def test_a_damaged_row_does_not_survive(tmp_path, torn):
    good = "4,0.5,train,0.1,0.75,0.01\n"
    (tmp_path / CSV).write_text(HEADERS["accuracy"] + torn + good)
    cut_log(tmp_path, step=10, window_start=10)
    assert (tmp_path / CSV).read_text() == HEADERS["accuracy"] + good


@pytest.mark.parametrize("length", range(1, 27))
def test_a_line_without_an_end_does_not_survive(tmp_path, length):
    """Its last number may be the beginning of a longer one."""
    good, torn = "4,0.5,train,0.1,0.75,0.01\n", "8,1.0,train,0.1,0.75,0.01\n"
    (tmp_path / CSV).write_text(HEADERS["accuracy"] + good + torn[: length - 1])
    entry = json.dumps({"event": "train", "step": 4})
    (tmp_path / LOG).write_text(f"{entry}\n{entry}")
    cut_log(tmp_path, step=10, window_start=10)
    assert (tmp_path / CSV).read_text() == HEADERS["accuracy"] + good
    assert (tmp_path / LOG).read_text() == f"{entry}\n"


@pytest.mark.parametrize("step", ["1e400", "-1e400", "null", '"x"', "[]", "9" * 5000, "NaN"])
def test_an_event_of_an_impossible_step_does_not_survive(tmp_path, step):
    sound = '{"event": "train", "step": 4}\n'
    (tmp_path / LOG).write_text(f'{{"event": "start", "step": {step}}}\n{sound}')
    cut_log(tmp_path, step=10, window_start=10)
    assert (tmp_path / LOG).read_text() == sound


def full(number: int) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_both_files_are_synchronised(tmp_path, monkeypatch):
    synced: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda number: synced.append(os.readlink(f"/dev/fd/{number}")))
    with RunLog(tmp_path) as log:
        log.metrics("train", 4, 0.5, SOME, 0.01)
        log.sync()
    assert sorted(synced) == [str(tmp_path / LOG), str(tmp_path / CSV)]


def test_the_end_is_synchronised(tmp_path, monkeypatch):
    """A run that was told to be finished, or a trial that the journal has, is not open again."""
    synced: list[str] = []

    def fsync(number: int) -> None:
        assert '"end"' in (tmp_path / LOG).read_text()
        synced.append(os.readlink(f"/dev/fd/{number}"))

    with RunLog(tmp_path) as log:
        monkeypatch.setattr(os, "fsync", fsync)
        log.event("end", 4, state="finished")
        assert sorted(synced) == [str(tmp_path / LOG), str(tmp_path / CSV)]
        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(CheckpointError, match=f"{LOG}: cannot be written: No space left"):
            log.event("end", 4, state="finished")


@pytest.mark.parametrize("name", [LOG, CSV])
def test_a_log_is_not_written_through_a_link(tmp_path, name):
    run, other = tmp_path / "run", tmp_path / "other"
    run.mkdir()
    other.write_text("precious\n")
    (run / name).symlink_to(other)
    with pytest.raises(CheckpointError, match=f"{name}: cannot be written: is a symbolic link"):
        RunLog(run)
    with pytest.raises(CheckpointError, match="is a symbolic link"):
        cut_log(run, 3, 3)
    assert other.read_text() == "precious\n"


def test_lines_as_they_are_read(tmp_path):
    """A damaged one is None; one that is being written is left out, unless it can be read."""
    log = tmp_path / LOG
    assert list(log_lines(log, Line)) == []
    sound = b'{"event": "train", "step": 3}'
    log.write_bytes(sound + b"\n{}\n" + sound)
    assert list(log_lines(log, Line)) == [Line("train", 3), None, Line("train", 3)]
    log.write_bytes(sound + b"\n" + sound[:9])
    assert list(log_lines(log, Line)) == [Line("train", 3)]
    log.unlink()
    os.mkfifo(log)
    assert list(log_lines(log, Line)) == []


def test_a_log_that_cannot_be_read(tmp_path, monkeypatch):
    def fails(*given: object) -> NoReturn:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(run_log, "regular_lines", fails)
    with pytest.raises(CheckpointError, match=f"{LOG}: cannot be read: Input/output error"):
        next(log_lines(tmp_path / LOG, Line))

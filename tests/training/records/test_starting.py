"""Deciding whether something goes on or begins: one process at a time, and nothing unknown."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
from dnnstack.common.errors import CheckpointError, LockedError
from dnnstack.common.locks import lock
from dnnstack.training.records import group
from dnnstack.training.records.group import deciding, resume_or_start
from dnnstack.training.records.runs import create_run


def hush(text: str) -> None:
    pass


def decided(runs_dir: Path) -> str:
    """Where the group ``net`` goes on, or that it begins."""
    with deciding(runs_dir, "net", lambda path: (path / "group.json").is_file()) as found:
        return "-" if found is None else found.name


def test_the_highest_number_goes_on(tmp_path):
    runs = tmp_path / "deep/runs"
    assert decided(runs) == "-"
    for name in ("net", "net-2", "net-10", "net-x", "other"):
        (runs / name).mkdir()
        (runs / name / "group.json").touch()
    (runs / "net-11").mkdir()
    assert decided(runs) == "net-10"
    # Nothing is left of the decision.
    assert not [*runs.glob(".*")]


@pytest.mark.parametrize("content", ["checkpoints", "log.jsonl", "notes"])
def test_a_folder_that_nothing_is_known_of_is_not_passed_over(tmp_path, content):
    (tmp_path / "net-2" / content).mkdir(parents=True)
    with pytest.raises(CheckpointError, match="net-2: may be what is to go on"):
        decided(tmp_path)
    with pytest.raises(CheckpointError, match=r"or move the folder away$"):
        resume_or_start("net", tmp_path, hush)
    assert not [*tmp_path.glob(".*")]


@pytest.mark.parametrize("record", ["compress.json", "group.json", "config.yaml"])
def test_what_has_another_record_is_passed_over(tmp_path, record):
    folder = tmp_path / "net"
    folder.mkdir()
    (folder / record).write_text("name: another\n")
    found = resume_or_start("net", tmp_path, hush)
    assert (found.checkpoint, found.run) == (None, None)
    found.close()


def test_a_decision_waits_for_that_of_another(tmp_path, monkeypatch):
    held = lock(tmp_path / ".net.lock", keep=False)
    monkeypatch.setattr(group, "_TRIES", 2)
    with pytest.raises(LockedError, match=r"\.net\.lock is locked by pid"):
        decided(tmp_path)
    monkeypatch.setattr(group, "_TRIES", 1000)
    ends = threading.Timer(0.3, held.release)
    ends.start()
    begin = time.monotonic()
    assert decided(tmp_path) == "-"
    assert time.monotonic() - begin >= 0.2
    ends.join()


def test_a_start_keeps_others_out_until_it_ends(tmp_path, monkeypatch):
    monkeypatch.setattr(group, "_TRIES", 1)
    first = resume_or_start("net", tmp_path, hush)
    with pytest.raises(LockedError, match=r"\.net\.lock is locked by pid"):
        resume_or_start("net", tmp_path, hush)
    # Another name is another decision.
    other = resume_or_start("net-2", tmp_path, hush)
    first.close()
    second = resume_or_start("net", tmp_path, hush)
    for each in (other, second):
        assert each.starts is not None
        each.close()


def test_a_run_that_goes_on_is_locked_itself(tmp_path):
    run = create_run(tmp_path, "net", "name: net\n", hush)
    with run, pytest.raises(LockedError, match="is in use"):
        resume_or_start("net", tmp_path, hush)
    found = resume_or_start("net", tmp_path, hush)
    assert found.run is not None
    assert found.starts is None
    assert not (tmp_path / ".net.lock").exists()
    found.close()


def test_without_locks_there_is_nothing_to_hold(tmp_path, monkeypatch):
    def no_locks(*arguments: object, **named: object) -> None:
        raise OSError(group.NO_LOCKS[0], "no locks")

    monkeypatch.setattr(group, "lock", no_locks)
    assert decided(tmp_path) == "-"
    assert resume_or_start("net", tmp_path, hush).starts is not None


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(CheckpointError, match=r"file: cannot be written: .*--runs-dir"):
        decided(tmp_path / "file")

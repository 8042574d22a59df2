"""Run folders: numbers, the newest one, locks, and what is said when there is none."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest
from dnnstack.common.errors import CheckpointError, LockedError
from dnnstack.common.locks import Lock, lock
from dnnstack.training.records import runs
from dnnstack.training.records.formats import record
from dnnstack.training.records.runs import (
    create_run,
    find_run,
    latest_run_of,
    list_runs,
    reopen_run,
    run_of_checkpoint,
)


def hush(text: str) -> None:
    raise AssertionError(f"unexpected notice: {text}")


def make(folder: Path, name: str = "net") -> Path:
    with create_run(folder, name, f"name: {name}\n", hush) as run:
        return run.path


def test_numbers_go_up_and_latest_follows(tmp_path):
    folder = tmp_path / "deep" / "runs"
    assert [make(folder).name for _ in range(3)] == ["net", "net-2", "net-3"]
    assert (folder / "latest").is_symlink()
    assert os.readlink(folder / "latest") == "net-3"
    assert find_run(None, folder) == folder / "net-3"
    assert make(folder, "other").name == "other"
    assert find_run("latest", folder) == folder / "other"
    assert (folder / "net" / "config.yaml").read_text() == "name: net\n"


def test_a_gap_is_not_filled(tmp_path):
    for _ in range(3):
        make(tmp_path)
    for name in ("net", "net-2"):
        (tmp_path / name / "config.yaml").unlink()
        (tmp_path / name / "lock").unlink()
        (tmp_path / name).rmdir()
    assert make(tmp_path).name == "net-4"


@pytest.mark.parametrize("left", [(), ("lock",), ("lock", ".config.yaml.12.ab.tmp")])
def test_a_folder_that_was_left_while_it_was_made_is_taken(tmp_path, left):
    make(tmp_path)
    (tmp_path / "net-2").mkdir()
    for name in left:
        (tmp_path / "net-2" / name).touch()
    assert make(tmp_path).name == "net-2"
    assert (tmp_path / "net-2" / "config.yaml").read_text() == "name: net\n"
    assert os.readlink(tmp_path / "latest") == "net-2"


@pytest.mark.parametrize("mine", ["notes.txt", "log.jsonl", "checkpoints", ".config.yaml"])
def test_a_folder_with_anything_in_it_is_not(tmp_path, mine):
    (tmp_path / "net" / mine).mkdir(parents=True)
    assert make(tmp_path).name == "net-2"
    assert [path.name for path in (tmp_path / "net").iterdir()] == [mine]


def test_nor_is_one_that_another_process_makes_now(tmp_path):
    (tmp_path / "net").mkdir()
    with lock(tmp_path / "net" / "lock"):
        assert make(tmp_path).name == "net-2"


def test_a_folder_that_another_took_before_it_was_locked_is_left_to_it(tmp_path, monkeypatch):
    taken, right = [], lock

    def late(path: Path) -> Lock:
        if not taken:
            taken.append(path)
            (path.parent / "config.yaml").write_text("another's")
        return right(path)

    monkeypatch.setattr(runs, "lock", late)
    assert make(tmp_path).name == "net-2"
    assert (tmp_path / "net" / "config.yaml").read_text() == "another's"


def test_a_file_in_the_way_is_stepped_over(tmp_path):
    (tmp_path / "net").write_text("mine")
    assert make(tmp_path).name == "net-2"


def test_a_folder_that_another_process_has_just_made_is_stepped_over(tmp_path, monkeypatch):
    make(tmp_path)
    monkeypatch.setattr(runs, "numbered", lambda *args: [])
    assert make(tmp_path).name == "net-2"


def test_where_links_cannot_be_made_latest_is_a_file(tmp_path, monkeypatch):
    def refuse(*args: object, **kwargs: object) -> None:
        raise OSError(1, "not here")

    monkeypatch.setattr(os, "symlink", refuse)
    make(tmp_path)
    make(tmp_path)
    assert (tmp_path / "latest").read_text() == "net-2\n"
    assert find_run(None, tmp_path) == tmp_path / "net-2"
    assert find_run(tmp_path / "latest", tmp_path) == tmp_path / "net-2"


def test_a_run_is_found_by_name_and_by_path(tmp_path):
    first = make(tmp_path / "a")
    second = make(tmp_path / "b")
    assert find_run("net", tmp_path / "a") == first
    assert find_run(str(second), tmp_path / "a") == second
    assert find_run(tmp_path / "b" / "latest", tmp_path / "a").resolve() == second.resolve()


def test_the_latest_run_of_a_config_is_the_highest_number(tmp_path):
    for _ in range(11):
        make(tmp_path)
    make(tmp_path, "net-20")
    make(tmp_path, "network")
    for name in ("net-2", "net-10"):
        os.utime(tmp_path / name)
    assert latest_run_of("net", tmp_path) == tmp_path / "net-11"
    assert latest_run_of("net-20", tmp_path) == tmp_path / "net-20"


def test_no_run_says_what_there_is(tmp_path):
    with pytest.raises(
        CheckpointError, match=r"runs: no run yet; dnnstack train --config digits\.yaml "
    ):
        find_run(None, tmp_path / "runs")
    make(tmp_path)
    with pytest.raises(CheckpointError, match=r"did you mean 'net'\? Runs in .*: net$"):
        find_run("nett", tmp_path)
    with pytest.raises(CheckpointError, match="no run of 'other' to resume"):
        latest_run_of("other", tmp_path)


def test_latest_that_names_a_deleted_run(tmp_path):
    make(tmp_path)
    (tmp_path / "net" / "config.yaml").unlink()
    with pytest.raises(CheckpointError, match="names 'net', which does not exist any more"):
        find_run(None, tmp_path)


def test_latest_that_is_gone_is_no_lack_of_runs(tmp_path):
    make(tmp_path)
    for spoil, fault in (
        (lambda path: path.unlink(), "is missing"),
        (Path.mkdir, "cannot be read"),
    ):
        spoil(tmp_path / "latest")
        with pytest.raises(CheckpointError) as caught:
            find_run(None, tmp_path)
        assert str(caught.value) == (
            f"{tmp_path / 'latest'}: {fault}, so the latest run is not known; name one with --run; "
            f"runs in {tmp_path}: net"
        )


def test_list(tmp_path):
    make(tmp_path, "b")
    make(tmp_path, "a")
    (tmp_path / "not a run").mkdir()
    assert list_runs(tmp_path) == ["a", "b"]
    assert list_runs(tmp_path / "missing") == []


def test_the_run_of_a_checkpoint(tmp_path):
    run = make(tmp_path)
    file = run / "checkpoints" / "step-1.safetensors"
    assert run_of_checkpoint(file) == run
    assert run_of_checkpoint(tmp_path / "latest" / "checkpoints" / "x.json") == run
    assert run_of_checkpoint(tmp_path / "step-1.safetensors") is None


def test_a_held_run_is_refused(tmp_path):
    run = create_run(tmp_path, "net", "name: net\n", hush)
    with pytest.raises(LockedError, match=f"pid {os.getpid()}"):
        reopen_run(run.path, hush)
    run.close()
    reopen_run(run.path, hush).close()


def test_without_locks_there_is_a_warning(tmp_path, monkeypatch):
    def no_locks(path: Path) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(runs, "lock", no_locks)
    notices: list[str] = []
    create_run(tmp_path, "net", "name: net\n", notices.append).close()
    assert "do not train twice" in notices[0]


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "runs").write_text("a file")
    with pytest.raises(CheckpointError, match=r"choose another folder with --runs-dir"):
        make(tmp_path / "runs")


MANY = """
import sys
from pathlib import Path
from dnnstack.training.records.runs import create_run
sys.stdin.readline()
for _ in range(10):
    print(create_run(Path(sys.argv[1]), "net", "name: net", print).path.name)
"""


def test_processes_that_start_at_once_get_folders_of_their_own(tmp_path):
    command = [sys.executable, "-c", MANY, str(tmp_path / "runs")]
    both = [
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=tmp_path
        )
        for _ in range(2)
    ]
    names: list[str] = []
    for process in both:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in both:
        names += process.communicate(timeout=60)[0].split()
    assert sorted(names) == sorted({"net", *(f"net-{n}" for n in range(2, 21))})


def test_a_lock_that_is_a_link_is_refused(tmp_path):
    path, precious = make(tmp_path), tmp_path / "precious"
    precious.write_text("text")
    (path / "lock").unlink()
    (path / "lock").symlink_to(precious)
    with pytest.raises(CheckpointError, match="lock: is a symbolic link; copy the run"):
        reopen_run(path, hush)
    assert precious.read_text() == "text"


def test_a_lock_with_other_content_is_to_be_moved(tmp_path):
    path = make(tmp_path)
    (path / "lock").write_text("text")
    with pytest.raises(CheckpointError, match="lock: has other content than a lock; move that"):
        reopen_run(path, hush)
    assert (path / "lock").read_text() == "text"


def test_a_lock_that_is_a_pipe_is_refused(tmp_path):
    path = make(tmp_path)
    (path / "lock").unlink()
    os.mkfifo(path / "lock")
    with pytest.raises(CheckpointError, match="lock: is not a regular file; copy the run"):
        reopen_run(path, hush)


def test_what_a_killed_creation_left_goes_when_its_folder_is_taken(tmp_path):
    left = tmp_path / "net" / ".config.yaml.12.0123abcd.tmp"
    left.parent.mkdir()
    left.touch()
    assert make(tmp_path) == left.parent
    assert not left.exists()


def test_checkpoints_that_are_another_run_s_are_refused(tmp_path):
    path, other = make(tmp_path), make(tmp_path)
    (other / "checkpoints").mkdir()
    (path / "checkpoints").symlink_to(other / "checkpoints")
    with pytest.raises(CheckpointError, match="checkpoints: is a symbolic link"):
        reopen_run(path, hush)
    # The lock is free again.
    (path / "checkpoints").unlink()
    reopen_run(path, hush).close()


def test_what_killed_writers_left_goes_when_the_run_is_locked(tmp_path):
    path = make(tmp_path)
    (path / "checkpoints").mkdir()
    left = [path / ".config.yaml.12.0123abcd.tmp", path / ".log.jsonl.12.0123abcd.tmp"]
    left.append(path / "checkpoints" / ".step-4.json.12.0123abcd.tmp")
    for file in left:
        file.touch()
    reopen_run(path, hush).close()
    assert not any(file.exists() for file in left)


@pytest.mark.parametrize("number", [errno.EACCES, errno.ENOSPC, errno.EROFS])
def test_a_config_that_cannot_be_replaced(tmp_path, monkeypatch, number):
    def refused(*given: object) -> None:
        raise OSError(number, os.strerror(number))

    with create_run(tmp_path, "net", "name: net\n", hush) as run:
        monkeypatch.setattr(record, "atomic_write", refused)
        with pytest.raises(CheckpointError, match=r"config\.yaml: cannot be written: .*resume"):
            record.write_record(run.path, runs.CONFIG, b"name: other\n")


def test_a_killed_change_of_latest_is_cleared_up_after_an_hour(tmp_path):
    """The folder of all runs has no lock: another process may be changing ``latest`` just now."""
    code = "import os; print(os.getpid())"
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, check=True)
    old, new = (tmp_path / f".latest.{int(done.stdout)}.{n}123abcd.tmp" for n in (0, 8))
    for link in (old, new):
        link.symlink_to("net")
    os.utime(old, (0, 0), follow_symlinks=False)
    make(tmp_path)
    assert not old.is_symlink()
    assert new.is_symlink()


def test_what_cannot_be_read_is_told_and_not_taken_for_missing(tmp_path, monkeypatch):
    make(tmp_path)

    def refuse(path: Path, *most: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))

    with monkeypatch.context() as patch:
        patch.setattr(runs, "read_regular", refuse)
        with pytest.raises(CheckpointError, match=r"config.yaml: cannot be read: Input"):
            latest_run_of("net", tmp_path)
    monkeypatch.setattr(Path, "iterdir", refuse)
    for look in (lambda: latest_run_of("net", tmp_path), lambda: list_runs(tmp_path)):
        with pytest.raises(CheckpointError, match="cannot be read: Input/output error"):
            look()


def test_a_run_is_made_durable_up_to_its_parent(tmp_path, monkeypatch):
    synced: list[Path] = []
    sync = runs.sync_folder
    monkeypatch.setattr(runs, "sync_folder", lambda path: (synced.append(path), sync(path)))
    path = make(tmp_path)
    # After ``latest`` was pointed to it.
    assert synced[-1] == tmp_path
    synced.clear()
    (path / "checkpoints").mkdir()
    reopen_run(path, print).close()
    assert synced == [path / "checkpoints", path, tmp_path]

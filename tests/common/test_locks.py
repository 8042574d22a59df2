"""Locks: between processes, and on files that are none."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from typing import Any

import pytest
from dnnstack.common import locks
from dnnstack.common.errors import LockedError
from dnnstack.common.locks import is_locked, lock

from ..support.stored import cases


def test_a_lock_excludes_a_second_one_until_released(tmp_path):
    path = tmp_path / "lock"
    with lock(path):
        with pytest.raises(LockedError, match=f"{path} is locked by pid {os.getpid()} on"):
            lock(path)
        # The refused attempt must not have dropped the first one's lock.
        with pytest.raises(LockedError):
            lock(path)
    second = lock(path)
    second.release()
    second.release()


def test_a_lock_excludes_another_process_and_dies_with_it(tmp_path):
    path = tmp_path / "lock"
    code = (
        "import sys; from dnnstack.common.locks import lock\n"
        "held = lock(sys.argv[1]); print('held', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=tmp_path,
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"held\n"
        with pytest.raises(LockedError, match=f"pid {child.pid} "):
            lock(path)
        child.kill()
        child.wait()
    lock(path).release()


def test_the_text_in_a_lock_file_decides_nothing(tmp_path):
    path = tmp_path / "lock"
    path.write_text("pid 1 on elsewhere")
    lock(path).release()


def test_who_has_taken_a_lock_as_well_is_told(tmp_path):
    """As another machine writes it, where each keeps its own locks."""
    path = tmp_path / "lock"
    with lock(path) as held:
        assert held.also_taken_by() == ""
        # What says nothing of another process: that is no reason to end a training.
        for text in ("", "text", f"pid {os.getpid()} o"):
            path.write_text(text)
            assert held.also_taken_by() == ""
        path.write_text(f"pid {os.getpid()} on elsewhere\n")
        assert held.also_taken_by() == f"pid {os.getpid()} on elsewhere"
        path.unlink()
        assert held.also_taken_by() == ""


def test_a_link_is_no_lock(tmp_path):
    """It would empty whatever its user may write."""
    precious = tmp_path / "precious"
    precious.write_text("text")
    (tmp_path / "lock").symlink_to(precious)
    with pytest.raises(OSError, match="is a symbolic link"):
        lock(tmp_path / "lock")
    assert not is_locked(tmp_path / "lock")
    assert precious.read_text() == "text"


@pytest.mark.parametrize("text", ["text", "pid 1 on here\nmore\n", "p" * 1000])
def test_other_content_than_a_lock_s_stays(tmp_path, text):
    path = tmp_path / "lock"
    path.write_text(text)
    with pytest.raises(OSError, match="other content than a lock"):
        lock(path)
    assert path.read_text() == text


def test_a_lock_whose_file_is_deleted_excludes_too(tmp_path, monkeypatch):
    path = tmp_path / "lock"
    first = lock(path, keep=False)
    opened = locks.open_regular
    calls = 0

    def slow(*arguments: Any) -> int:
        """Another process deletes the file between opening and locking."""
        nonlocal calls
        calls += 1
        descriptor = opened(*arguments)
        if calls == 1:
            first.release()
        return descriptor

    monkeypatch.setattr(locks, "open_regular", slow)
    with lock(path, keep=False):
        assert calls == 2
        monkeypatch.undo()
        with pytest.raises(LockedError):
            lock(path)
    assert not path.exists()


@pytest.mark.parametrize("text", cases(__file__, "a_lock_that_a_power_loss_tore_is_one"))
def test_a_lock_that_a_power_loss_tore_is_one(tmp_path, text):
    path = tmp_path / "lock"
    path.write_text(text)
    with lock(path):
        assert path.read_text().startswith(f"pid {os.getpid()} on ")


def test_a_lock_that_cannot_be_closed_was_looked_at_all_the_same(tmp_path, monkeypatch):
    def refuse(descriptor: int) -> None:
        close(descriptor)
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    close = os.close
    with lock(tmp_path / "lock"):
        monkeypatch.setattr(os, "close", refuse)
        assert is_locked(tmp_path / "lock")
    assert not is_locked(tmp_path / "lock")

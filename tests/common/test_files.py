from __future__ import annotations

import hashlib
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from dnnstack.common import files
from dnnstack.common.errors import LockedError


def test_atomic_write_creates_and_replaces(tmp_path: Path) -> None:
    target = tmp_path / "a.bin"
    files.atomic_write(target, b"one")
    files.atomic_write(target, [b"two", memoryview(b" and "), bytearray(b"three")])
    assert target.read_bytes() == b"two and three"
    assert os.listdir(tmp_path) == ["a.bin"]


def test_atomic_write_obeys_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        files.atomic_write(tmp_path / "a", b"x")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o640


def test_a_write_that_fails_half_way_leaves_the_old_file(tmp_path: Path) -> None:
    def pieces() -> Iterator[bytes]:
        yield b"new"
        raise OSError("disk full")

    target = tmp_path / "a"
    target.write_bytes(b"old")
    with pytest.raises(OSError, match="disk full"):
        files.atomic_write(target, pieces())
    assert target.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a"]


@pytest.mark.parametrize("function", ["fsync", "replace"])
def test_a_failing_system_call_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function: str
) -> None:
    def fail(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    target = tmp_path / "a"
    target.write_bytes(b"old")
    monkeypatch.setattr(os, function, fail)
    with pytest.raises(OSError, match="No space left"):
        files.atomic_write(target, b"new")
    assert target.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a"]


def test_data_reach_the_disk_before_the_name_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    fsync, replace = os.fsync, os.replace

    def note_fsync(descriptor: int) -> None:
        kind = "folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file"
        calls.append(f"fsync {kind}")
        fsync(descriptor)

    def note_replace(source: Path, target: Path) -> None:
        assert Path(source).parent == Path(target).parent
        calls.append("replace")
        replace(source, target)

    monkeypatch.setattr(os, "fsync", note_fsync)
    monkeypatch.setattr(os, "replace", note_replace)
    files.atomic_write(tmp_path / "a", b"new")
    assert calls == ["fsync file", "replace", "fsync folder"]


def test_hashes(tmp_path: Path) -> None:
    data = bytes(range(256)) * 9000
    (tmp_path / "a").write_bytes(data)
    expected = hashlib.sha256(data).hexdigest()
    assert files.sha256_file(tmp_path / "a") == expected
    assert files.sha256_bytes(data) == expected
    assert files.sha256_bytes(b"") == (
        "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    )


def test_a_lock_excludes_a_second_one_until_released(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with files.lock(path):
        with pytest.raises(LockedError, match=f"{path} is locked by pid {os.getpid()} on"):
            files.lock(path)
        # The refused attempt must not have dropped the first one's lock.
        with pytest.raises(LockedError):
            files.lock(path)
    second = files.lock(path)
    second.release()
    second.release()


def test_a_lock_excludes_another_process_and_dies_with_it(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    code = (
        "import sys; from dnnstack.common.files import lock\n"
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
            files.lock(path)
        child.kill()
        child.wait()
    files.lock(path).release()


def test_the_text_in_a_lock_file_decides_nothing(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    path.write_text("pid 1 on elsewhere")
    files.lock(path).release()


def test_cache_dir_prefers_the_own_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/somebody")
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    monkeypatch.setenv("DNNSTACK_CACHE", "~/mine")
    assert files.cache_dir() == Path("/home/somebody/mine")
    monkeypatch.delenv("DNNSTACK_CACHE")
    assert files.cache_dir() == Path("/xdg/dnnstack")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert files.cache_dir() == Path("/home/somebody/.cache/dnnstack")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert files.cache_dir() == Path("/home/somebody/.cache/dnnstack")

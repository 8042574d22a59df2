from __future__ import annotations

import contextlib
import errno
import gc
import hashlib
import os
import stat
import subprocess
import sys
import threading
import time
import tracemalloc
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest
from dnnstack.common import files
from dnnstack.common.errors import CheckpointError


def test_atomic_write_obeys_the_umask(tmp_path):
    before = os.umask(0o027)
    try:
        files.atomic_write(tmp_path / "a", b"x")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o640


def test_a_write_that_fails_half_way_leaves_the_old_file(tmp_path):
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
def test_a_failing_system_call_leaves_the_old_file(tmp_path, monkeypatch, function):
    def fail(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    target = tmp_path / "a"
    target.write_bytes(b"old")
    monkeypatch.setattr(os, function, fail)
    with pytest.raises(OSError, match="No space left"):
        files.atomic_write(target, b"new")
    assert target.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a"]


def test_data_reach_the_disk_before_the_name_changes(tmp_path, monkeypatch):
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


def test_hashes(tmp_path):
    data = bytes(range(256)) * 9000
    (tmp_path / "a").write_bytes(data)
    expected = hashlib.sha256(data).hexdigest()
    assert files.sha256_file(tmp_path / "a") == expected
    assert files.sha256_bytes(data) == expected
    assert files.sha256_bytes(b"") == (
        "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    )


def test_cache_dir_prefers_the_own_variable(monkeypatch):
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


def test_folders_are_made_durable_from_the_top(tmp_path, monkeypatch):
    synced: list[Path] = []
    monkeypatch.setattr(files, "sync_folder", synced.append)
    files.make_folder(tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b").is_dir()
    assert synced == [tmp_path.parent, tmp_path, tmp_path / "a"]
    files.make_folder(tmp_path / "a" / "b")
    # Whoever made it may have been killed before this.
    assert synced[3:] == [tmp_path / "a"]
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError):
        files.make_folder(tmp_path / "file")


@pytest.mark.parametrize(("number", "raised"), [(errno.EIO, True), (errno.EINVAL, False)])
def test_an_error_of_a_folder_s_fsync_is_one_of_the_write(tmp_path, monkeypatch, number, raised):
    """EINVAL is how a file system says that it cannot synchronise folders."""
    system = os.fsync

    def fsync(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(number, os.strerror(number))
        system(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(OSError, match="Input/output") if raised else contextlib.nullcontext():
        files.atomic_write(tmp_path / "a", b"x")
    assert os.listdir(tmp_path) == ["a"]


@pytest.mark.parametrize("target", ["precious", "gone"])
def test_a_link_in_the_place_of_the_temporary_file_is_not_written_through(
    tmp_path, monkeypatch, target
):
    """Who may write into the folder could guess its name."""
    (tmp_path / "precious").write_bytes(b"old")
    monkeypatch.setattr(files.secrets, "token_hex", lambda count: "0" * (2 * count))
    guessed = files.temporary_name(tmp_path / "a")
    os.symlink(tmp_path / target, guessed)
    with pytest.raises(FileExistsError):
        files.atomic_write(tmp_path / "a", b"new")
    assert (tmp_path / "precious").read_bytes() == b"old"
    assert sorted(os.listdir(tmp_path)) == [os.path.basename(guessed), "precious"]


def test_a_pipe_is_not_waited_for(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    raised: list[OSError] = []

    def read() -> None:
        try:
            files.read_regular(path, 100)
        except OSError as error:
            raised.append(error)

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    reader.join(20)
    waits = reader.is_alive()
    # Lets a reader that waits for the other end go.
    os.close(os.open(path, os.O_RDWR))
    assert not waits
    assert "regular" in str(raised)


@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
def test_only_a_regular_file_is_opened(tmp_path, kind):
    path = tmp_path / "a"
    if kind == "link":
        (tmp_path / "b").write_bytes(b"precious")
        path.symlink_to(tmp_path / "b")
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.mkdir()
    with pytest.raises(OSError, match=r"link|regular"):
        files.read_regular(path, 100)
    (tmp_path / "c").write_bytes(b"12345")
    assert files.read_regular(tmp_path / "c", 5) == b"12345"
    with pytest.raises(OSError, match="larger than 4 bytes"):
        files.read_regular(tmp_path / "c", 4)


def test_reading_takes_memory_for_what_is_there(tmp_path):
    (tmp_path / "log").write_bytes(b"a line\n")
    tracemalloc.start()
    try:
        assert files.read_regular(tmp_path / "log", 1 << 32) == b"a line\n"
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_a_line_is_appended_whole_or_not_at_all(tmp_path, monkeypatch):
    path, system = tmp_path / "log", os.write
    path.write_bytes(b"one\n")
    descriptor = os.open(path, os.O_RDWR | os.O_APPEND)
    monkeypatch.setattr(os, "write", lambda number, data: system(number, data[:2]))
    files.append(descriptor, b"second\n")
    assert path.read_bytes() == b"one\nsecond\n"
    calls = iter([True, True, False])

    def full(number: int, data: memoryview) -> int:
        if not next(calls):
            raise OSError(errno.ENOSPC, "No space left on device")
        return system(number, data[:2])

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match="No space"):
        files.append(descriptor, b"third line\n")
    assert path.read_bytes() == b"one\nsecond\n"
    os.close(descriptor)


def test_what_killed_writers_left_is_deleted_and_nothing_else(tmp_path):
    code = (
        "import os, sys; from dnnstack.common import files\n"
        "os.fsync = lambda descriptor: os.kill(os.getpid(), 9)\n"
        "files.atomic_write(sys.argv[1], b'x')"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "config.yaml")], check=False)
    (left,) = os.listdir(tmp_path)
    assert left.endswith(".tmp")
    kept = {".notes.tmp", "a.tmp", ".x.12.zzzzzzzz.tmp"}
    for name in kept:
        (tmp_path / name).touch()
    files.remove_temporaries(tmp_path)
    assert set(os.listdir(tmp_path)) == kept


def test_a_new_file_is_whole_and_the_first_stays(tmp_path):
    path = tmp_path / "a"
    assert files.write_new(path, [b"fir", b"st"])
    assert not files.write_new(path, b"second")
    assert path.read_bytes() == b"first"
    assert os.listdir(tmp_path) == ["a"]
    (tmp_path / "link").symlink_to("nowhere")
    assert not files.write_new(tmp_path / "link", b"x")
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize("number", [errno.EPERM, errno.ENOTSUP])
def test_a_new_file_without_hard_links(tmp_path, monkeypatch, number):
    def link(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "link", link)
    assert files.write_new(tmp_path / "a", b"first")
    assert not files.write_new(tmp_path / "a", b"second")
    assert (tmp_path / "a").read_bytes() == b"first"
    assert os.listdir(tmp_path) == ["a"]


@pytest.mark.parametrize("name", ["fsync", "link"])
def test_a_failure_leaves_no_temporary_file(tmp_path, monkeypatch, name):
    def fail(*_: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, name, fail)
    with pytest.raises(OSError, match="Input/output"):
        files.write_new(tmp_path / "a", b"x")
    assert os.listdir(tmp_path) == []


def ended_process() -> int:
    code = "import os; print(os.getpid())"
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, check=True)
    return int(done.stdout)


def test_what_is_deleted_where_others_may_write_too(tmp_path):
    """Old files of processes that do not run; newer ones only where nobody else may write."""
    ended, alive = ended_process(), os.getpid()
    hour_ago = time.time() - 3700
    old = {f".a.{ended}.0123abcd.tmp", f".b.{ended}.0123abcd.tmp", f".a.{10**30}.0123abcd.tmp"}
    kept = {
        *(f".a.{alive}.0123abcd.tmp", f".b.{alive}.0123abcd.tmp", "a.tmp"),
        *(f"a.{ended}.0123abcd.tmp", f".a.{ended}.0123ABCD.tmp", f".a.{ended}.0123abcd.part"),
    }
    for name in old | kept:
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (hour_ago, hour_ago))
    (tmp_path / f".folder.{ended}.0123abcd.tmp").mkdir()
    os.utime(tmp_path / f".folder.{ended}.0123abcd.tmp", (hour_ago, hour_ago))
    link, far = tmp_path / f".latest.{ended}.0123abcd.tmp", tmp_path / "far"
    link.symlink_to(far)
    os.utime(link, (hour_ago, hour_ago), follow_symlinks=False)
    new = {f".{name}.{ended}.89abcdef.tmp" for name in ("a", "b")}
    for name in new:
        (tmp_path / name).touch()
    files.remove_abandoned(tmp_path)
    left = kept | {f".folder.{ended}.0123abcd.tmp"}
    assert set(os.listdir(tmp_path)) == left | new
    files.remove_abandoned(tmp_path, "a")
    assert set(os.listdir(tmp_path)) == left | {f".b.{ended}.89abcdef.tmp"}


def test_a_missing_file_keeps_nothing_of_who_asks(tmp_path):
    """What the frames of the asking functions hold, such as GPU memory, is freed with them."""

    class Held:
        pass

    def ask() -> weakref.ref[Held]:
        held = Held()
        with contextlib.suppress(OSError):
            files.read_regular(tmp_path / "missing", 10)
        return weakref.ref(held)

    gc.disable()
    try:
        assert ask()() is None
    finally:
        gc.enable()


def test_files_of_another_user_stay(tmp_path, monkeypatch):
    path = tmp_path / f".a.{ended_process()}.0123abcd.tmp"
    path.touch()
    os.utime(path, (0, 0))
    user = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: user + 1)
    files.remove_abandoned(tmp_path)
    assert path.exists()
    files.remove_abandoned(tmp_path / "missing")


def test_lines_are_read_one_by_one(tmp_path, monkeypatch):
    path = tmp_path / "log"
    path.write_bytes(b"one\n\xff\r\n\nno end")
    assert list(files.regular_lines(path, 15)) == [b"one\n", b"\xff\r\n", b"\n", b"no end"]
    with pytest.raises(OSError, match="larger than 13 bytes"):
        list(files.regular_lines(path, 13))
    monkeypatch.setattr(files, "_LONGEST_LINE", 4)
    assert list(files.regular_lines(path, 15))[-2:] == [b"no e", b"nd"]
    (tmp_path / "link").symlink_to(path)
    os.mkfifo(tmp_path / "pipe")
    for name in ("link", "pipe"):
        with pytest.raises(OSError, match=r"link|regular"):
            next(files.regular_lines(tmp_path / name, 100))


def test_a_link_is_refused(tmp_path):
    for name in ("folder", "none"):
        files.refuse_link(tmp_path / name)
        (tmp_path / "link").unlink(missing_ok=True)
        (tmp_path / "link").symlink_to(tmp_path / name)
        with pytest.raises(CheckpointError, match="link: is a symbolic link; replace it"):
            files.refuse_link(tmp_path / "link")

"""Files of the cache folder: what is read stays, and a folder does not grow for ever."""

from __future__ import annotations

import os
import time

import pytest
from dnnstack.backends.cuda.libraries import kept

DAY = 24 * 3600


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """The cache folder, in which a folder has room for two files of 1000 bytes."""
    monkeypatch.setenv("DNNSTACK_CACHE", str(tmp_path))
    monkeypatch.setattr(kept, "_ROOM", 2500)
    kept._tidy.cache_clear()
    yield tmp_path
    kept._tidy.cache_clear()


def write(number, days=0.0):
    """A file of about 1000 bytes, last read some days ago."""
    key = kept.key_of(number)
    kept.write("plans", key, bytes(1000))
    then = time.time() - days * DAY
    os.utime(kept._path("plans", key), (then, then))
    return key


def another_process():
    kept._tidy.cache_clear()


def test_a_full_folder_loses_what_was_not_read_for_the_longest_time(cache):
    old, older, new = write(1, 8), write(2, 9), write(3, 1)
    another_process()
    fresh = write(4)
    assert not kept.is_kept("plans", older)
    assert [kept.read("plans", key) for key in (old, new, fresh)] == [bytes(1000)] * 3


def test_what_is_read_stays(cache):
    read, not_read, new = write(1, 9), write(2, 8), write(3, 1)
    assert kept.read("plans", read)
    another_process()
    write(4)
    assert kept.is_kept("plans", read)
    assert kept.is_kept("plans", new)
    assert not kept.is_kept("plans", not_read)


def test_a_read_marks_a_file_once_a_day(cache):
    key = write(1, 0.5)
    path = kept._path("plans", key)
    before = path.stat().st_mtime
    assert kept.read("plans", key)
    assert path.stat().st_mtime == before


def test_a_damaged_file_is_none_and_not_marked(cache):
    key = write(1, 3)
    path = kept._path("plans", key)
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    os.utime(path, (1, 1))
    assert kept.read("plans", key) is None
    assert path.stat().st_mtime == 1


def test_a_folder_with_room_loses_nothing(cache):
    keys = [write(1, 9), write(2, 8)]
    another_process()
    keys.append(write(3))
    assert all(kept.is_kept("plans", key) for key in keys)

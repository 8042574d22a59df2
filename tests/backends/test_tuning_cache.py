"""The stored tables, and who may search for one."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from dnnstack.backends import tuning_cache
from dnnstack.backends.tuning import Tuning
from dnnstack.backends.tuning_cache import CachedTuning, cached, forget, kept, publish, store, turn
from dnnstack.common import files
from dnnstack.common.locks import lock

TUNING = Tuning("onednn", {"oneDNN": "3.2", "threads": "2"}, "abc", {"conv2d_1": "nhwc"})
OTHER = replace(TUNING, choices={"conv2d_1": "nchw"})
WANTED = replace(TUNING, choices={})


def only_file(cache: Path) -> Path:
    (path,) = (cache / "tuning").glob("*.json")
    return path


def test_a_table_is_found_again_for_what_it_was_made_for():
    assert cached(WANTED) is None
    store(kept(TUNING))
    found = cached(WANTED)
    assert found is not None
    assert found.tuning() == TUNING
    assert cached(replace(WANTED, graph="other")) is None
    assert cached(replace(WANTED, environment={"threads": "3"})) is None
    forget(WANTED)
    assert cached(WANTED) is None


def test_a_table_of_an_earlier_version_counts_as_undisturbed(cache):
    store(kept(TUNING))
    only_file(cache).write_text(json.dumps(TUNING.to_json()))
    assert cached(WANTED) == kept(TUNING)


@pytest.mark.parametrize("text", ["{", "", "\0", "[" * 100_000], ids=["{", "none", "0", "deep"])
def test_a_damaged_table_is_none(cache, text):
    store(kept(TUNING))
    only_file(cache).write_text(text)
    _replaced_by_the_next()


@pytest.mark.parametrize("mark", ["1", -1, 1.5, [], None])
def test_a_table_with_a_damaged_mark_is_none(cache, mark):
    store(kept(TUNING))
    only_file(cache).write_text(json.dumps(TUNING.to_json() | {"disturbed": mark}))
    _replaced_by_the_next()


def _replaced_by_the_next() -> None:
    assert cached(TUNING) is None
    # And the next one takes its place.
    assert publish(kept(OTHER)) == kept(OTHER)
    assert cached(WANTED) == kept(OTHER)


def test_a_cache_that_cannot_be_written(cache):
    cache.mkdir(exist_ok=True)
    (cache / "tuning").write_text("a file where a folder should be")
    store(kept(TUNING))
    assert publish(kept(TUNING)) == kept(TUNING)
    assert cached(TUNING) is None
    with turn(WANTED, False) as mine:
        assert not mine.held


def _no_link(number: int) -> Callable[..., None]:
    def link(*_: Any, **__: Any) -> None:
        raise OSError(number, os.strerror(number))

    return link


@pytest.mark.parametrize("number", [0, errno.EPERM, errno.ENOTSUP])
def test_the_first_table_stays(cache, monkeypatch, number):
    """Also where the file system has no hard links."""
    if number:
        monkeypatch.setattr(files.os, "link", _no_link(number))
    assert publish(kept(TUNING)) == kept(TUNING)
    assert publish(kept(OTHER)) == kept(TUNING)
    assert cached(WANTED) == kept(TUNING)
    assert [path.name for path in (cache / "tuning").iterdir()] == [only_file(cache).name]


def _lock_path(cache: Path) -> Path:
    (cache / "tuning").mkdir(exist_ok=True)
    return tuning_cache._path(WANTED, False).with_suffix(".lock")


def test_who_waits_is_told_for_whom(cache, monkeypatch):
    monkeypatch.setattr(tuning_cache, "_TELL_SECONDS", 0.0)
    held = lock(_lock_path(cache))
    told: list[str] = []

    def notice(text: str) -> None:
        told.append(text)
        held.release()

    with turn(WANTED, False, notice=notice) as mine:
        assert (mine.held, mine.waited) == (True, True)
    (text,) = told
    assert text.startswith(f"pid {os.getpid()} on ")
    assert text.endswith("is timing the calls of this network; waiting for its choices")


def test_a_short_wait_is_not_told(cache):
    held = lock(_lock_path(cache))
    calls: list[int] = []

    def interrupt() -> None:
        calls.append(1)
        if len(calls) == 3:
            held.release()

    with turn(WANTED, False, interrupt, pytest.fail) as mine:
        assert (mine.held, mine.waited) == (True, True)


def test_a_wait_can_be_interrupted(cache):
    class Stop(Exception):
        pass

    calls: list[int] = []

    def interrupt() -> None:
        calls.append(1)
        if len(calls) == 3:
            raise Stop

    with lock(_lock_path(cache)), pytest.raises(Stop), turn(WANTED, False, interrupt):
        pytest.fail("it had the turn")


def test_a_wait_for_a_short_search_ends(cache, monkeypatch):
    """Whose process hangs, or is stopped."""
    monkeypatch.setattr(tuning_cache, "_WAIT_SECONDS", 0.2)
    with lock(_lock_path(cache)), turn(WANTED, False) as mine:
        assert (mine.held, mine.waited) == (False, True)
    # Each network has a lock of its own, and so has a thorough search.
    with lock(_lock_path(cache)), turn(WANTED, True) as mine:
        assert (mine.held, mine.waited) == (True, False)
    with lock(_lock_path(cache)), turn(replace(WANTED, graph="other"), False) as mine:
        assert (mine.held, mine.waited) == (True, False)


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EROFS, errno.EACCES, errno.ELOOP])
def test_without_a_lock_nobody_is_waited_for(monkeypatch, number):
    def none(path: Path) -> None:
        raise OSError(number, os.strerror(number), str(path))

    monkeypatch.setattr(tuning_cache, "lock", none)
    with turn(WANTED, False) as mine:
        assert (mine.held, mine.waited) == (False, False)


def test_what_a_killed_writer_of_this_table_left_is_deleted(cache):
    """Not that of another table, which another process may be writing just now."""
    store(kept(TUNING))
    path = only_file(cache)
    ended = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], **PIPED).stdout
    own, other = (f".{name}.{ended.strip()}.0123abcd.tmp" for name in (path.name, "x.json"))
    alive = f".{path.name}.{os.getpid()}.0123abcd.tmp"
    for name in (own, other, alive, "notes.tmp"):
        (path.parent / name).touch()
    with turn(WANTED, False):
        left = {each.name for each in path.parent.iterdir()}
    assert left == {path.name, path.stem + ".lock", other, alive, "notes.tmp"}


PIPED: Any = {"stdout": subprocess.PIPE, "text": True, "check": True}


def test_which_tables_want_another_search():
    assert [kept(TUNING, False, n).wants_another_search(False) for n in range(5)] == [
        *(False, True, True, False, False)
    ]
    # A short search cannot replace the table of a thorough one.
    assert not kept(TUNING, True, 1).wants_another_search(False)
    assert isinstance(kept(TUNING), CachedTuning)

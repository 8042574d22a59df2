"""Which table is used, when one is searched for, and what the user is told."""

from __future__ import annotations

import errno
import json
import os
import threading
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from dnnstack.backends import settling, tuning_cache
from dnnstack.backends.settling import CHOSEN_AGAIN, DISTURBED, settle
from dnnstack.backends.tuning import Tuning
from dnnstack.backends.tuning_cache import cached, kept, store
from dnnstack.common.locks import lock

PRESENT = Tuning("onednn", {"oneDNN": "3.2", "threads": "2"}, "abc", {})


@dataclass
class Machine:
    """Starts trainings; ``quiet`` says whether it is now, ``disturbs`` whether searches are."""

    quiet: bool = True
    disturbs: bool = False
    searches: int = 0
    asked: int = 0
    told: list[str] = field(default_factory=list)

    def search(self) -> tuple[dict[str, str], bool]:
        self.searches += 1
        return {"search": str(self.searches)}, not self.disturbs

    def is_quiet(self) -> bool:
        self.asked += 1
        return self.quiet

    def start(self, thorough: bool = False, given: Tuning | None = None) -> str:
        """The number of the search whose table is used."""
        tuning, notes = settle(
            PRESENT, given, True, self.search, thorough, quiet=self.is_quiet, notice=pytest.fail
        )
        self.told = list(notes)
        assert type(tuning) is Tuning
        return tuning.choices["search"]


@pytest.fixture
def machine():
    return Machine()


def test_an_undisturbed_search_is_done_once(machine):
    assert [machine.start() for _ in range(3)] == ["1"] * 3
    assert (machine.searches, machine.asked, machine.told) == (1, 0, [])


def test_a_short_search_does_not_do_for_a_thorough_one(machine):
    found = [machine.start(thorough) for thorough in (False, False, True, True, False)]
    assert found == ["1", "1", "2", "2", "2"]


def test_a_disturbed_search_is_marked_told_and_done_again(machine):
    machine.disturbs, machine.quiet = True, False
    assert machine.start() == "1"
    assert machine.told == [DISTURBED]
    found = cached(PRESENT)
    assert found is not None
    assert found.disturbed == 1
    machine.disturbs, machine.quiet = False, True
    assert machine.start() == "2"
    assert machine.told == [CHOSEN_AGAIN]
    assert machine.start() == "2"
    assert (machine.told, machine.searches) == ([], 2)


def test_no_start_that_is_disturbed_itself_searches_again(machine):
    machine.disturbs, machine.quiet = True, False
    for _ in range(5):
        assert machine.start() == "1"
        assert machine.told == [DISTURBED]
    assert (machine.searches, machine.asked) == (1, 4)


def test_searches_that_are_always_disturbed_come_to_an_end(machine):
    """Each begins when it is quiet; the first choice stays, whose bits others have."""
    machine.disturbs = True
    assert [machine.start() for _ in range(5)] == ["1"] * 5
    assert (machine.searches, machine.told) == (3, [])


def test_the_same_choices_once_more_are_not_told(machine):
    same = {"search": "same"}
    for disturbed in (True, False):
        found, notes = settle(PRESENT, None, True, lambda: (same, not disturbed))  # noqa: B023
        assert found.choices == same
        assert notes == ((DISTURBED,) if disturbed else ())


def test_graphs_that_are_alike_share_a_search(machine):
    """And each table is of its own graph, so that a resume knows it."""
    for mark in ("abc", "def"):
        own = replace(PRESENT, graph=mark)
        found, _ = settle(own, None, True, machine.search, alike="kind")
        assert found == replace(own, choices={"search": "1"})
    assert machine.searches == 1
    assert settle(PRESENT, found, True, machine.search)[0].choices == {"search": "2"}


def test_a_table_that_appeared_meanwhile_is_taken(machine, monkeypatch):
    """Without locks, of a process that was faster."""

    def none(path: Path) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    def slow() -> tuple[dict[str, str], bool]:
        machine.start()
        return {"search": "slow"}, True

    monkeypatch.setattr(tuning_cache, "lock", none)
    found, notes = settle(PRESENT, None, True, slow)
    assert (found.choices, notes) == ({"search": "1"}, ())
    assert machine.start() == "1"


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EROFS, errno.EACCES])
def test_without_a_lock_a_marked_table_stays(machine, monkeypatch, number):
    """In a folder that is only read, every start would search again and find other choices."""
    store(kept(replace(PRESENT, choices={"search": "0"}), disturbed=1))

    def none(path: Path) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(tuning_cache, "lock", none)
    assert machine.start() == "0"
    assert (machine.searches, machine.told) == (0, [DISTURBED])


def test_who_had_to_wait_takes_what_was_found_even_if_marked(machine, monkeypatch):
    """Both were started at once, and are to compute the same bits."""
    path = tuning_cache._path(PRESENT, False).with_suffix(".lock")
    path.parent.mkdir(parents=True)
    held, calls = lock(path), []

    def interrupt() -> None:
        calls.append(1)
        if len(calls) == 3:
            store(kept(replace(PRESENT, choices={"search": "theirs"}), disturbed=1))
            held.release()

    found, notes = settle(
        PRESENT, None, True, machine.search, quiet=machine.is_quiet, interrupt=interrupt
    )
    assert (found.choices, notes) == ({"search": "theirs"}, (DISTURBED,))
    assert machine.searches == 0
    # The next start, on its own, may replace it.
    assert machine.start() == "1"


def test_a_short_start_leaves_the_marked_table_of_a_thorough_search(machine):
    store(kept(replace(PRESENT, choices={"search": "0"}), thorough=True, disturbed=1))
    assert machine.start() == "0"
    assert machine.told == [DISTURBED]
    assert machine.start(thorough=True) == "1"
    assert machine.start() == "1"


def test_a_checkpoint_s_table_is_kept_whatever_is_stored(machine):
    store(kept(replace(PRESENT, choices={"search": "0"}), disturbed=1))
    given = replace(PRESENT, choices={"search": "given"})
    assert machine.start(given=given) == "given"
    assert (machine.searches, machine.asked, machine.told) == (0, 0, [])


def test_the_mark_is_in_no_checkpoint(machine):
    machine.disturbs, machine.quiet = True, False
    for _ in range(2):
        tuning, _ = settle(PRESENT, None, True, machine.search, quiet=machine.is_quiet)
        assert set(json.loads(json.dumps(tuning.to_json()))) == {
            *("backend", "environment", "graph", "choices")
        }


def test_a_search_that_fails_leaves_the_lock(machine):
    def fail() -> Any:
        raise KeyError("a mistake")

    with pytest.raises(KeyError):
        settle(PRESENT, None, True, fail)
    assert machine.start() == "1"
    assert settling.DISTURBED not in machine.told


def test_a_search_that_takes_longer_is_told_while_it_lasts(monkeypatch):
    monkeypatch.setattr(settling, "TELL_SECONDS", 0.0)
    heard: list[str] = []
    told = threading.Event()

    def notice(text: str) -> None:
        heard.append(text)
        told.set()

    def search() -> tuple[dict[str, str], bool]:
        assert told.wait(60)
        return {}, True

    settle(PRESENT, None, True, search, notice=notice)
    assert [text.partition(" to find")[0] for text in heard] == ["timing the library's calls"]


def test_a_search_that_ends_before_is_not_told(monkeypatch):
    monkeypatch.setattr(settling, "TELL_SECONDS", 3600.0)
    settle(PRESENT, None, True, lambda: ({}, True), notice=pytest.fail)
    assert not [each for each in threading.enumerate() if isinstance(each, threading.Timer)]

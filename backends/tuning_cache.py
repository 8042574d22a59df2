"""The tables of earlier searches in the cache folder, and who may search for one.

Two searches for the same network may find different choices, and these give different last bits. So
that processes started at once compute the same bits, one of them settles the choice for all: the
one that gets the lock of this table searches, and the others wait for what it finds. A lock is
better than letting all search and the first win, because searches at the same time disturb each
other's timing. The system releases the lock of a process that is killed, and the next one searches.
Where there is no lock (the file system has none, or the folder is of another user), and where one
has waited for too long, the first wins: a table is never put in place of one that appeared during
the search; that one is used. Only without a folder to write to does every process use its own.

A table that was timed while other programs used the device is marked ``disturbed``. The next start
that finds the device quiet, and did not have to wait for the lock, searches again and replaces it.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from ..common.errors import LockedError
from ..common.files import (
    atomic_write,
    cache_dir,
    make_folder,
    read_regular,
    remove_abandoned,
    write_new,
)
from ..common.locks import lock
from ..common.records import dataclass
from ..common.typed_json import Count, from_json
from .tuning import Tuning

# Bytes of a stored table.
_LONGEST = 1 << 24
_POLL_SECONDS = 0.1
_TELL_SECONDS = 1.5
# A short search takes ten seconds and what it takes to build the trials.
_WAIT_SECONDS = 120.0
# After so many disturbed searches a table is left as it is.
_MOST_DISTURBED = 3


@dataclass(frozen=True)
class CachedTuning(Tuning):
    """A stored table. ``disturbed``: the searches so far, if other programs disturbed all of them.

    ``thorough``: the search had no time limit.
    """

    disturbed: Count = 0
    thorough: bool = False

    def tuning(self) -> Tuning:
        """The table as executables and checkpoints have it."""
        return Tuning(self.backend, self.environment, self.graph, self.choices)

    def wants_another_search(self, thorough: bool) -> bool:
        """Whether a search of this kind may replace the table."""
        return 0 < self.disturbed < _MOST_DISTURBED and self.thorough == thorough


def kept(tuning: Tuning, thorough: bool = False, disturbed: int = 0) -> CachedTuning:
    """A table as it is stored."""
    fields = (tuning.backend, tuning.environment, tuning.graph, tuning.choices)
    return CachedTuning(*fields, disturbed=disturbed, thorough=thorough)


def cached(wanted: Tuning, thorough: bool = False) -> CachedTuning | None:
    """The stored table for the same backend, environment and graph; None if missing or damaged.

    The table of a thorough search is preferred; ``thorough``: only such a table is used.
    """
    for kind in (True,) if thorough else (True, False):
        try:
            found = from_json(read_regular(_path(wanted, kind), _LONGEST), CachedTuning)
        except (OSError, ValueError):
            continue
        if not found.misfit(wanted):
            return replace(found, thorough=kind)
    return None


def store(table: CachedTuning) -> None:
    """Store a table in place of another; a cache that cannot be written is not an error."""
    path = _path(table, table.thorough)
    with suppress(OSError):
        make_folder(path.parent)
        atomic_write(path, _text(table))


def publish(table: CachedTuning) -> CachedTuning:
    """Store a table if there is none yet; returns the one that is there afterwards.

    That is ``table`` itself where nothing can be written.
    """
    path = _path(table, table.thorough)
    try:
        make_folder(path.parent)
        if write_new(path, _text(table)):
            return table
    except OSError:
        return cached(table, table.thorough) or table
    found = cached(table, table.thorough)
    if found is None:
        # What is in the way is damaged.
        store(table)
    return found or table


def forget(tuning: Tuning) -> None:
    """Delete the stored tables for the same backend, environment and graph, if unusable."""
    for kind in (True, False):
        with suppress(OSError):
            _path(tuning, kind).unlink()


@dataclass(frozen=True)
class Turn:
    """``held``: nobody else searches for this table now; ``waited``: somebody just did."""

    held: bool
    waited: bool


@contextmanager
def turn(
    wanted: Tuning,
    thorough: bool,
    interrupt: Callable[[], None] = lambda: None,
    notice: Callable[[str], None] = lambda text: None,
) -> Iterator[Turn]:
    """Hold the lock of a table, after waiting for another process that has it.

    Without a lock to be had, and after two minutes (a thorough search is waited for without a
    limit), the turn is not ``held``. ``notice`` is told who is waited for after a while;
    ``interrupt`` is called several times a second, and its exceptions end the waiting.
    """
    path = _path(wanted, thorough).with_suffix(".lock")
    begin, told, waited = time.monotonic(), False, False
    with ExitStack() as stack:
        held = False
        while True:
            interrupt()
            try:
                make_folder(path.parent)
                stack.enter_context(lock(path))
                held = True
                break
            except LockedError as error:
                waited = True
                gone = time.monotonic() - begin
                if gone >= _TELL_SECONDS and not told:
                    who = error.holder or "another process"
                    notice(f"{who} is timing the calls of this network; waiting for its choices")
                    told = True
                if gone >= _WAIT_SECONDS and not thorough:
                    break
                time.sleep(_POLL_SECONDS)
            except OSError:
                break
        if held:
            remove_abandoned(path.parent, f"{path.stem}.json")
        yield Turn(held, waited)


def _text(table: CachedTuning) -> bytes:
    return json.dumps(table.to_json(), indent=1).encode()


def _path(tuning: Tuning, thorough: bool) -> Path:
    key = repr((tuning.backend, sorted(tuning.environment.items()), tuning.graph))
    name = hashlib.sha256(key.encode()).hexdigest()[:32] + ("-searched" if thorough else "")
    return cache_dir() / "tuning" / f"{name}.json"

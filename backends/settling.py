"""Settling what is decided by timing: a checkpoint's table, a stored one, or that of a search."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

from .tuning import UNEQUAL, Tuning
from .tuning_cache import CachedTuning, Turn, cached, kept, publish, store, turn

_LOG = logging.getLogger("dnnstack.layers")
DISTURBED = (
    "other programs kept this device busy while calls were timed to find the fastest, so training "
    "may be slower than it could be; the next start on a quiet device times them again, and other "
    "choices can change the last bits of results"
)
CHOSEN_AGAIN = (
    "the fastest calls were chosen again, because other programs had disturbed their timing; "
    f"{UNEQUAL}"
)
TIMING = (
    "timing the library's calls to find the fastest, which takes {}; the next start uses what is "
    "found now"
)
# Of a search, before the user is told of it.
TELL_SECONDS = 2.0
# Finds choices, and says whether nothing stood in the way: no other program at work on the device,
# and none that held the memory that a choice needs.
Search = Callable[[], tuple[Mapping[str, str], bool]]
# The choices that ship with the package for a backend, environment and graph, if there are any.
Shipped = Callable[[Tuning], "Mapping[str, str] | None"]


def settle(
    present: Tuning,
    given: Tuning | None,
    trains: bool,
    search: Search | None,
    thorough: bool = False,
    *,
    shipped: Shipped = lambda sought: None,
    alike: str = "",
    quiet: Callable[[], bool] = lambda: True,
    interrupt: Callable[[], None] = lambda: None,
    notice: Callable[[str], None] = lambda text: None,
) -> tuple[Tuning, tuple[str, ...]]:
    """The table to compile with, and what to tell the user about it.

    ``present``: the backend's default choices, with the present backend, environment and graph.
    ``given``, a checkpoint's table, is used if it fits; its bits matter only if a section trains.
    Otherwise the stored table is used, or the one that ``shipped`` gives, or the result of
    ``search``, which is then stored; None does not search. ``thorough``: the search has no time
    limit, and neither the result of a short one nor what ships is used. ``alike``: the mark of all
    graphs that the stored table is for, in place of the present one. ``quiet``: whether no other
    program uses the device now; it may take a moment. ``interrupt`` and ``notice`` are those of
    ``turn``, for another process's search; ``notice`` is also told of a search of this one that
    takes more than a moment, by another thread.
    """
    notes: tuple[str, ...] = ()
    if given is not None:
        reason = given.misfit(present) if trains else ""
        if not reason and given.backend == present.backend:
            _LOG.info("tuning: the checkpoint's table, %d choices", len(given.choices))
            return given, ()
        if reason:
            notes = (f"{UNEQUAL}: {reason}",)
    if search is None or not trains:
        return present, notes
    sought = replace(present, graph=alike or present.graph)
    found = cached(sought, thorough)
    if found is not None and not found.wants_another_search(thorough):
        _LOG.info("tuning: %d choices, from the cache", len(found.choices))
        told = _told(found)
    elif found is None and not thorough and (choices := shipped(sought)) is not None:
        _LOG.info("tuning: %d choices, which ship with dnnstack for this device", len(choices))
        return replace(present, choices=choices), notes
    else:
        with turn(sought, thorough, interrupt, notice) as mine:
            found, told = _settled(sought, search, thorough, quiet, mine, found, notice)
    return replace(found.tuning(), graph=present.graph), notes + told


def _settled(
    present: Tuning,
    search: Search,
    thorough: bool,
    quiet: Callable[[], bool],
    mine: Turn,
    before: CachedTuning | None,
    notice: Callable[[str], None],
) -> tuple[CachedTuning, tuple[str, ...]]:
    """The table that is stored by now, or that of a search; and what to tell about it.

    ``before``: what was stored when this process came.
    """
    known = cached(present, thorough)
    # Processes that were started at once must not replace what one of them has just settled. It may
    # have given its turn back before this process asked for one.
    again = mine.held and not mine.waited and known == before
    if known is not None and not (again and known.wants_another_search(thorough) and quiet()):
        _LOG.info("tuning: %d choices, from the cache", len(known.choices))
        return known, _told(known)
    begin = time.perf_counter()
    with _told_meanwhile(TIMING.format("some time" if thorough else "some seconds"), notice):
        choices, undisturbed = search()
    seconds = time.perf_counter() - begin
    _LOG.info("tuning: %d choices, timed in %.1f s", len(choices), seconds)
    found = kept(replace(present, choices=dict(choices)), thorough, int(not undisturbed))
    if known is None:
        found = publish(found)
        return found, _told(found)
    if not undisturbed:
        # No better than the one that is known, whose bits others have.
        found = replace(known, disturbed=known.disturbed + 1)
    store(found)
    changed = undisturbed and found.choices != known.choices
    return found, (CHOSEN_AGAIN,) if changed else _told(found)


def _told(found: CachedTuning) -> tuple[str, ...]:
    return (DISTURBED,) if found.wants_another_search(found.thorough) else ()


@contextmanager
def _told_meanwhile(text: str, notice: Callable[[str], None]) -> Iterator[None]:
    """Tell the text, unless the block ends before."""
    timer = threading.Timer(TELL_SECONDS, notice, [text])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()

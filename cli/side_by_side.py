"""``dnnstack train --seeds N --workers K``: runs of a group, several at a time."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from ..common.cells import columns, wrapped_lines
from ..common.errors import Interrupted
from ..common.printable import printable
from ..many.claims import Claims, Taken
from ..many.outcome import Outcome, outcome
from ..many.planned import train_members
from ..reports.training_text import duration
from ..training.listener import Listener, Summary
from ..training.records.group import Member, read_group
from . import console, progress
from .sweep_screen import Heard, standing
from .together import Together
from .workers import Crew, Said, Say

if TYPE_CHECKING:
    from ..training.records.resume import Resume
    from ..training.signals import StopSignals

Train = Callable[[Member, "Resume | None", Listener, Callable[[], bool]], Summary]


@dataclass
class Ended:
    """How the runs of a group ended.

    ``failed``: one that was not interrupted did not finish. ``missed``: one did not reach the
    config's goal.
    """

    interrupted: bool = False
    failed: bool = False
    missed: bool = False


def train_side_by_side(
    path: Path,
    count: int,
    opened: Callable[[], Train],
    stop: StopSignals,
    together: str | None = None,
    without: Collection[str] = (),
) -> Ended:
    """Train the runs of a locked group that have not finished, ``count`` at a time.

    ``opened`` is called in each process, and gives what trains a run there. ``together``: in
    threads of this process instead, on the device of this name. Runs ``without`` stay as they are.
    Raises DnnstackError.
    """
    with _claims(together) as claims:
        members = read_group(path).members
        take(claims, members, without)
        screen = _Screen(path, members)

        def work(say: Say, ends: Callable[[], bool]) -> None:
            train, number = opened(), 0

            def one(member: Member, resumed: Resume | None) -> Summary:
                return train(member, resumed, Heard(number, say, console.note), ends)

            def begins(place: int, count: int, member: Member) -> None:
                nonlocal number
                number = place - 1
                say(Said("begun", number))

            # A run that is ended before its first step has nothing to save, and says so.
            with suppress(Interrupted):
                for member, done in train_members(path, one, console.note, begins, claims):
                    if not isinstance(done, Summary):
                        console.error(f"{member.name}: {done}")
                    say(Said("ended", number))
                    if ends():
                        return

        def give_up(number: int, why: str) -> None:
            # Nobody else can take it from now on.
            claims.take(number)
            console.error(f"{members[number].name}: {why}")

        screen.open()
        try:
            if together is None:
                Crew(work, screen.hear, screen.turn, give_up, stop).run(count)
            else:
                Together(together, work, screen.hear, screen.turn, stop).run(count)
        finally:
            screen.close()
        found = [outcome(path / each.name) for each in members]
        missing = not all(each.finished for each in found)
        stopped = missing and stop.requested()
        missed = any(each.finished and each.goal is False for each in found)
        return Ended(stopped, missing and not stopped, missed)


def take(claims: Claims | Taken, members: Sequence[Member], names: Collection[str]) -> None:
    """Take the runs of these names, so that nobody trains them."""
    for number, member in enumerate(members):
        if member.name in names:
            claims.take(number)


def _claims(together: str | None) -> AbstractContextManager[Claims | Taken]:
    """What keeps two processes, or two threads, from training the same run."""
    return Claims() if together is None else nullcontext(Taken())


class _Screen:
    """A line for each run that ends, and how far the others are: on a terminal as a bar."""

    def __init__(self, path: Path, members: Sequence[Member]) -> None:
        self._path, self._members = path, members
        self._under_way: dict[int, Said] = {}
        self._told = {each.name for each in members if outcome(path / each.name).finished}
        self._bar: Any = None
        self._printed = perf_counter()

    def hear(self, said: Said) -> None:
        if said.kind == "line":
            console.relay(said.text)
        elif said.kind == "ended":
            if said.trial is not None:
                self._under_way.pop(said.trial, None)
                self._tell(self._members[said.trial].name)
        elif said.trial is not None:
            self._under_way[said.trial] = said

    def turn(self) -> None:
        """Several times a second: show how far the runs are."""
        if self._bar is not None:
            self._bar.set_description_str(self._standing())
        elif self._under_way and perf_counter() - self._printed >= progress.SILENCE:
            self._print(self._standing())

    def open(self) -> None:
        if console.is_quiet() or not sys.stdout.isatty():
            return
        from tqdm import tqdm

        # Its thread would be there when a worker is forked.
        tqdm.monitor_interval = 0
        self._bar = console.tqdm_bar(
            sys.stdout,
            3,
            total=len(self._members),
            initial=len(self._told),
            mininterval=0.0,
            bar_format="{n_fmt}/{total_fmt} {percentage:3.0f}% |{bar}| {desc}",
        )

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None

    def _tell(self, name: str) -> None:
        found = outcome(self._path / name)
        if found.finished and name not in self._told:
            self._told.add(name)
            self._print(_line(name, found))
            if self._bar is not None:
                self._bar.n = len(self._told)
                self._bar.refresh()

    def _standing(self) -> str:
        names = [printable(each.name) for each in self._members]
        return ", ".join(standing(self._under_way, names.__getitem__))

    def _print(self, text: str) -> None:
        if console.is_quiet():
            return
        if self._bar is None:
            progress.say(text)
        else:
            lines = wrapped_lines(console.clean([text]), columns(sys.stdout))
            self._bar.write(lines, file=sys.stdout)
        self._printed = perf_counter()


def _line(name: str, found: Outcome) -> str:
    accuracy = "" if found.accuracy is None else f" accuracy {found.accuracy:.2%} on validation,"
    spent = duration(found.seconds)
    return f"{printable(name)}: finished,{accuracy} step {found.step}, {spent} of training"

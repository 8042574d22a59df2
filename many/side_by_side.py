"""The runs of a group, one after the other or several at a time."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import closing, nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from ..backends.base import Backend
from ..common.errors import DnnstackError, Interrupted
from ..configs import placed
from ..training.listener import Summary
from ..training.records.group import Member, read_group
from ..training.records.resume import Resume
from . import together
from .group import Claims, Taken, lock_group
from .outcome import outcome
from .planned import Planned, check_planned, settings_of, train_members
from .screen import Heard, Said, Say
from .trainings import Ends, Trainings


@dataclass
class Ended:
    """How the runs of a group ended.

    ``failed``: one that was not interrupted did not finish. ``missed``: one did not reach the
    config's goal.
    """

    interrupted: bool = False
    failed: bool = False
    missed: bool = False


def train_group(
    trainings: Trainings, planned: Planned, spreads: bool = False
) -> tuple[Path, Ended]:
    """Begin a group, or go on with one, and train its runs.

    ``spreads``: on a GPU, several at a time once that is worth it. Returns the folder, and how the
    runs ended. Raises DnnstackError.
    """
    with placed(trainings.base):
        check_planned(planned, trainings.base.config)
    backend = trainings.prepared()
    path = planned.folder(trainings.base.config, trainings.resume)
    trainings.screen.opening(path, backend, trainings.count, trainings.threads)
    held = lock_group(path)
    with nullcontext() if held is None else held:
        if backend is None or trainings.count > 1:
            return path, _side_by_side(trainings, path, backend, ())
        failed: set[str] = set()
        ended, count = _in_turn(trainings, path, backend, failed, spreads)
        if count > 1:
            try:
                more = replace(trainings, count=count)
                rest = _side_by_side(more, path, backend, failed)
            except Interrupted:
                raise
            except DnnstackError as error:
                # Nobody has asked for it, and alone there is more memory.
                text = f"{error}; the runs left are trained one after the other"
                trainings.screen.notice(text)
                rest, _ = _in_turn(trainings, path, backend, failed, False)
            missed, bad = ended.missed or rest.missed, bool(failed) or rest.failed
            ended = Ended(rest.interrupted, bad, missed)
        return path, ended


def _side_by_side(
    trainings: Trainings, path: Path, backend: Backend | None, without: Collection[str]
) -> Ended:
    """Train the runs of a locked group that have not finished, several at a time.

    Runs ``without`` stay as they are. Raises DnnstackError.
    """
    screen = trainings.screen
    # What keeps two processes, or two threads, from training the same run.
    with Claims() if backend is None else nullcontext(Taken()) as claims:
        members = read_group(path).members
        _take(claims, members, without)

        def work(say: Say, ends: Ends, device: Backend) -> None:
            number = 0

            def one(member: Member, resumed: Resume | None) -> Summary:
                heard = Heard(number, say, screen.notice)
                settings = settings_of(path, member.name, member.settings)
                return trainings.train(settings, resumed, device, heard, ends)

            def begins(place: int, count: int, member: Member) -> None:
                nonlocal number
                number = place - 1
                say(Said("begun", number))

            # A run that is ended before its first step has nothing to save, and says so.
            with suppress(Interrupted):
                for member, done in train_members(path, one, screen.notice, begins, claims):
                    if not isinstance(done, Summary):
                        screen.error(f"{member.name}: {done}")
                    say(Said("ended", number))
                    if ends():
                        return

        def give_up(number: int, why: str) -> None:
            # Nobody else can take it from now on.
            claims.take(number)
            screen.error(f"{members[number].name}: {why}")

        trainings.side_by_side(work, backend, give_up)
        found = [outcome(path / each.name) for each in members]
        missing = not all(each.finished for each in found)
        stopped = missing and trainings.stop()
        missed = any(each.finished and each.goal is False for each in found)
        return Ended(stopped, missing and not stopped, missed)


def _in_turn(
    trainings: Trainings, path: Path, backend: Backend, failed: set[str], spreads: bool
) -> tuple[Ended, int]:
    """How the runs ended that were trained one after the other, and how many to train at a time
    from then on; the names of those that fail are added to ``failed``.

    Those that have failed before are left out. ``spreads``: this number may become more than 1.
    """
    screen = trainings.screen

    def train(member: Member, resumed: Resume | None) -> Summary:
        settings = settings_of(path, member.name, member.settings)
        return trainings.train(settings, resumed, backend, screen.listener(), trainings.stop)

    def begins(place: int, count: int, member: Member) -> None:
        screen.begins(place, count, member.name)

    # The group is locked already.
    ended, claims = Ended(), Taken()
    _take(claims, read_group(path).members, failed)
    with closing(train_members(path, train, screen.notice, begins, claims)) as runs:
        while not ended.interrupted:
            if spreads:
                count, left = together.worth(backend.name, path, failed, trainings.layers)
                if count > 1:
                    screen.spreads(len(left), count)
                    return ended, count
            place = next(runs, None)
            if place is None:
                break
            member, done = place
            if not isinstance(done, Summary):
                screen.error(f"{member.name}: {done}")
                failed.add(member.name)
                continue
            screen.ended(done)
            ended.interrupted = done.state == "interrupted"
            ended.missed |= done.state == "finished" and done.goal is False
    return replace(ended, failed=bool(failed)), 1


def _take(claims: Claims | Taken, members: Sequence[Member], names: Collection[str]) -> None:
    """Take the runs of these names, so that nobody trains them."""
    for number, member in enumerate(members):
        if member.name in names:
            claims.take(number)

"""Rank 0: a session that lets the other ranks do what it does."""

from __future__ import annotations

import json
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, replace
from time import perf_counter
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ...backends.base import Backend
from ...backends.collectives import join
from ...configs import effective_yaml
from ..alone import Company
from ..pace import next_chunk
from ..records.formats.state import Metrics, Snapshot
from ..sections import Sections
from ..session import Session
from ..setup import Setup
from ..share import ALONE, RankShare
from .team import Team
from .world import RanksError

T = TypeVar("T")
SAME = "start all ranks with the same program, on machines that compute alike"


class Leading(Session, ABC):
    """A session of rank 0."""

    @abstractmethod
    def lead(self, team: Team) -> None:
        """From now on the others do what this session does."""


class Lead(Company):
    """What rank 0 does before its session can run: everything together with the others."""

    def __init__(self, team: Team) -> None:
        self.team = team
        self.share = RankShare(team.rank, team.size)
        join(team)

    @property
    def kind(self) -> type[Leading]:
        """The class of the session that leads."""
        return Leader

    def do(self, work: Callable[[], T]) -> T:
        """Work that, if it fails on one rank, ends all of them."""
        with self.team.together():
            return work()

    def load(self, work: Callable[[], T]) -> T:
        """On one rank of a node first, which fills the caches."""
        found: T = self.team.in_turn(work)
        return found

    def compiled(self, make: Callable[[type[Session]], Session]) -> Session:
        """The session; the others compile it with its choices."""
        session = self.do(lambda: make(self.kind))
        tell(self.team, "compile", **_compiled(session))
        with self.team.together():
            pass
        self.team.agree(marks(session), SAME)
        assert isinstance(session, self.kind)
        session.lead(self.team)
        return session


class Leader(Leading):
    """A session of rank 0, whose ``team`` does what changes the state with it."""

    team: Team
    _broken = False

    def __init__(self, setup: Setup, backend: Backend, *more: Any, **options: Any) -> None:
        super().__init__(setup, backend, *more, **options)
        self._backend = backend

    def lead(self, team: Team) -> None:
        self.team = team

    def put(self, snapshot: Snapshot) -> None:
        with self._told("put", step=snapshot.step):
            put(self, self.team, snapshot, super().put)

    def set_rate_factor(self, factor: float) -> None:
        with self._told("set_rate_factor", factor=float(factor)):
            super().set_rate_factor(factor)

    def run(self, steps: int, wait: bool = True) -> None:
        with self._told("run", steps=steps), self.team.answering(self._backend):
            super().run(steps, wait)

    def sums(self) -> NDArray[np.float64]:
        with self.team.answering(self._backend):
            return super().sums()

    def validate(self, stop_requested: Callable[[], bool] = lambda: False) -> Metrics | None:
        """Batches are dealt out; their sums are added in order, as if one rank had done all."""
        rows: list[NDArray[np.float64]] = []
        total, done, chunk = np.zeros(3), 0, 1
        while done < self.evaluation_steps:
            if stop_requested():
                return None
            count = min(chunk * self.team.size, self.evaluation_steps - done)
            began = perf_counter()
            with self._told("validate", first=done, count=count):
                for row in dealt_out(self, self.team, done, count):
                    total += row[:3]
                    rows.append(row[3:])
            chunk = next_chunk(-(-count // self.team.size), perf_counter() - began)
            done += count
        return self.validation_metrics(total, rows)

    def renew_part(self, first: int, count: int) -> None:
        """Every rank measures all batches, so that all have the same bits."""
        with self._told("renew", first=first, count=count), self.team.answering(self._backend):
            super().renew_part(first, count)

    def snapshot(self) -> Snapshot:
        """Also compares the state of all ranks. Raises RanksError where one has another."""
        found = super().snapshot()
        with self._told("check"):
            every, arrays = gathered(self, self.team, found.arrays)
        for rank, (mark,) in enumerate(every):
            if mark != every[0][0]:
                raise RanksError(
                    f"step {found.step}: the parameters of {self.team.named(rank)} are no longer "
                    "those of rank 0; nothing was saved since they were equal, so resume from the "
                    "last checkpoint, without this machine if it recurs"
                )
        return replace(found, arrays=arrays)

    def bad_evaluation_batch(self) -> int | None:
        for first in range(0, self.evaluation_steps, self.team.size):
            count = min(self.team.size, self.evaluation_steps - first)
            with self._told("validate", first=first, count=count):
                every = list(dealt_out(self, self.team, first, count))
            for number, row in enumerate(every):
                if not np.isfinite(row[:3]).all():
                    return first + number
        return None

    def close(self) -> None:
        if not self._broken:
            tell(self.team, "close")
            self.team.parted = True
        super().close()
        join(None)

    def _sections(self) -> Sections:
        """All parts on this rank: bits do not depend on the number of ranks."""
        return replace(self.setup, share=ALONE).sections()

    @contextmanager
    def _told(self, name: str, **given: Any) -> Iterator[None]:
        """Let the others do the same; if this fails here, they cannot be told anything more."""
        tell(self.team, name, **given)
        try:
            yield
        except BaseException:
            self._broken = True
            raise


def tell(team: Team, name: str, **given: Any) -> None:
    team.tell(json.dumps({"do": name, **given}))


def put(session: Session, team: Team, snapshot: Snapshot, then: Callable[[Snapshot], None]) -> None:
    """Put the snapshot of rank 0 into the sessions of all ranks."""
    sums = np.array(snapshot.sums, np.float64)
    team.spread(sums)
    arrays = {name: np.ascontiguousarray(snapshot.arrays[name]) for name in session.shapes()}
    for array in arrays.values():
        team.spread(array)
    then(Snapshot(snapshot.step, sums, arrays))


def dealt_out(
    session: Session, team: Team, first: int, count: int
) -> Iterator[NDArray[np.float64]]:
    """The sums, and answers, of the evaluation's batches from ``first`` on, in order; see
    ``evaluated_batch``."""
    answers = session.graph("evaluate")["probabilities"].size if session.reads_answers else 0
    own = np.zeros((-(-count // team.size), 3 + answers))
    for row in range(len(own)):
        batch = first + row * team.size + team.rank
        # A rank that shares out a layer with others computes as many batches as they.
        if batch < first + count or session.split():
            own[row] = session.evaluated_batch(min(batch, first + count - 1))
    every = team.collect(own)
    return (every[i % team.size][i // team.size] for i in range(count))


def gathered(
    session: Session, team: Team, arrays: Mapping[str, NDArray[np.float32]]
) -> tuple[NDArray[np.float64], dict[str, NDArray[np.float32]]]:
    """The checksums of all ranks, and the arrays with the rows of all where each has its own."""
    split = session.split()
    alike = {name: array for name, array in arrays.items() if name not in split}
    every = team.collect(np.array([checksum(alike)], np.float64))
    whole = dict(arrays)
    for name in (name for name in arrays if name in split):
        rows = np.empty((team.size, *arrays[name].shape), np.float32)
        rows[team.rank] = arrays[name]
        team.gather(rows)
        whole[name] = rows.reshape(session.shapes()[name])
    return every, whole


def checksum(arrays: Mapping[str, NDArray[np.float32]]) -> int:
    """CRC-32 of all arrays, one behind the other."""
    mark = 0
    for array in arrays.values():
        mark = _mark(array, mark)
    return mark


def marks(session: Session) -> dict[str, str]:
    """What must be equal on all ranks before the first step."""
    data, choices = session.setup.data, sorted(session.executable.tuning.choices.items())
    # A few pictures from everywhere.
    pictures = data.images[:: max(1, len(data) // 64)]
    shown = f"{len(data)} samples, marks {_mark(data.labels):08x} and {_mark(pictures):08x}"
    table = zlib.crc32(repr(choices).encode())
    return {"the data": shown, "the table of the fastest calls": f"{table:08x}"}


def _mark(array: NDArray[Any], before: int = 0) -> int:
    return zlib.crc32(np.ascontiguousarray(array).tobytes(), before)


def _compiled(session: Session) -> dict[str, Any]:
    """What the others compile by: the preprocessing that was measured or restored, the choices,
    and which samples of the data set are taken."""
    setup: Setup = session.setup
    return {
        "config": effective_yaml(setup.config),
        "scaling": vars(setup.scaling),
        "bits": setup.data.bits,
        "columns": setup.data.columns and asdict(setup.data.columns),
        "tuning": session.executable.tuning.to_json(),
        "taken": None if setup.chosen is None else setup.chosen.told(),
    }

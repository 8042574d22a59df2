"""Asynchronous training: rank 0 runs the loop, deals out batches, and leads the other servers."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...backends.base import Backend
from ...backends.collectives import join
from ...backends.tuning import Tuning
from ...common.errors import ConfigError
from ...configs import RunConfig
from ..assemble import rule_of
from ..records.formats.state import Metrics, Snapshot
from ..session import Session
from ..setup import Setup
from ..share import ALONE
from .leader import Lead, Leading
from .post import Lost, Post
from .shard import Piece, Shard, check, layout, statistics_of
from .team import Team
from .worker import END, METRICS, NEWS, ORDER, PULLED, PUSHED, STATE, STATISTICS, WORK
from .world import RanksError

# The most momentum that was seen to converge with four workers; 0.9 diverged.
MOST_MOMENTUM = 0.6
# What rank 0 orders the other servers to do.
GIVE, APPLY, DROP, READ, PUT, FACTOR, CLOSE = range(7)
# Seconds between two looks for news, and between two looks for those who bring none.
_NAP, _LOOK = 1e-4, 0.2


class AsyncLead(Lead):
    """As Lead, for a session that updates with whatever gradient comes."""

    def __init__(self, team: Team) -> None:
        super().__init__(team)
        # Everyone has the whole network, and nothing is done together in a step.
        self.share = ALONE
        join(None)

    @property
    def kind(self) -> type[Serving]:
        return Serving

    def check(self, config: RunConfig) -> None:
        check_config(config, self.team.size)


def check_config(config: RunConfig, ranks: int) -> None:
    """Raise ConfigError for what so many ranks cannot do asynchronously."""
    parallel = config.parallel
    if parallel is None or parallel.mode != "async":
        raise ConfigError("--async: the config says parallel.mode: sync; leave one of them out")
    workers = ranks - parallel.servers
    if workers < 1:
        raise ConfigError(
            f"parallel.servers: {parallel.servers} of {ranks} ranks are servers, so none is left "
            "to compute; start more by --ranks, or use fewer servers"
        )
    for key in ("prune", "share"):
        if getattr(config, key) is not None:
            raise ConfigError(
                f"{key}: servers update the parameters in pieces that do not know of it; leave it "
                "out, or train without --async"
            )
    if config.optimizer.swa is not None:
        raise ConfigError(
            "optimizer.swa: the servers of an asynchronous training do not measure the statistics "
            "of an average; leave it out, or train without --async"
        )
    momentum = getattr(rule_of(config), "momentum", 0.0)
    if workers > 1 and momentum > MOST_MOMENTUM and not parallel.any_momentum:
        raise ConfigError(
            f"optimizer.momentum: {momentum:g} with {workers} workers is likely to diverge; use "
            f"at most {MOST_MOMENTUM:g}, or set "
            "parallel.any_momentum to true"
        )


class Serving(Leading):
    """A session whose updates use the gradients of workers, as they come; see ``lead``."""

    def __init__(
        self,
        setup: Setup,
        backend: Backend,
        tuning: Tuning | None = None,
        interrupt: Callable[[], None] = lambda: None,
        notice: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._notice = notice
        self._servers = servers = servers_of(setup.config)
        check(setup, servers)
        super().__init__(setup, backend, tuning, interrupt, notice)
        self._shard = Shard(setup, backend, 0, servers)
        self._metrics = np.zeros(3)
        self._current = False
        self.staleness: Counter[int] = Counter()
        self._updates: Counter[int] = Counter()
        self.lost: list[int] = []

    def lead(self, team: Team) -> None:
        """Begin: the first ranks are servers, the others workers, which get batches from now on."""
        self._team, self._post, servers = team, Post(team), self._servers
        self._others = range(1, servers)
        self._working = list(range(servers, team.size))
        self._layouts = {server: layout(self.setup, server, servers) for server in self._others}
        self._version = self._round = 0
        # For each worker: when it was given work, of which round and version; and its batch.
        self._dealt: dict[int, tuple[float, int, int, int]] = {}
        self._again: deque[int] = deque()
        self._news = {rank: np.zeros(2, np.int64) for rank in self._working}
        self._awaited = {r: self._post.expect(r, NEWS, n) for r, n in self._news.items()}
        self._next = 0
        self._looked = time.monotonic()
        kept = statistics_of(self.stretches[0].train)
        self._kept = np.zeros(0 if kept is None else kept.size, np.float32)

    @property
    def ranks(self) -> int:
        return self._team.size

    def run(self, steps: int, wait: bool = True) -> None:
        self._current = False
        for _ in range(steps):
            while not self._update():
                pass

    def remarks(self) -> dict[str, Any]:
        """The updates since the last line by their staleness, and by worker."""
        stale, by = self.staleness, self._updates
        self.staleness, self._updates = Counter(), Counter()
        found: dict[str, Any] = {"staleness": {str(age): stale[age] for age in sorted(stale)}}
        found["updates"] = {f"rank {rank}": by[rank] for rank in sorted(by)}
        if self.lost:
            found["lost"] = list(self.lost)
        return found

    def sums(self) -> NDArray[np.float64]:
        return self._metrics.copy()

    def set_sums(self, values: NDArray[np.float64]) -> None:
        self._metrics = np.array(values, np.float64)

    def put(self, snapshot: Snapshot) -> None:
        super().put(snapshot)
        self._current = True
        self._shard.put(snapshot.arrays, snapshot.step)
        for server in self._others:
            self._order(server, PUT, snapshot.step)
            for name in self.shapes():
                self._post.send(server, STATE, snapshot.arrays[name])
        # What workers compute now began with other parameters.
        self._round += 1
        self._next = snapshot.step
        self._again.clear()

    def set_rate_factor(self, factor: float) -> None:
        super().set_rate_factor(factor)
        self._shard.set_rate_factor(factor)
        for server in self._others:
            self._order(server, FACTOR)
            self._post.send(server, STATE, np.array([factor], np.float64))

    def arrays(self) -> dict[str, NDArray[np.float32]]:
        """Of all servers together, and what no server changes."""
        self._refresh()
        return super().arrays()

    def validate(self, stop_requested: Callable[[], bool] = lambda: False) -> Metrics | None:
        self._refresh()
        return super().validate(stop_requested)

    def close(self) -> None:
        """Let workers finish their batches, and end with all, or without those that are lost."""
        try:
            self._finish()
        except Lost as error:
            self._lose(error.rank)
        if self.lost:
            # What ends well says so; see cli/train.py.
            self._team.status = 1
        self._team.parted = True
        self._shard.close()
        super().close()

    def _update(self) -> bool:
        """Deal out work, and do one update with the next gradient; False if there was none."""
        for rank in [r for r in self._working if r not in self._dealt]:
            self._deal(rank)
        rank = self._brought()
        if rank < 0:
            return False
        _, round_, version, _ = self._dealt.pop(rank)
        try:
            gradient = self._receive(rank)
        except Lost:
            self._lose(rank)
            return False
        if round_ != self._round:
            self._tell_servers(DROP, rank)
            return False
        self._tell_servers(APPLY, rank)
        self._shard.update(gradient, self._kept)
        self._metrics += self._batch
        self.staleness[self._version - version] += 1
        self._updates[rank] += 1
        self._version += 1
        self.step += 1
        return True

    def _deal(self, rank: int) -> None:
        """Give a worker its next batch and the parameters of now."""
        batch = self._again.popleft() if self._again else self._next
        self._next += batch == self._next
        self._dealt[rank] = time.monotonic(), self._round, self._version, batch
        try:
            self._post.send(rank, WORK, np.array([batch, self._round], np.int64))
            self._tell_servers(GIVE, rank)
            self._post.send(rank, PULLED, self._shard.parameters())
        except Lost as error:
            self._lose(error.rank)

    def _brought(self) -> int:
        """The next worker with news; waits for it, but now and then returns -1."""
        while True:
            if not self._working:
                raise RanksError(
                    "all workers of the asynchronous training have ended; resume it from its last "
                    "checkpoint"
                )
            now = time.monotonic()
            for rank in list(self._working) if now - self._looked <= _LOOK else ():
                try:
                    if self._post.ready(self._awaited[rank], rank):
                        # Whose turn it is goes round, so that a fast one does not go first always.
                        self._working.remove(rank)
                        self._working.append(rank)
                        return rank
                except Lost:
                    self._lose(rank)
            if now - self._looked > _LOOK:
                self._looked = now
                self._look_for_lost(now)
                return -1
            time.sleep(_NAP)

    def _look_for_lost(self, now: float) -> None:
        for server in self._others:
            if self._post.is_gone(server):
                raise RanksError(f"{self._team.named(server)}, a server, has ended; resume")
        for rank in list(self._working):
            late = rank in self._dealt and now - self._dealt[rank][0] > self._team.deadline
            if self._post.is_gone(rank) or late:
                self._lose(rank)

    def _receive(self, rank: int) -> NDArray[np.float32]:
        """The worker's gradient for this server; keeps its metrics and statistics."""
        gradient, self._batch = np.empty(self._shard.size, np.float32), np.zeros(3)
        self._post.receive(rank, PUSHED, gradient)
        self._post.receive(rank, METRICS, self._batch)
        if self._kept.size:
            self._post.receive(rank, STATISTICS, self._kept)
        self._awaited[rank] = self._post.expect(rank, NEWS, self._news[rank])
        return gradient

    def _lose(self, rank: int) -> None:
        """Go on without a worker; another computes its batch."""
        if rank not in self._working:
            raise RanksError(f"{self._team.named(rank)}, a server, has ended; resume")
        self._working.remove(rank)
        self.lost.append(rank)
        self._notice(
            f"{self._team.named(rank)} has ended or does not answer; training goes on with "
            f"{len(self._working)} of {len(self._working) + len(self.lost)} workers"
        )
        dealt = self._dealt.pop(rank, None)
        if dealt is not None and dealt[1] == self._round:
            self._again.append(dealt[3])

    def _finish(self) -> None:
        for rank in list(self._working):
            try:
                while rank in self._dealt and not self._post.ready(self._awaited[rank], rank):
                    self._look_for_lost(time.monotonic())
                    time.sleep(_NAP)
                if rank in self._dealt:
                    self._receive(rank)
                    self._tell_servers(DROP, rank)
                if rank in self._working:
                    self._post.send(rank, WORK, np.array([END, 0], np.int64))
                    self._post.forget(self._awaited[rank])
            except Lost:
                self._lose(rank)
        for server in self._others:
            self._order(server, CLOSE)

    def _tell_servers(self, what: int, rank: int) -> None:
        for server in self._others:
            self._order(server, what, rank)

    def _order(self, server: int, what: int, about: int = 0) -> None:
        try:
            self._post.send(server, ORDER, np.array([what, about], np.int64))
        except Lost as error:
            raise RanksError(f"{self._team.named(server)}, a server, has ended; resume") from error

    def _refresh(self) -> None:
        """Bring what all servers have into this session's own executable."""
        if self._current:
            return
        whole = super().arrays()
        for name, value in self._shard.values().items():
            _into(whole[name], self._shard.layout[name], value)
        for server in self._others:
            self._order(server, READ)
            for name, piece in self._layouts[server].items():
                value = np.empty(_size(whole[name], piece), np.float32)
                self._post.receive(server, STATE, value)
                _into(whole[name], piece, value)
        self._put_arrays(self.executable, whole)
        self._current = True


def serve(session: Session, shard: Shard, team: Team) -> None:
    """Do what rank 0 orders a further server to do, until it closes. Raises Lost if that ended."""
    post, told = Post(team), np.zeros(2, np.int64)
    gradient = np.empty(shard.size, np.float32)
    while True:
        post.receive(0, ORDER, told, patient=True)
        what, about = map(int, told)
        if what == GIVE:
            with suppress(Lost):
                post.send(about, PULLED, shard.parameters())
        elif what in (APPLY, DROP):
            try:
                post.receive(about, PUSHED, gradient)
            except Lost:
                # The others have done this update.
                gradient[:] = 0.0
            if what == APPLY:
                shard.update(gradient, np.zeros(0, np.float32))
        elif what == READ:
            for value in shard.values().values():
                post.send(0, STATE, value)
        elif what == PUT:
            arrays = {name: np.empty(shape, np.float32) for name, shape in session.shapes().items()}
            for array in arrays.values():
                post.receive(0, STATE, array)
            shard.put(arrays, about)
        elif what == FACTOR:
            factor = np.zeros(1)
            post.receive(0, STATE, factor)
            shard.set_rate_factor(float(factor[0]))
        else:
            return


def servers_of(config: RunConfig) -> int:
    return 1 if config.parallel is None else config.parallel.servers


def _size(whole: NDArray[np.float32], piece: Piece | None) -> int:
    return whole.size if piece is None else piece.end - piece.begin


def _into(whole: NDArray[np.float32], piece: Piece | None, value: NDArray[np.float32]) -> None:
    if piece is None:
        whole[...] = value.reshape(whole.shape)
    else:
        whole.reshape(-1)[piece.begin : piece.end] = value.reshape(-1)

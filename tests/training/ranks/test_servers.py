"""What rank 0 of an asynchronous training does with work, news and losses, message by message."""

from __future__ import annotations

import os
from collections import defaultdict, deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from dnnstack.backends.reference.backend import ReferenceBackend
from dnnstack.training.ranks import servers as module
from dnnstack.training.ranks.post import Lost
from dnnstack.training.ranks.servers import APPLY, CLOSE, DROP, FACTOR, GIVE, PUT, READ, Serving
from dnnstack.training.ranks.shard import Shard, layout
from dnnstack.training.ranks.worker import (
    END,
    METRICS,
    NEWS,
    ORDER,
    PULLED,
    PUSHED,
    STATE,
    STATISTICS,
    WORK,
)
from dnnstack.training.ranks.world import RanksError
from dnnstack.training.records.formats.state import Snapshot
from dnnstack.training.session import Session

from .test_asynchronous import ASYNC, SLOW, WHOLE, set_up

Floats = np.ndarray


class Broken(Exception):
    """What the world raises for a rank that has ended."""


class World:
    """The mail of rank 0: what it sends is kept, what it may receive is put there by the test."""

    def __init__(self) -> None:
        self.sent: list[tuple[int, int, Floats]] = []
        self.coming: dict[tuple[int, int], deque[Floats]] = defaultdict(deque)
        self.gone: set[int] = set()
        self.cancelled = 0
        self.on_work: Callable[[int, int], None] = lambda rank, batch: None

    def Isend(self, array: Floats, rank: int, tag: int) -> Any:
        if rank in self.gone:
            raise Broken
        self.sent.append((rank, tag, array.copy()))
        if tag == WORK and array[0] != END:
            self.on_work(rank, int(array[0]))
        return SimpleNamespace(Test=lambda: True)

    def Irecv(self, array: Floats, rank: int, tag: int) -> Any:
        def arrived() -> bool:
            if rank in self.gone:
                raise Broken
            if self.coming[rank, tag]:
                array[:] = self.coming[rank, tag].popleft()
                return True
            return False

        def cancelled() -> None:
            self.cancelled += 1

        return SimpleNamespace(Test=arrived, Cancel=cancelled, Wait=lambda: None)

    def orders(self, server: int) -> list[list[int]]:
        """Those to a server since the last call."""
        found = [array.tolist() for rank, tag, array in self.sent if (rank, tag) == (server, ORDER)]
        self.sent = [each for each in self.sent if each[:2] != (server, ORDER)]
        return found

    def batches(self) -> list[tuple[int, int]]:
        """Worker and batch of all work since the last call."""
        found = [(rank, int(array[0])) for rank, tag, array in self.sent if tag == WORK]
        self.sent = [each for each in self.sent if each[1] != WORK]
        return found


class Training:
    """Rank 0 with workers that answer when the test says so, each with a gradient of its own."""

    def __init__(self, ranks: int, servers: int, patch: pytest.MonkeyPatch) -> None:
        patch.setattr(module, "join", lambda team: None)
        # On a busy machine none is given up by the way.
        patch.setattr(module, "_LOOK", 1000.0)
        self.setup = set_up(WHOLE + SLOW + ASYNC, f"parallel.servers={servers}")
        self.world, self.said = World(), list[str]()
        self.team: Any = SimpleNamespace(
            world=self.world,
            error=Broken,
            rank=0,
            size=ranks,
            hosts=["here"] * ranks,
            pids=[os.getpid()] * ranks,
            deadline=1000.0,
            named=lambda rank: f"rank {rank} on here",
            status=None,
            parted=False,
        )
        self.session = Serving(self.setup, ReferenceBackend(1), notice=self.said.append)
        self.session.lead(self.team)
        self.session.begin(None)
        self.twin = Shard(self.setup, ReferenceBackend(1), 0, servers)
        self.twin.put(self.session.snapshot().arrays if servers == 1 else self.fresh, 0)

    @property
    def fresh(self) -> dict[str, Floats]:
        return self.setup.fresh(self.session.first_pictures)

    def gradient(self, rank: int) -> Floats:
        return np.linspace(0, rank / 100, self.twin.size, dtype=np.float32)

    def answer(self, rank: int) -> None:
        """The worker has computed its batch."""
        put = self.world.coming
        put[rank, NEWS].append(np.zeros(2, np.int64))
        put[rank, PUSHED].append(self.gradient(rank))
        put[rank, METRICS].append(np.array([rank, 1.0, 10.0]))
        if kept := self.session._kept.size:
            put[rank, STATISTICS].append(self.statistics(rank, kept))

    @staticmethod
    def statistics(rank: int, size: int) -> Floats:
        return np.linspace(rank, rank + 1, size, dtype=np.float32)

    def same_as_twin(self, *ranks: int) -> None:
        """The server's piece is what updates with the gradients of these workers give."""
        for rank in ranks:
            self.twin.update(self.gradient(rank), self.statistics(rank, self.session._kept.size))
        for name, value in self.twin.values().items():
            np.testing.assert_array_equal(self.session._shard.values()[name], value, name)


@pytest.fixture
def begun(monkeypatch):
    return lambda ranks, servers=1: Training(ranks, servers, monkeypatch)


Begun = Callable[..., Training]


def test_batches_go_round_and_gradients_count_by_age(begun):
    training = begun(4)
    world, session = training.world, training.session
    assert session.ranks == 4
    training.answer(2)
    session.run(1)
    assert world.batches() == [(1, 0), (2, 1), (3, 2)]
    pulled = [(rank, array) for rank, tag, array in world.sent if tag == PULLED]
    assert [rank for rank, _ in pulled] == [1, 2, 3]
    # Rank 2 gets its next batch first; 1 and 3 have parameters from before its update.
    for rank in (1, 3, 2):
        training.answer(rank)
    session.run(3)
    assert world.batches() == [(2, 3), (1, 4), (3, 5)]
    training.same_as_twin(2, 1, 3, 2)
    assert session.step == 4
    assert session.sums().tolist() == [2 + 1 + 3 + 2, 4, 40]
    assert session.remarks() == {
        "staleness": {"0": 1, "1": 1, "2": 2},
        "updates": {"rank 1": 1, "rank 2": 2, "rank 3": 1},
    }
    assert session.remarks() == {"staleness": {}, "updates": {}}
    # All began with the parameters of step 0.
    for _, parameters in pulled:
        np.testing.assert_array_equal(parameters, pulled[0][1])


def test_a_fast_worker_does_not_go_first_always(begun):
    training = begun(3)
    training.world.on_work = lambda rank, batch: training.answer(rank)
    for _ in range(6):
        training.session.run(1)
    assert training.session.remarks()["updates"] == {"rank 1": 3, "rank 2": 3}


def test_gradients_from_before_a_rollback_are_dropped(begun):
    training = begun(4)
    world, session = training.world, training.session
    training.answer(1)
    session.run(1)
    assert world.batches() == [(1, 0), (2, 1), (3, 2)]
    before = session.snapshot()
    session.put(Snapshot(1, before.sums, before.arrays))
    # Ranks 2 and 3 have work from before, for which nothing is done.
    for rank in (2, 3):
        training.answer(rank)
        assert session._update() is False
        assert session.step == 1
    training.same_as_twin(1)
    assert session.sums().tolist() == before.sums.tolist() == [1, 1, 10]
    training.answer(1)
    session.run(1)
    training.same_as_twin(1)
    # The batches behind the snapshot's step come again, each once.
    assert world.batches() == [(1, 1), (2, 2), (3, 3)]


def test_another_worker_computes_the_batch_of_a_lost_one(begun):
    training = begun(4)
    world, session = training.world, training.session
    training.answer(1)
    session.run(1)
    world.batches()
    world.gone.add(2)
    for rank in (3, 1):
        training.answer(rank)
    session.run(2)
    assert training.said == [
        "rank 2 on here has ended or does not answer; training goes on with 2 of 3 workers"
    ]
    training.answer(1)
    training.answer(3)
    session.run(2)
    dealt = world.batches()
    # Batch 1 was rank 2's; every batch is dealt, and no other twice.
    assert sorted(batch for _, batch in dealt) == [1, 3, 4, 5]
    assert {rank for rank, _ in dealt} == {1, 3}
    assert session.step == 5
    assert session.remarks()["lost"] == [2]
    training.answer(3)
    session.close()
    assert training.team.status == 1


def test_a_batch_that_waits_for_a_worker_is_forgotten_at_a_rollback(begun):
    training = begun(4)
    world, session = training.world, training.session
    training.answer(1)
    session.run(1)
    world.gone.add(2)
    training.answer(3)
    session.run(1)
    assert [*session._again] == [1]
    before = session.snapshot()
    session.put(Snapshot(2, before.sums, before.arrays))
    world.batches()
    for _ in range(2):
        training.answer(3)
        session.run(1)
    assert world.batches() == [(3, 2), (3, 3)]


@pytest.mark.parametrize("how", ["ended", "late"])
def test_a_worker_that_says_nothing_is_given_up(begun, how, monkeypatch):
    """Its process has ended, or it has had its work for longer than the deadline."""
    training = begun(3)
    session = training.session
    monkeypatch.setattr(module, "_LOOK", 0.01)
    training.answer(1)
    session.run(1)
    assert session._update() is False
    assert not session.lost
    if how == "ended":
        training.team.pids[2] = 1 << 30
    else:
        given, *rest = session._dealt[2]
        session._dealt[2] = (given - 999.0, *rest)
        assert session._update() is False
        assert not session.lost
        session._dealt[2] = (given - 1001.0, *rest)
    assert session._update() is False
    assert session.lost == [2]
    training.team.pids[1] = 1 << 30
    with pytest.raises(RanksError, match="all workers of the asynchronous training have ended"):
        session.run(1)


def test_a_worker_that_ends_while_it_sends_is_lost(begun):
    training = begun(3)
    world, session = training.world, training.session
    training.answer(1)
    session.run(1)
    training.answer(2)
    real = world.Irecv

    def breaking(array: Floats, rank: int, tag: int) -> Any:
        if tag == PUSHED:
            world.gone.add(rank)
        return real(array, rank, tag)

    world.Irecv = breaking  # type: ignore[method-assign]
    assert session._update() is False
    assert (session.lost, session.step) == ([2], 1)
    training.same_as_twin(1)


def test_work_that_a_worker_cannot_be_given_is_another_s(begun):
    training = begun(3)
    training.world.gone.add(1)
    training.answer(2)
    training.session.run(1)
    training.answer(2)
    training.session.run(1)
    assert training.world.batches() == [(2, 0), (2, 1)]
    assert training.session.lost == [1]


def test_what_other_servers_are_told(begun):
    training = begun(4, 3)
    world, session = training.world, training.session
    arrays = training.fresh
    assert world.orders(1) == world.orders(2) == [[PUT, 0]]
    put = [array for rank, tag, array in world.sent if (rank, tag) == (2, STATE)]
    assert len(put) == len(session.shapes())
    for sent, name in zip(put, session.shapes(), strict=True):
        np.testing.assert_array_equal(sent, arrays[name].reshape(-1))
    training.answer(3)
    session.run(1)
    assert world.orders(1) == world.orders(2) == [[GIVE, 3], [APPLY, 3]]
    session.set_rate_factor(0.5)
    assert world.orders(1) == world.orders(2) == [[FACTOR, 0]]
    assert world.sent[-1][2].tolist() == [0.5]
    # What they have is read once, and again after an update.
    for server in (1, 2):
        for number, (name, piece) in enumerate(layout(training.setup, server, 3).items()):
            size = session.shapes()[name]
            count = int(np.prod(size)) if piece is None else piece.end - piece.begin
            world.coming[server, STATE].append(np.full(count, server + number / 16, np.float32))
    found = session.arrays()
    assert world.orders(1) == world.orders(2) == [[READ, 0]]
    session.arrays()
    assert world.orders(1) == []
    for server in (1, 2):
        for number, (name, piece) in enumerate(layout(training.setup, server, 3).items()):
            own = found[name] if piece is None else piece.of(found[name])
            assert (own == np.float32(server + number / 16)).all()
    own = session._shard.values()
    for name, piece in session._shard.layout.items():
        theirs = found[name] if piece is None else piece.of(found[name])
        np.testing.assert_array_equal(theirs, own[name].reshape(theirs.shape))
    # A gradient from before a rollback is received by them, and not used.
    session._deal(3)
    session.put(Snapshot(0, np.zeros(3), arrays))
    training.answer(3)
    assert session._update() is False
    assert world.orders(1) == [[GIVE, 3], [PUT, 0], [DROP, 3]]
    training.answer(3)
    session._deal(3)
    session.close()
    assert world.orders(2)[-3:] == [[GIVE, 3], [DROP, 3], [CLOSE, 0]]
    assert training.team.parted
    assert training.team.status is None


@pytest.mark.parametrize("how", ["ended", "refuses"])
def test_no_training_goes_on_without_a_server(begun, how, monkeypatch):
    training = begun(3, 2)
    monkeypatch.setattr(module, "_LOOK", 0.01)
    if how == "ended":
        training.team.pids[1] = 1 << 30
    else:
        training.world.gone.add(1)
    with pytest.raises(RanksError, match="rank 1 on here, a server, has ended; resume"):
        training.session.run(1)


def test_the_end_waits_for_work_and_says_so_to_all(begun):
    training = begun(3)
    world, session = training.world, training.session
    training.answer(1)
    session.run(1)
    training.answer(2)
    session.close()
    ends = [(rank, int(array[0])) for rank, tag, array in world.sent if tag == WORK][-2:]
    assert ends == [(1, END), (2, END)] or ends == [(2, END), (1, END)]
    assert not world.coming[2, PUSHED]
    assert world.cancelled == 2
    assert session.step == 1


def test_what_a_further_server_does(monkeypatch):
    """Every order, by its shard; a worker that is lost moves nothing but the step."""
    setup = set_up(WHOLE + SLOW + ASYNC, "parallel.servers=2", "optimizer.momentum=0.5")
    session = Session(setup, ReferenceBackend(1))
    shard, twin = (Shard(setup, ReferenceBackend(1), 1, 2) for _ in range(2))
    fresh = setup.fresh(session.first_pictures)
    gradients = [np.full(shard.size, number / 64, np.float32) for number in range(1, 5)]
    put = [fresh[name] for name in session.shapes()]
    coming: list[tuple[int, int, Any]] = []
    for what, about, messages in (
        (PUT, 3, [(0, STATE, array) for array in put]),
        (GIVE, 2, []),
        (APPLY, 2, [(2, PUSHED, gradients[0])]),
        (DROP, 3, [(3, PUSHED, gradients[1])]),
        (FACTOR, 0, [(0, STATE, np.array([0.25]))]),
        (APPLY, 3, [(3, PUSHED, gradients[2])]),
        (APPLY, 2, [(2, PUSHED, Lost(2))]),
        (GIVE, 3, []),
        (READ, 0, []),
        (CLOSE, 0, []),
    ):
        coming += [(0, ORDER, np.array([what, about])), *messages]
    sent: list[tuple[int, int, Floats]] = []

    def receive(rank: int, tag: int, array: Floats, patient: bool = False) -> None:
        # Rank 0 may validate for longer than the deadline; a worker may not.
        assert patient == (tag == ORDER)
        expected, expected_tag, value = coming.pop(0)
        assert (rank, tag) == (expected, expected_tag)
        if isinstance(value, Lost):
            raise value
        array[:] = value

    def send(rank: int, tag: int, array: Floats) -> None:
        sent.append((rank, tag, array.copy()))
        if (rank, tag) == (3, PULLED):
            raise Lost(3)

    monkeypatch.setattr(module, "Post", lambda team: SimpleNamespace(receive=receive, send=send))
    module.serve(session, shard, SimpleNamespace())  # type: ignore[arg-type]
    assert not coming
    nothing = np.zeros(0, np.float32)
    twin.put(fresh, 3)
    begun = twin.parameters()
    twin.update(gradients[0], nothing)
    twin.set_rate_factor(0.25)
    twin.update(gradients[2], nothing)
    twin.update(np.zeros_like(gradients[0]), nothing)
    assert [each[:2] for each in sent[:2]] == [(2, PULLED), (3, PULLED)]
    np.testing.assert_array_equal(sent[0][2], begun)
    assert [each[:2] for each in sent[2:]] == [(0, STATE)] * len(twin.layout)
    for (_, _, value), wanted in zip(sent[2:], twin.values().values(), strict=True):
        np.testing.assert_array_equal(value, wanted)


def test_a_rank_that_ends_because_another_is_lost_says_which() -> None:
    assert str(Lost(3)) == "rank 3 is lost"

"""Ranks that are threads of one process: what they send each other without a launcher."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np
from dnnstack.backends import collectives
from dnnstack.backends.base import Array
from dnnstack.backends.collectives import added_in_pairs

T = TypeVar("T")


class Threads:
    """A Communicator whose rank is that of the thread which asks, and ``sent`` what it has sent."""

    on_one_machine = True

    def __init__(self, size: int) -> None:
        self.size = size
        self.calls = {name: name for name in ("sum", "gather", "swap", "trade")}
        self._sent = [0] * size
        self._mine = threading.local()
        self._barrier = threading.Barrier(size, timeout=60)
        self._given: list[Any] = [None] * size

    @property
    def sent(self) -> int:
        return self._sent[self.rank]

    @property
    def rank(self) -> int:
        return int(self._mine.rank)

    def run(self, work: Callable[[int], T]) -> list[T]:
        """What the work returns on every rank."""

        def one(rank: int) -> T:
            self._mine.rank = rank
            try:
                return work(rank)
            except BaseException:
                self._barrier.abort()
                raise

        collectives.join(self)
        try:
            with ThreadPoolExecutor(self.size) as pool:
                ends = [pool.submit(one, rank) for rank in range(self.size)]
            errors = [end.exception() for end in ends if end.exception() is not None]
            # The ranks that wait for one that has failed tell nothing of why it did.
            errors.sort(key=lambda error: isinstance(error, threading.BrokenBarrierError))
            if errors:
                raise errors[0]
            return [end.result() for end in ends]
        finally:
            collectives.join(None)

    def _count(self, nbytes: int) -> None:
        """Count what goes to the others, of as many bytes as all ranks have together."""
        self._sent[self.rank] += nbytes * (self.size - 1) // self.size

    def _all(self, given: Array) -> list[Array]:
        """What every rank gives, as it is now."""
        self._given[self.rank] = given.copy()
        self._barrier.wait()
        found = list(self._given)
        self._barrier.wait()
        return found

    def sum(self, values: Array) -> None:
        self._count(2 * values.nbytes)
        values[...] = added_in_pairs(np.stack(self._all(values)))

    def spread(self, array: Array) -> None:
        array[...] = self._all(array)[0]

    def gather(self, rows: Array) -> None:
        self._count(rows.nbytes)
        shares = [np.split(every, self.size)[rank] for rank, every in enumerate(self._all(rows))]
        rows[...] = np.concatenate(shares)

    def swap(self, sent: Array, received: Array) -> None:
        self._count(sent.nbytes)
        found = [np.split(every.reshape(-1), self.size)[self.rank] for every in self._all(sent)]
        received.reshape(-1)[...] = np.concatenate(found)

    def trade(
        self, sent: Array, counts: Sequence[int], received: Array, sizes: Sequence[int]
    ) -> None:
        assert counts[self.rank] == 0
        self._sent[self.rank] += sent.nbytes
        pieces = np.split(sent, np.cumsum(counts))
        assert len(pieces.pop()) == 0
        own = self.rank
        self._given[own] = [piece.copy() for piece in pieces]
        self._barrier.wait()
        found = [every[own] for every in self._given]
        self._barrier.wait()
        assert [len(piece) for piece in found] == list(sizes)
        received[...] = np.concatenate(found)

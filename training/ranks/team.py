"""The ranks of a training, connected by MPI; the only module that imports mpi4py."""

from __future__ import annotations

import atexit
import json
import os
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...backends.base import Array, Backend
from ...backends.collectives import added_in_pairs
from ...common.errors import BackendUnavailableError, DnnstackError
from ...common.printable import printable
from ...common.surroundings import elsewhere
from .watchdog import Watchdog, condition, end, processes_of
from .world import INSTALL, RanksError

# While a rank waits for another that compiles or reads, it leaves it the cores: seconds of sleep.
_SHORT, _LONG = 50e-6, 5e-3
_SPIN = 200
# Seconds after which the launcher has ended this rank if another has ended.
_ENDED = 5


class ToldElsewhere(SystemExit):
    """Rank 0 says what is wrong, here or on another rank; this one ends, and says nothing.

    With status 0: a launcher unites the statuses of all ranks, and that of rank 0 is to be seen.
    """

    def __init__(self) -> None:
        super().__init__(0)


class Team:
    """This process as one of the ranks; see backends.collectives.Communicator.

    ``parted``: the others know that this rank goes its own way. Where it ends otherwise, the
    launcher ends all of them. ``begins`` is to be called when the training begins; ``left`` is
    called when it has left MPI. ``world`` is the communicator of mpi4py,
    ``error`` what its functions raise. A rank that is silent for ``deadline`` seconds is given up.
    """

    def __init__(
        self,
        deadline: float,
        begins: Callable[[], None] = lambda: None,
        left: Callable[[], None] = lambda: None,
    ) -> None:
        self.begins, self._left = begins, left
        self._mpi = mpi = _mpi()
        self.world = mpi.COMM_WORLD
        self.rank: int = self.world.Get_rank()
        self.size: int = self.world.Get_size()
        self.parted = False
        summed = "MPI_Allreduce" if self.size == 2 else "MPI_Alltoallv, MPI_Allgatherv"
        self.calls: Mapping[str, str] = {
            "sum": summed,
            "gather": "MPI_Allgather",
            "swap": "MPI_Alltoall",
            "trade": "MPI_Alltoallv",
        }
        self.error: type[Exception] = mpi.Exception
        self.deadline = deadline
        self._watchdog = Watchdog(deadline, self._no_answer)
        self._silent_for: dict[int, int] = {}
        self._near: list[int] = []
        # With which status the launcher ends, if ranks have been lost.
        self.status: int | None = None
        # Whether nothing that MPI may print at its end is to be seen.
        self.muted = False
        self._node = self.world.Split_type(mpi.COMM_TYPE_SHARED)
        self.node_rank: int = self._node.Get_rank()
        self.node_size: int = self._node.Get_size()
        own = [socket.gethostname(), os.getpid(), processes_of()]
        found = [json.loads(text) for text in self.exchange(json.dumps(own))]
        self.hosts = [str(host) for host, _, _ in found]
        self.pids = [int(pid) for _, pid, _ in found]
        self.on_one_machine = len(set(self.hosts)) == 1
        self._near = [
            pid for host, pid, seen in found if (host, seen) == (own[0], own[2]) and pid != own[1]
        ]
        self._pieces: dict[tuple[int, str], tuple[Any, ...]] = {}
        atexit.register(self._leave)

    def named(self, rank: int) -> str:
        """How messages call a rank."""
        return f"rank {rank} on {printable(self.hosts[rank])}"

    def answering(self, backend: Backend) -> AbstractContextManager[None]:
        """Around steps: on a GPU, which adds up by itself, the host waits for the steps alone."""
        return nullcontext() if backend.waiting_threads else self._watchdog.armed()

    def sum(self, values: Array) -> None:
        """Two numbers have one sum, so two ranks leave the way to the library."""
        if self.size == 1:
            return
        with self._watchdog.armed():
            if self.size == 2:
                self.world.Allreduce(self._mpi.IN_PLACE, values)
                return
            counts, begins, received = self._shares(values)
            mine = slice(begins[self.rank], begins[self.rank] + counts[self.rank])
            n = counts[self.rank]
            sent = [values, (counts, begins)]
            self.world.Alltoallv(sent, [received, ([n] * self.size, _begins([n] * self.size))])
            values[mine] = added_in_pairs(received.reshape(self.size, n))
            self.world.Allgatherv(self._mpi.IN_PLACE, sent)

    def _shares(self, values: Array) -> tuple[list[int], list[int], Array]:
        """How many values each rank adds up, where they begin, and room for those of all ranks."""
        key = (values.size, values.dtype.str)
        if key not in self._pieces:
            even, more = divmod(values.size, self.size)
            counts = [even + (rank < more) for rank in range(self.size)]
            room = np.empty(counts[self.rank] * self.size, values.dtype)
            self._pieces[key] = counts, _begins(counts), room
        counts, begins, room = self._pieces[key]
        return counts, begins, room

    def gather(self, rows: Array) -> None:
        if self.size > 1:
            with self._watchdog.armed():
                self.world.Allgather(self._mpi.IN_PLACE, rows.reshape(-1))

    def swap(self, sent: Array, received: Array) -> None:
        with self._watchdog.armed():
            self.world.Alltoall(sent.reshape(-1), received.reshape(-1))

    def trade(
        self, sent: Array, counts: Sequence[int], received: Array, sizes: Sequence[int]
    ) -> None:
        given, taken = [sent, (counts, _begins(counts))], [received, (sizes, _begins(sizes))]
        with self._watchdog.armed():
            self.world.Alltoallv(given, taken)

    def tell(self, text: str) -> None:
        """Rank 0 says something that the others ``hear``."""
        data = np.frombuffer(text.encode("utf-8", "backslashreplace"), np.uint8).copy()
        with self._watchdog.armed():
            # Of its kind, as MPI has it: one that waits does not fit one that does not.
            self.world.Ibcast(np.array([data.size], np.int64)).Wait()
            self.world.Bcast(data)

    def hear(self) -> str:
        """What rank 0 says next, however long that takes."""
        size = np.zeros(1, np.int64)
        self._wait(self.world.Ibcast(size))
        data = np.empty(int(size[0]), np.uint8)
        with self._watchdog.armed():
            self.world.Bcast(data)
        return data.tobytes().decode()

    def spread(self, array: Array) -> None:
        """Give the contiguous array of rank 0 to the others, who bring room for it."""
        with self._watchdog.armed():
            self.world.Bcast(array.reshape(-1))

    def collect(self, array: NDArray[np.float64]) -> NDArray[np.float64]:
        """The arrays of all ranks, of one shape, on all ranks: (ranks, ...)."""
        found = np.empty((self.size, *array.shape), np.float64)
        with self._watchdog.armed():
            self.world.Allgather(np.ascontiguousarray(array).reshape(-1), found.reshape(-1))
        return found

    def exchange(self, text: str) -> list[str]:
        """The texts of all ranks, on all ranks, however long one takes to come here."""
        data = np.frombuffer(text.encode("utf-8", "backslashreplace"), np.uint8).copy()
        sizes = np.zeros(self.size, np.int64)
        self._wait(self.world.Iallgather(np.array([data.size], np.int64), sizes))
        counts = sizes.tolist()
        found = np.empty(sum(counts), np.uint8)
        with self._watchdog.armed():
            self.world.Allgatherv(data, [found, (counts, _begins(counts))])
        parts = zip(_begins(counts), counts, strict=True)
        return [found[begin:][:count].tobytes().decode() for begin, count in parts]

    @contextmanager
    def together(self) -> Iterator[None]:
        """All ranks do the block; where one fails, none goes on.

        Rank 0 then raises its own error or, if only others failed, a RanksError that names the
        first of them; the others raise ToldElsewhere.
        """
        failed: BaseException | None = None
        try:
            yield
        except BaseException as error:
            failed = error
        told = self.exchange(_text(failed))
        wrong = [rank for rank, text in enumerate(told) if text]
        if not wrong:
            return
        self.parted = True
        if failed is not None and self.rank == 0:
            raise failed
        if self.rank:
            raise ToldElsewhere from failed
        raise RanksError(*_lines(self.named(wrong[0]), told[wrong[0]], len(wrong) - 1))

    def agree(
        self, facts: Mapping[str, str], advice: str, special: Mapping[str, str] | None = None
    ) -> None:
        """Compare facts, by name, with rank 0's; where one differs, none goes on.

        ``special``: advice for the facts of these names, in place of ``advice``.
        """
        every = [json.loads(text) for text in self.exchange(json.dumps(dict(facts)))]
        for rank, found in enumerate(every):
            for name, value in every[0].items():
                if found.get(name) != value:
                    self.parted = True
                    text = (
                        f"{self.named(rank)}: {name} is {printable(str(found.get(name)))}, but "
                        f"{printable(str(value))} on {self.named(0)}; "
                        f"{(special or {}).get(name, advice)}"
                    )
                    raise RanksError(text) if self.rank == 0 else ToldElsewhere()

    def in_turn(self, work: Callable[[], Any]) -> Any:
        """Do the work on one rank of every node first, and then on the others."""
        done: list[Any] = []
        with self.together():
            if self.node_rank == 0:
                done.append(work())
        with self.together():
            if self.node_rank:
                done.append(work())
        return done[0]

    def _wait(self, request: Any) -> None:
        """Wait without keeping a core busy; end with a rank of this machine that stopped or ended.

        Otherwise there is no limit: the others may compile, read or save.
        """
        looks, sleep, last = 0, _SHORT, time.monotonic()
        while not request.Test():
            looks += 1
            if looks > _SPIN:
                time.sleep(sleep)
                sleep = min(2 * sleep, _LONG)
            if time.monotonic() - last > 1.0:
                last = time.monotonic()
                self._look_for_silent()

    def _look_for_silent(self) -> None:
        """Called every second."""
        found = {pid: state for pid in self._near if (state := condition(pid))}
        self._silent_for = {pid: self._silent_for.get(pid, 0) + 1 for pid in found}
        limits = {"stopped": self.deadline, "ended": _ENDED}
        late = [state for pid, state in found.items() if self._silent_for[pid] >= limits[state]]
        if "ended" in late:
            end(
                f"{self.named(self.rank)}: another rank has ended, and so does this training; "
                "resume it from its last checkpoint"
            )
        if late:
            end(self._no_answer())

    def _no_answer(self) -> str:
        return (
            f"{self.named(self.rank)}: another rank has not answered for "
            f"{self.deadline:g} s, so this training ends; resume it from its last "
            "checkpoint"
        )

    def _leave(self) -> None:
        """End MPI with the others, or leave them to the launcher, which ends them."""
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        if self.status is not None or self.muted:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            for descriptor in (1, 2):
                os.dup2(nowhere, descriptor)
        if self.status is not None:
            # Of those that were lost nobody would come to the end.
            self.world.Abort(self.status)
        if not self.parted:
            os._exit(1)
        with self._watchdog.armed():
            self._mpi.Finalize()
        self._left()


def _begins(counts: Sequence[int]) -> list[int]:
    return [sum(counts[:rank]) for rank in range(len(counts))]


def _text(error: BaseException | None) -> str:
    if error is None:
        return ""
    known = isinstance(error, DnnstackError) and str(error)
    return str(error) if known else f"{type(error).__name__}: {error}"


def _lines(named: str, text: str, more: int) -> list[str]:
    first, *rest = text.split("\n")
    others = f" (and {more} more)" if more else ""
    return [f"{named}{others}: {first}", *rest]


def _mpi() -> Any:
    try:
        import mpi4py

        # Its end is ours to say, see Team._leave.
        mpi4py.rc.finalize = False
        # UCX reads ucx.conf in the current folder, which may name modules to load.
        with elsewhere():
            from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        first = str(error).partition("\n")[0]
        raise BackendUnavailableError(
            f"MPI cannot be used ({printable(first)}); install it with {INSTALL}"
        ) from None
    return MPI

"""NCCL through CuPy: sums and copies between the GPUs of the ranks, one GPU each.

The connection is made at the first call, which comes before any capture: all ranks run a section
once before they capture it. Only then is the library needed.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from ....common.errors import BackendUnavailableError, LibraryError
from ...collectives import Communicator, joined
from .runtime import submodule

_INSTALL = "python3 -m pip install 'dnnstack[mpi,nccl13]' (or [mpi,nccl12] for a CUDA 12 driver)"
# Bytes of the mark by which ranks find each other: NCCL_UNIQUE_ID_BYTES of nccl.h.
MARK_BYTES = 128
_connections: dict[int, Nccl] = {}


class Nccl:
    """The ranks of a communicator on their GPUs; addresses are those of this rank's device.

    Everything raises LibraryError where NCCL refuses a call, as where two ranks have one GPU.
    """

    def __init__(self, ranks: Communicator) -> None:
        self._nccl = nccl = _library()
        # Kept, so that no other communicator gets its id.
        self._ranks = ranks
        self._size = ranks.size
        self._rank = ranks.rank
        mark = np.zeros(MARK_BYTES, np.uint8)
        if ranks.rank == 0:
            with self._checked("ncclGetUniqueId"):
                mark[:] = np.frombuffer(nccl.get_unique_id(), np.uint8)
        ranks.spread(mark)
        with self._checked("ncclCommInitRank"):
            self._comm = nccl.NcclCommunicator(ranks.size, mark.tobytes(), ranks.rank)

    def sum(self, values: int, count: int, stream: int) -> None:
        """values: float32. Two ranks have one sum; of more, the library chooses the order."""
        kind = (self._nccl.NCCL_FLOAT32, self._nccl.NCCL_SUM)
        with self._checked("ncclAllReduce"):
            self._comm.allReduce(values, values, count, *kind, stream)

    def gather(self, mine: int, rows: int, nbytes: int, stream: int) -> None:
        """rows: of all ranks one behind the other, ``nbytes`` of each; mine: this rank's."""
        with self._checked("ncclAllGather"):
            self._comm.allGather(mine, rows, nbytes, self._nccl.NCCL_INT8, stream)

    def gather_rows(self, rows: int, nbytes: int, stream: int) -> None:
        """The same where this rank's are already in their place."""
        self.gather(rows + self._rank * nbytes, rows, nbytes, stream)

    def exchange(self, values: int, received: int, each: int, stream: int) -> None:
        """Send every rank its share of ``each`` bytes, and receive this rank's of all."""
        with self._checked("ncclSend, ncclRecv"):
            self._nccl.groupStart()
            for rank in range(self._size):
                at = rank * each
                self._comm.send(values + at, each, self._nccl.NCCL_INT8, rank, stream)
                self._comm.recv(received + at, each, self._nccl.NCCL_INT8, rank, stream)
            self._nccl.groupEnd()

    def trade(
        self, values: int, counts: Sequence[int], received: int, sizes: Sequence[int], stream: int
    ) -> None:
        """Send rank r counts[r] float32 of ``values``, one behind the other, and receive sizes[r].

        Ranks to whom nothing goes, or of whom nothing comes, are left out.
        """
        kind = self._nccl.NCCL_FLOAT32
        with self._checked("ncclSend, ncclRecv"):
            self._nccl.groupStart()
            for rank, (count, size) in enumerate(zip(counts, sizes, strict=True)):
                if count:
                    self._comm.send(values, count, kind, rank, stream)
                if size:
                    self._comm.recv(received, size, kind, rank, stream)
                values, received = values + 4 * count, received + 4 * size
            self._nccl.groupEnd()

    @contextmanager
    def _checked(self, function: str) -> Iterator[None]:
        try:
            yield
        except self._nccl.NcclError as error:
            shown = {"rank": self._rank, "ranks": self._size}
            raise LibraryError("NCCL", function, str(error), shown) from None


def connection(ranks: int) -> Nccl:
    """The connection of this process. Raises BackendUnavailableError without the library."""
    communicator = joined(ranks)
    if id(communicator) not in _connections:
        _connections.clear()
        _connections[id(communicator)] = Nccl(communicator)
    return _connections[id(communicator)]


def _library() -> Any:
    with warnings.catch_warnings():
        # CuPy's own word for a library that is not there.
        warnings.simplefilter("ignore")
        found = submodule("cuda.nccl")
    if not getattr(found, "available", False):
        raise BackendUnavailableError(f"several GPUs need NCCL; install it with {_INSTALL}")
    return found

"""The connection between the ranks of a training; a process has at most one.

The operations of ``graph/ops/collectives.py`` use it. Who starts ranks sets it before compiling.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from ..common.errors import BackendUnavailableError
from .base import Array


class Communicator(Protocol):
    """The ranks of a training, of which this process is one; all call the same in the same order.

    A call returns when this rank has its result. One that never can ends the process.
    """

    @property
    def rank(self) -> int: ...

    @property
    def size(self) -> int: ...

    @property
    def on_one_machine(self) -> bool: ...

    @property
    def calls(self) -> Mapping[str, str]:
        """The library's functions behind ``sum``, ``gather``, ``swap`` and ``trade``."""

    def sum(self, values: Array) -> None:
        """Replace the contiguous values by their sum over the ranks; see AllReduce."""

    def spread(self, array: Array) -> None:
        """Give the contiguous array of rank 0 to the others, which bring room for it."""

    def gather(self, rows: Array) -> None:
        """Fill in, in contiguous rows, the shares of the other ranks; see AllGather."""

    def swap(self, sent: Array, received: Array) -> None:
        """Send every rank its share of contiguous rows, and receive this rank's of all."""

    def trade(
        self, sent: Array, counts: Sequence[int], received: Array, sizes: Sequence[int]
    ) -> None:
        """Send every rank its part of flat values, of which it gets counts[rank], and receive as
        many as ``sizes`` says; 0: none."""


_joined: list[Communicator] = []


def join(communicator: Communicator | None) -> None:
    """Set the connection of this process; None: it works alone again."""
    _joined[:] = [] if communicator is None else [communicator]


def joined(ranks: int) -> Communicator:
    """The connection of this process to as many ranks.

    Raises BackendUnavailableError if there is none: the sections were made for ranks.
    """
    for communicator in _joined:
        if communicator.size == ranks:
            return communicator
    raise BackendUnavailableError(f"this process is not one of {ranks} ranks")


def number(ranks: int) -> int:
    """That of this process among as many ranks; 0 if it is none of them."""
    return next((each.rank for each in _joined if each.size == ranks), 0)


def on_one_machine(ranks: int | None = None) -> bool:
    """Whether as many ranks are, or all that there are; those that have not been started are taken
    to be."""
    return all(each.on_one_machine for each in _joined if ranks in (None, each.size))


def added_in_pairs(rows: Array) -> Array:
    """The sum of the rows in the order of AllReduce, in the memory of the first; rows: changed."""
    stride = 1
    while stride < len(rows):
        for i in range(0, len(rows) - stride, 2 * stride):
            rows[i] += rows[i + stride]
        stride *= 2
    first: Array = rows[0]
    return first

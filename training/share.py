"""What of a training a process computes, if several do it together."""

from __future__ import annotations

from ..common.errors import ConfigError
from ..common.records import dataclass


@dataclass(frozen=True)
class Share:
    """Of every batch the parts of number ``rank`` of ``ranks`` processes; each has as many."""

    rank: int = 0
    ranks: int = 1


ALONE = Share()


def allowed_ranks(parts: int) -> tuple[int, ...]:
    """The numbers of ranks that get the same bits: each computes a branch of the tree of the sum.

    A branch has as many parts as a power of two.
    """
    powers = (1 << exponent for exponent in range(parts.bit_length()))
    return tuple(sorted({1, *(parts // branch for branch in powers if parts % branch == 0)}))


def check_ranks(parts: int, ranks: int) -> None:
    """Raise ConfigError for ranks that cannot share out so many parts."""
    allowed = allowed_ranks(parts)
    if ranks not in allowed:
        listed = ", ".join(map(str, allowed))
        raise ConfigError(
            f"train.accumulate: {parts} parts of a batch cannot be shared out over {ranks} ranks, "
            "because each would not have 1, 2, 4, 8 or another power of two of them; "
            f"use {listed} ranks, or set train.accumulate to {ranks}"
        )

"""What of a training a process computes, if several do it together."""

from __future__ import annotations

from ..common.errors import ConfigError
from ..common.records import dataclass
from ..configs import RunConfig
from .records.formats.checkpoint import Checkpoint

# Ranks that a message lists at most.
_LISTED = 64


@dataclass(frozen=True)
class RankShare:
    """Of every batch the parts of number ``rank`` of ``ranks`` processes; each has as many."""

    rank: int = 0
    ranks: int = 1


ALONE = RankShare()


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


def shared_out(
    config: RunConfig, ranks: int, checkpoint: Checkpoint | None
) -> tuple[RunConfig, int]:
    """The config with parts for the ranks, and how many if they were chosen here, else 0.

    ``train.accumulate: 1`` becomes the number of ranks. A run that began so keeps its number on
    any ranks, and with it its bits. Ranks that share out the rows of pictures compute all parts.
    Raises ConfigError if the ranks cannot share the parts out.
    """
    parts, chosen = config.train.accumulate, 0
    before = 0 if checkpoint is None else checkpoint.provenance.shared_parts
    if parts == 1 and (before or (ranks > 1 and not config.in_bands)):
        parts = chosen = before or ranks
        if config.data.batch_size % parts:
            raise ConfigError(
                f"--ranks {ranks}: a batch of {config.data.batch_size} (data.batch_size) cannot be "
                f"computed in {parts} parts of equal size; {_fitting(config.data.batch_size)}"
            )
        train = config.train.model_copy(update={"accumulate": parts})
        config = config.model_copy(update={"train": train})
    if not config.in_bands:
        check_ranks(parts, ranks)
    return config, chosen


def _fitting(batch: int) -> str:
    """Which numbers of ranks go with a batch."""
    found = [str(ranks) for ranks in range(2, min(batch, _LISTED) + 1) if batch % ranks == 0]
    if not found:
        return "no number of ranks fits it, so change the batch"
    more = f" (of up to {_LISTED})" if batch > _LISTED else ""
    return f"numbers of ranks that fit it{more}: {', '.join(found)}"

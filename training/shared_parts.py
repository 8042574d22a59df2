"""In how many parts ranks compute a batch, if the config does not say it."""

from __future__ import annotations

from ..common.errors import ConfigError
from ..configs import RunConfig
from .records.formats.checkpoint import Checkpoint
from .share import check_ranks

# Ranks that a message lists at most.
_LISTED = 64


def _fitting(batch: int) -> str:
    """Which numbers of ranks go with a batch."""
    found = [str(ranks) for ranks in range(2, min(batch, _LISTED) + 1) if batch % ranks == 0]
    if not found:
        return "no number of ranks fits it, so change the batch"
    more = f" (of up to {_LISTED})" if batch > _LISTED else ""
    return f"numbers of ranks that fit it{more}: {', '.join(found)}"


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

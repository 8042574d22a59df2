"""How several processes share a training."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator

from ...common.options import Count, NotNegative
from .base import Model, tupled


class ParallelConfig(Model):
    """How the processes that --ranks starts train together."""

    mode: Annotated[
        Literal["sync", "async"],
        "sync: all compute a part of every batch and add up their gradients; async: workers "
        "compute batches of their own, and servers update the parameters with each gradient.",
    ] = "sync"
    buckets: Annotated[
        Count | None,
        "With sync, in how many pieces ranks add up their gradients if each computes one part; on "
        "GPUs all but the last are added up beside the rest of backward. Default: 1, but 2 for "
        "GPUs that add up in each other's memory.",
    ] = None
    servers: Annotated[
        Count, "With async, the number of processes that hold the parameters, each a part of them."
    ] = 1
    delays: Annotated[
        Annotated[tuple[NotNegative, ...], BeforeValidator(tupled)] | None,
        "Seconds that the first, second ... worker waits after each batch, to imitate slow ones.",
    ] = None
    any_momentum: Annotated[
        bool, "With async, allow momentum above 0.6, with which training may diverge."
    ] = False

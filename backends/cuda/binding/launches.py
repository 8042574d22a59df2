"""What a section is made of: launches on streams, which may overlap with those in front."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ....common.records import dataclass
from ...base import BoundCall
from ..libraries.conv_graph import ConvGraph
from ..libraries.cublas import Cublas
from ..libraries.cublas_lt import CublasLt
from ..libraries.cudnn_library import Cudnn
from ..libraries.kernels import Kernel
from ..libraries.overlap import available
from ..libraries.runtime import H200, Processors, device

Launch = Callable[[], None]


@dataclass(frozen=True)
class Stream:
    """A CUDA stream, see streams.py, with the library handles that work on it; what compiles our
    kernels and finds the plans of convolutions; whether launches overlap, the streams by number
    and the processors of its device."""

    cuda: Any
    cublas: Cublas
    cudnn: Cudnn
    cublas_lt: CublasLt
    kernel: Callable[..., Kernel] = Kernel
    convolution: Callable[..., ConvGraph] = ConvGraph
    overlaps: Callable[[], bool] = lambda: available()
    numbered: Callable[[int], Any] = lambda index: device().numbered_stream(index)
    processors: Processors = H200


@dataclass(frozen=True)
class Step:
    """One entry of the list: a launch on a stream, and what it is; None if it only waits.

    ``behind``: the launch if it may overlap with the previous one on its stream. ``on_host``: it
    waits for the device and computes on the host, so that no graph can hold it.
    """

    launch: Callable[[], None]
    stream: int
    call: BoundCall | None = None
    behind: Callable[[], None] | None = None
    on_host: bool = False


# What may overlap: launches right behind a launch, or behind what waits for another stream as well.
CHAINS, JOINS = "chains", "joins"


def launches(
    steps: Iterable[Step], joins: bool = False
) -> Iterator[tuple[Step, Callable[[], None]]]:
    """What to call of every step, in order: its launch, overlapping if it can.

    joins: also behind a wait, once the stream has launched anything.
    """
    launched: set[int] = set()
    for step in steps:
        follows = step.behind if step.stream in launched else None
        yield step, follows or step.launch
        if step.call is not None:
            launched.add(step.stream)
        elif not joins:
            launched.discard(step.stream)

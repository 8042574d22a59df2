"""What kernels decide while they are bound, for those of the same section that are bound later."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from typing import Any, NamedTuple

from ....common.records import dataclass
from ....graph.graph import Op, Tensor
from ....graph.ops import Conv2dBackwardData, Conv2dBackwardFilter
from ..libraries.layout import Layout
from .buffer import Buffer
from .ending import NextBatch, TailGradients, WeightProduct


@dataclass(frozen=True)
class Together:
    """Convolutions that may have a max-pool, or the gradient of one or of an activation, in their
    kernels, if all of them have.

    ``spared``: what its own kernel takes, in seconds, the fastest of so many runs.
    """

    names: tuple[str, ...]
    spared: Callable[[int], float]


class Maxima(NamedTuple):
    """Where in its window each maximum was found: uint8 on the device, as ``layout`` lies.

    ``source``: how the pictures lie that the maxima are of.
    """

    places: Any
    layout: Layout
    source: Layout


class Spread(NamedTuple):
    """The gradient of the input of a max-pool or an activation, by that of its output.

    ``op``: what would compute it. ``maxima``: of a max-pool. ``mask``: the maxima, where a ReLU's
    gradient comes in between; what the slope of an activation is taken of. Or the gradient of what
    stride 1 would give, by that of the output of a convolution of stride 2, whose own gradient
    ``op`` is.
    """

    op: Op
    gradient: Buffer
    maxima: Maxima | None
    mask: Tensor | Buffer | None

    @property
    def strided(self) -> bool:
        return isinstance(self.op, Conv2dBackwardData | Conv2dBackwardFilter)


@dataclass
class Decisions:
    """Of one section. ``merged``: the ids of operations whose work is done by another's kernel.

    ``maxima``: by a max-pool's x and y. ``moments``: by a convolution's y, the slices of its sums
    and squares, and their number. ``rotated``: by the filters, these turned by 180 degrees, and the
    event to wait for, None on the same stream. ``row_sums``: by the scores of a dense tail, (2 n,)
    float32 on the device, from its first kernel to its second. ``slices``: the sums of a
    convolution's filter gradient, by that. ``again``: by the input of an activation that is never
    stored, what appends its gradient's launch. ``tail``, ``batch``: what the update may take along,
    and ``weights``.
    """

    merged: set[int] = field(default_factory=set)
    maxima: dict[tuple[Tensor | None, Tensor | None], Maxima] = field(default_factory=dict)
    moments: dict[Tensor, tuple[Any, int]] = field(default_factory=dict)
    rotated: dict[Tensor, tuple[Buffer, Any]] = field(default_factory=dict)
    row_sums: dict[Tensor, Any] = field(default_factory=dict)
    slices: dict[Tensor, Any] = field(default_factory=dict)
    again: dict[Tensor, Callable[[Any], None]] = field(default_factory=dict)
    weights: WeightProduct | None = None
    tail: TailGradients | None = None
    batch: NextBatch | None = None

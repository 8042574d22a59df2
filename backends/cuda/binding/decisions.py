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


class Operations:
    """A set of operations, each known by itself: others may be equal to it."""

    def __init__(self) -> None:
        self._known: dict[int, Op] = {}

    def add(self, op: Op) -> None:
        self._known[id(op)] = op

    def __contains__(self, op: Op) -> bool:
        return id(op) in self._known

    def __bool__(self) -> bool:
        return bool(self._known)


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


class Rotated(NamedTuple):
    """Filters rotated by 180 degrees; ``ready``: the event to wait for, None on the same stream."""

    filters: Buffer
    ready: Any


@dataclass
class Decisions:
    """Of one section. ``merged``: operations whose work is done by another's kernel.

    ``maxima``: by a max-pool's x and y. ``spreads``: by its dx, where windows of 2 by 2 lie side by
    side, and by an activation's, which filters' gradients alone read. ``moments``: by a
    convolution's y, the slices of its sums and squares, and their number. ``rotated``: by the
    filters. ``row_sums``: by the scores of a dense tail, (2 n,) float32 on the device, from its
    first kernel to its second. ``slices``: the sums of a convolution's filter gradient, by that.
    ``again``: by the input of an activation that is never stored, what appends its gradient's
    launch. ``tail``, ``batch``: what the update may take along, and ``weights``.
    """

    merged: Operations = field(default_factory=Operations)
    maxima: dict[tuple[Tensor | None, Tensor | None], Maxima] = field(default_factory=dict)
    spreads: dict[Tensor, Spread] = field(default_factory=dict)
    moments: dict[Tensor, tuple[Any, int]] = field(default_factory=dict)
    rotated: dict[Tensor, Rotated] = field(default_factory=dict)
    row_sums: dict[Tensor, Any] = field(default_factory=dict)
    slices: dict[Tensor, Any] = field(default_factory=dict)
    again: dict[Tensor, Callable[[Any], None]] = field(default_factory=dict)
    weights: WeightProduct | None = None
    tail: TailGradients | None = None
    batch: NextBatch | None = None

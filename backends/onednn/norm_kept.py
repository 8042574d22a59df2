"""What a batch norm leaves for the operations behind it."""

from __future__ import annotations

from ...common.records import dataclass
from ..base import Array
from .memory import Descriptor, Memory
from .primitive import PrimitiveDesc


@dataclass(frozen=True)
class Normalized:
    """What a batch norm leaves for its gradient; g and d as in norm_sums.py.

    mean: for each run its channel's. scale: weight inverse_std, by channel or by run as the
    correction takes it. factors: (2, channels), what makes slope and offset of averages by run of
    g d and of g. mask: what the ReLU let pass.
    """

    layout: Descriptor
    mean: Memory
    scale: Memory
    factors: Memory
    inverse_std: Array
    mask: Memory | None


@dataclass(frozen=True)
class Unscaled:
    """A term of a sum that is still to be normalised: (x - mean) scale + shift.

    x: (N, C, H, W), in blocks of channels. mean, scale, shift: (1, C, 1, 1); shift None: 0. ``sum``
    takes one of ``pieces`` equal parts of the batch.
    """

    x: Memory
    mean: Memory
    scale: Memory
    shift: Memory | None
    pieces: int
    sum: PrimitiveDesc

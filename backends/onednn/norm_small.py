"""What NumPy does for batch norm, on a few numbers per channel: for all that wait at once.

For twenty of them side by side it takes little longer than for one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...common.records import dataclass
from ..base import Array
from .bind import Binder


@dataclass(frozen=True)
class Statistics:
    """mean, variance: (C,), of ``size`` values of each channel. inverse_std: where that goes.

    running: mean and variance, which move by ``momentum``. For a part of a batch there are none,
    and the variance goes to ``left``.
    """

    mean: Array
    variance: Array
    inverse_std: Array
    left: Array | None
    running: Sequence[Array]
    momentum: float
    eps: float
    size: int


@dataclass(frozen=True)
class Scales:
    """What the gradient takes of the statistics: ``inverse_std`` is copied to ``kept``, the mean to
    ``means``, weight inverse_std goes to ``scales``, and -1 / length, also times inverse_std^2, to
    ``shares``; then ``fill`` is called."""

    mean: Array
    inverse_std: Array
    weight: Array | None
    length: int
    kept: Array
    means: Array
    scales: Array
    shares: Array
    fill: Callable[[], None]


@dataclass(frozen=True)
class Gradients:
    """dw: inverse_std times the first sum; db: the second. A sum is ``number`` times what averages
    and terms, (2, C), are together."""

    inverse_std: Array
    averages: Array
    terms: Array
    number: int
    dw: Array | None
    db: Array | None


def statistics(b: Binder, every: Sequence[Statistics]) -> Callable[[], None]:
    """A function that writes inverse_std and left, and moves the running statistics."""
    sizes = [len(one.mean) for one in every]
    variances, eps = [one.variance for one in every], np.repeat([one.eps for one in every], sizes)
    inverse = b.scratch_array(eps.shape, np.float64)
    copies = _copies([one.inverse_std for one in every], inverse)
    copies += [(one.left, one.variance) for one in every if one.left is not None]
    move = _moving(b, [one for one in every if one.running])

    def run() -> None:
        np.concatenate(variances, out=inverse)
        np.add(inverse, eps, out=inverse)
        np.sqrt(inverse, out=inverse)
        np.divide(1.0, inverse, out=inverse)
        _write(copies)
        move()

    return run


def _moving(b: Binder, every: Sequence[Statistics]) -> Callable[[], None]:
    if not every:
        return lambda: None
    found = [one.mean for one in every] + [one.variance for one in every]
    running = [one.running[kind] for kind in (0, 1) for one in every]
    sizes = [len(array) for array in found]
    unbiased = [one.momentum * one.size / (one.size - 1) for one in every]
    new = np.repeat([*(one.momentum for one in every), *unbiased], sizes)
    old = np.repeat([1.0 - one.momentum for one in (*every, *every)], sizes).astype(np.float32)
    moved, before = b.scratch_array(new.shape, np.float64), b.scratch_array(old.shape)
    copies = _copies(running, moved)

    def move() -> None:
        np.concatenate(found, out=moved)
        np.multiply(moved, new, out=moved)
        np.concatenate(running, out=before)
        np.multiply(before, old, out=before)
        np.add(before, moved, out=moved)
        _write(copies)

    return move


def scales(b: Binder, every: Sequence[Scales]) -> Callable[[], None]:
    """A function that writes what the gradients take of the statistics."""
    sizes = [len(one.mean) for one in every]
    given = [one.inverse_std for one in every]
    weights = [np.ones_like(one.mean) if one.weight is None else one.weight for one in every]
    shares = np.repeat([-1.0 / one.length for one in every], sizes).astype(np.float32)
    inverse, scaled, squares = (b.scratch_array(shares.shape) for _ in range(3))
    copies = _copies([one.kept for one in every], inverse)
    copies += _copies([one.scales for one in every], scaled)
    copies += _copies([one.shares[0] for one in every], squares)
    copies += _copies([one.shares[1] for one in every], shares)
    copies += [(one.means, one.mean) for one in every]
    fills = [one.fill for one in every]

    def run() -> None:
        np.concatenate(given, out=inverse)
        np.concatenate(weights, out=scaled)
        np.multiply(inverse, scaled, out=scaled)
        np.multiply(inverse, inverse, out=squares)
        np.multiply(squares, shares, out=squares)
        _write(copies)
        for fill in fills:
            fill()

    return run


def gradients(b: Binder, every: Sequence[Gradients]) -> Callable[[], None]:
    """A function that writes dw and db, as far as there are any."""
    sizes = [len(one.inverse_std) for one in every]
    given = [one.inverse_std for one in every]
    averages = [one.averages[kind] for kind in (0, 1) for one in every]
    terms = [one.terms[kind] for kind in (0, 1) for one in every]
    numbers = np.repeat([one.number for one in every], sizes).astype(np.float32)
    inverse = b.scratch_array(numbers.shape)
    total, rest = (b.scratch_array((2, len(numbers))) for _ in (0, 1))
    copies = _copies([one.dw for one in every], total[0], sizes)
    copies += _copies([one.db for one in every], total[1], sizes)
    flat, flat_rest, products = total.reshape(-1), rest.reshape(-1), total[0]

    def run() -> None:
        np.concatenate(averages, out=flat)
        np.concatenate(terms, out=flat_rest)
        np.add(total, rest, out=total)
        np.concatenate(given, out=inverse)
        np.multiply(inverse, products, out=products)
        np.multiply(total, numbers, out=total)
        _write(copies)

    return run


def _copies(
    to: Sequence[Array | None], numbers: Array, sizes: Sequence[int] = ()
) -> list[tuple[Array, Array]]:
    """Where the parts of ``numbers``, of these sizes or those of ``to``, go; None: nowhere."""
    ends = np.cumsum(sizes or [len(array) for array in to if array is not None])
    parts = np.split(numbers, ends[:-1])
    return [(array, part) for array, part in zip(to, parts, strict=True) if array is not None]


def _write(copies: Sequence[tuple[Array, Any]]) -> None:
    for to, source in copies:
        to[:] = source

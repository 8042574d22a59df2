"""How likely the outline of a picture is among real digits: mixtures of Gaussians, one per class.

What is compared are histograms of the directions of edges (Dalal and Triggs 2005), in which a
digit and a letter differ more than in their pixels. For each class a Gaussian with 16 principal
directions (probabilistic principal components, Tipping and Bishop 1999) was fitted to 50,000
training digits of MNIST: digit_shapes.safetensors. Of the other 10,000, one in a hundred is less
likely than its ``least``. It does not depend on the network that answers.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .centring import FIELD

TABLE = Path(__file__).with_suffix(".safetensors")
# Directions that are told apart, and pixels on a side of the cells whose edges are counted.
_DIRECTIONS, _CELL = 8, 4


def is_unlikely(digit: NDArray[np.uint8]) -> bool:
    """Whether only one in a hundred real digits is as unlikely. digit: (28, 28) uint8."""
    table = _table()
    return bool(log_likelihood(edges(digit[None]), table)[0] < float(table["least"][0]))


def edges(digits: NDArray[np.uint8]) -> NDArray[np.float64]:
    """(N, 28, 28) uint8 -> (N, 392): roots of how much edge of each direction is around each cell.

    Each row has the length 1, so that the darkness of the ink does not matter.
    """
    ink = digits.astype(np.float64) / 255.0
    down, across = np.zeros_like(ink), np.zeros_like(ink)
    down[:, 1:-1] = ink[:, 2:] - ink[:, :-2]
    across[:, :, 1:-1] = ink[:, :, 2:] - ink[:, :, :-2]
    strength = np.hypot(across, down)
    turn = np.arctan2(down, across) / (2.0 * np.pi) % 1.0 * _DIRECTIONS
    side = FIELD // _CELL
    found = np.zeros((len(ink), _DIRECTIONS, side + 2, side + 2))
    for direction in range(_DIRECTIONS):
        # An edge between two directions counts for both, more for the nearer one.
        away = np.abs((turn - direction + _DIRECTIONS / 2.0) % _DIRECTIONS - _DIRECTIONS / 2.0)
        near = strength * np.clip(1.0 - away, 0.0, None)
        cells = near.reshape(-1, side, _CELL, side, _CELL).sum((2, 4))
        found[:, direction, 1:-1, 1:-1] = cells
    # Cells around count too, so that a stroke may lie a little further.
    for axis in (2, 3):
        length = found.shape[axis] - 2
        low, middle, high = (
            np.take(found, range(start, start + length), axis) for start in range(3)
        )
        found = (low + 2.0 * middle + high) / 4.0
    rows = np.sqrt(found.reshape(len(ink), -1))
    rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-6)
    return rows


def log_likelihood(rows: NDArray[np.float64], table: dict[str, NDArray[Any]]) -> NDArray[Any]:
    """(N, 392) -> (N,): twice that of the likeliest class, without the constant."""
    found = []
    every = zip(*(table[name] for name in ("means", "axes", "variances", "rests")), strict=True)
    for mean, axes, variance, rest in every:
        away = rows - mean.astype(np.float64)
        along = away @ axes.astype(np.float64).T
        beyond = (away**2).sum(1) - (along**2).sum(1)
        spread = float(np.log(variance).sum() + (rows.shape[1] - len(axes)) * np.log(rest))
        found.append(-(beyond / rest + (along**2 / variance).sum(1) + spread))
    best: NDArray[Any] = np.max(found, axis=0)
    return best


@cache
def _table() -> dict[str, NDArray[Any]]:
    from safetensors.numpy import load_file

    return load_file(TABLE)

"""Sums over the patches of pictures that lie on the device, for filters that whiten them."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..libraries.kernels import THREADS, UNASKED, Kernel, i32
from ..libraries.layout import ceil_div
from ..libraries.runtime import cuda_api

FILE = "whiten.cu"
# Elements of a patch for which the device does it: the products of so many are shared out to blocks
# that read all pictures each.
LARGEST = 256
# Enough blocks to fill a GPU.
BLOCKS = 1056


def patch_sums(
    images: Any, rows: Any, window: tuple[int, int], stream: Any
) -> tuple[Any, Any] | None:
    """See base.Executable; images: (N, C, H, W) uint8 on the device."""
    channels, height, width = images.shape[1:]
    patch = channels * window[0] * window[1]
    band = _band(channels, height, width, window)
    if patch > LARGEST or band < 1:
        return None
    down, row, lines = height - window[0] + 1, _words(width, window), channels * window[1]
    chosen = cuda_api().asarray(np.ascontiguousarray(rows), "int32")
    table = cuda_api().zeros(patch * (patch + 1), "int64")
    parts = ceil_div(patch * (patch + 3) // 2, THREADS)
    grid = (max(1, min(len(rows) * ceil_div(down, band), BLOCKS // parts)), parts)
    numbers = (len(rows), channels, height, width, *window, band)
    arguments = (images, chosen, *map(i32, numbers), table)
    shared = 4 * lines * ((band + window[0] - 1) * row | 1)
    Kernel(FILE, "patch_sums").launch(stream, grid, (THREADS,), arguments, shared)()
    found = np.asarray(table.get()).reshape(patch, patch + 1)
    upper = np.triu(found[:, :patch])
    return upper + np.triu(upper, 1).T, found[:, patch].copy()


def _words(width: int, window: tuple[int, int]) -> int:
    """Words of a row of patches, four in each."""
    return ceil_div(width - window[1] + 1, 4)


def _band(channels: int, height: int, width: int, window: tuple[int, int]) -> int:
    """How many rows of patches a block takes at once, as its memory allows; below 1: not one.

    They are fewer than 2^17 patches, of whose products, 2^14 at most, a sum fits 32 bits.
    """
    row, lines = _words(width, window), channels * window[1]
    held = (UNASKED // (4 * lines) - 1) // row
    return min(height - window[0] + 1, held - window[0] + 1)

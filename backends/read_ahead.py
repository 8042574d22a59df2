"""Data sets that are mapped from a file and larger than memory."""

from __future__ import annotations

import ctypes
import mmap

import numpy as np

from ..common.machine import main_memory
from .base import Array

# A smaller file stays in memory once it was read; of one row, the system reads so much at a time.
_LEAST, _PIECE = 1 << 26, 1 << 17
# What is read ahead is this share of memory at most.
_SHARE, _MOST = 16, 1 << 26
_madvise = ctypes.CDLL(None).madvise
_madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


class ReadAhead:
    """Has the system read the rows of the next batches while the steps before them run.

    A row that is not in memory yet halts a step for as long as the disk takes, and the system then
    reads many rows beside it that no step wants soon. Nothing is done for arrays in memory, nor for
    files of which half of memory holds all.
    """

    def __init__(self) -> None:
        self._images: Array | None = None
        self._order: Array | None = None
        self._rows = self._end = 0

    def __call__(self, images: Array, order: Array, place: int, size: int) -> None:
        """order[place : place + size] are the rows of ``images`` that a step takes now."""
        if images is not self._images:
            self._images, self._rows, self._order = images, _rows_ahead(images), None
        if not self._rows:
            return
        end = min(place + max(self._rows, size), len(order))
        known = order is self._order and place <= self._end <= end
        begin = self._end if known else place
        for row in order[begin:end].tolist():
            if row >= 0:
                _will_need(images, row)
        self._order, self._end = order, end


def _rows_ahead(images: Array) -> int:
    """How many rows are read ahead; 0 where memory holds them all."""
    mapped = isinstance(images, np.memmap) and images.flags.c_contiguous
    if not mapped or images.nbytes <= max(_LEAST, main_memory() // 2):
        return 0
    _advise(images.ctypes.data, images.nbytes, mmap.MADV_RANDOM)
    return max(1, min(_MOST, main_memory() // _SHARE) // images[:1].nbytes)


def _will_need(images: Array, row: int) -> None:
    each = images.strides[0]
    for begin in range(0, each, _PIECE):
        size = min(_PIECE, each - begin)
        _advise(images.ctypes.data + row * each + begin, size, mmap.MADV_WILLNEED)


def _advise(address: int, size: int, advice: int) -> None:
    """Of the pages in which these bytes lie. Without effect where the system does not know it."""
    within = address % mmap.PAGESIZE
    _madvise(address - within, size + within, advice)

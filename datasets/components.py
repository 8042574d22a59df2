"""Connected regions of a mask, in NumPy: runs of each row, joined where rows touch."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def label_regions(mask: NDArray[np.bool_]) -> tuple[NDArray[np.int32], int]:
    """Number the regions of pixels that touch at a side or a corner.

    mask: (H, W) -> labels (H, W), 0 outside and 1 .. n inside, and n. Regions are numbered by their
    first pixel, row by row.
    """
    height, width = mask.shape
    # Two empty columns prevent runs of neighbouring rows from touching across the edge.
    stride = width + 2
    padded = np.zeros((height, stride), np.int8)
    padded[:, 1:-1] = mask
    flat = padded.reshape(-1)
    changes = np.flatnonzero(np.diff(flat))
    starts, stops = changes[0::2] + 1, changes[1::2] + 1
    parents = _joined(starts, stops, stride)
    _, numbers = np.unique(parents, return_inverse=True)
    labels = np.zeros(height * stride, np.int32)
    labels[flat.astype(bool)] = np.repeat(numbers.reshape(-1) + 1, stops - starts)
    count = int(numbers.max()) + 1 if len(numbers) else 0
    return labels.reshape(height, stride)[:, 1:-1], count


def bounds(mask: NDArray[np.bool_]) -> tuple[slice, slice]:
    """The rows and the columns of the rectangle around a mask."""
    rows, columns = (np.flatnonzero(mask.any(axis)) for axis in (1, 0))
    return slice(rows[0], rows[-1] + 1), slice(columns[0], columns[-1] + 1)


def _joined(starts: NDArray[np.intp], stops: NDArray[np.intp], stride: int) -> NDArray[np.intp]:
    """For each run, the first run of its region (union by the smaller number)."""
    parents = list(range(len(starts)))

    def root(run: int) -> int:
        while parents[run] != run:
            parents[run] = parents[parents[run]]
            run = parents[run]
        return run

    # Runs of the row below that reach from one pixel left of a run to one right of it.
    first = np.searchsorted(stops, starts + stride, "left")
    last = np.searchsorted(starts, stops + stride, "right")
    for run in np.flatnonzero(last > first).tolist():
        for below in range(int(first[run]), int(last[run])):
            one, other = root(run), root(below)
            parents[max(one, other)] = min(one, other)
    return np.array([root(run) for run in range(len(parents))], np.intp)

"""Samples that are there twice: equal bytes, or pictures that hardly differ."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..common.files import sha256_bytes
from .pictures import as_image

# Bits that hashes may differ in, neighbours that are looked at, and the least correlation.
_BITS, _NEIGHBOURS, _ALIKE = 6, 4, 0.99


def difference_hash(picture: NDArray[np.uint8]) -> int:
    """(C, H, W) -> 64 bits: which of 8 x 9 cells is darker than its right neighbour, by rows."""
    cells = np.asarray(as_image(picture[:3]).convert("L").resize((9, 8), resample=4))
    return int.from_bytes(np.packbits(cells[:, 1:] > cells[:, :-1]).tobytes(), "big")


def pairs(images: NDArray[Any], index: NDArray[np.int32]) -> list[tuple[int, int, float]]:
    """Places in ``index`` of samples that are there twice, the first one first, and a correlation.

    It is 1 of equal bytes; of pictures it may be less. Candidates are next to each other in the
    order of their hashes, whichever 16 bits of these come first.
    """
    first, near = dict[str, int](), set[tuple[int, int]]()
    rows = enumerate(index.tolist())
    twins = [(first.setdefault(sha256_bytes(images[at].tobytes()), row), row) for row, at in rows]
    found = [(one, other, 1.0) for one, other in twins if one != other]
    own = np.array([*first.values()] if images.dtype == np.uint8 else [], np.int64)
    code = np.array([difference_hash(images[at]) for at in index[own].tolist()], np.uint64)
    for turn in (0, 16, 32, 48):
        order = np.argsort(code << np.uint64(turn) | code >> np.uint64(-turn % 64), kind="stable")
        for step in range(1, _NEIGHBOURS + 1):
            both = order[:-step], order[step:]
            close = np.bitwise_count(code[both[0]] ^ code[both[1]]) <= _BITS
            near.update(zip(*np.sort(own[np.stack(both)][:, close], 0).tolist(), strict=True))
    for one, other in sorted(near):
        alike = np.corrcoef(images[index[[one, other]]].reshape(2, -1))[0, 1]
        found += [(one, other, float(alike))] if alike >= _ALIKE else []
    return found

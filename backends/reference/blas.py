"""The number of threads that NumPy's own OpenBLAS uses for a matrix product."""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path

import numpy as np

# The wheels' library is built with a prefix and, if its integers have 64 bits, a suffix.
_SYMBOLS = tuple(
    f"{prefix}openblas_set_num_threads{suffix}"
    for prefix in ("scipy_", "")
    for suffix in ("64_", "")
)


@cache
def _library() -> ctypes.CDLL | None:
    """The OpenBLAS inside the installed NumPy; loading it again gives the one already in use."""
    package = Path(np.__file__).parent
    for folder in (package.parent / "numpy.libs", package / ".libs", package / ".dylibs"):
        for path in sorted(folder.glob("*openblas*")):
            try:
                return ctypes.CDLL(str(path))
            except OSError:
                continue
    return None


def set_threads(count: int) -> bool:
    """Let NumPy's matrix products use this many threads, in this whole process.

    Returns False if NumPy came with another BLAS, whose environment variable decides.
    """
    library = _library()
    for symbol in _SYMBOLS:
        if library is not None and hasattr(library, symbol):
            getattr(library, symbol)(ctypes.c_int(count))
            return True
    return False

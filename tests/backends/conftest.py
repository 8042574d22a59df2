from __future__ import annotations

import pytest
from dnnstack.backends.base import Array

from ..support.cache_fixture import cache

__all__ = ["cache"]


@pytest.fixture
def poison(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every byte of oneDNN's memories starts as NaN, so that an unwritten element shows.

    The arenas are spared: their padding must be zero. NumPy's outputs are new arrays each time.
    """
    # The store takes the function as it is when it is imported.
    from dnnstack.backends.onednn import memory, store  # noqa: F401

    zeroed = memory.aligned

    def filled(nbytes: int) -> Array:
        buffer = zeroed(nbytes)
        buffer[...] = 0xFF
        return buffer

    monkeypatch.setattr(memory, "aligned", filled)

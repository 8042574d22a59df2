from __future__ import annotations

from ..support.training_fixtures import (
    _own_cache,
    arrays,
    backend,
    cuda,
    onednn,
    provenance,
    reference,
    state,
    tiny,
)

__all__ = [
    "_own_cache",
    "arrays",
    "backend",
    "cuda",
    "onednn",
    "provenance",
    "reference",
    "state",
    "tiny",
]

"""Backends as tests open them; a test of one that cannot be opened here is skipped."""

from __future__ import annotations

import pytest
from dnnstack.backends.base import Backend
from dnnstack.backends.reference.backend import ReferenceBackend
from dnnstack.common.errors import BackendUnavailableError

NAMES = ["numpy", "cpu", pytest.param("cuda", marks=pytest.mark.cuda)]


def opened(name: str, threads: int = 1) -> Backend:
    """One thread: for small operations two would mostly wait for each other."""
    try:
        if name == "numpy":
            return ReferenceBackend(threads)
        if name == "cpu":
            from dnnstack.backends.onednn.backend import OneDnnBackend

            return OneDnnBackend(threads)
        from dnnstack.backends.cuda.backend import CudaBackend

        return CudaBackend()
    except BackendUnavailableError as error:
        pytest.skip(f"backend {name}: {error}")

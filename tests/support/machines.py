"""What a test's machine seems to lack: a GPU, a type of numbers, space on its disk."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import SimpleNamespace

import pytest
from dnnstack.training.records import disk_space

from .mistakes import Prepare


def cuda_as(found: Callable[[], object]) -> Prepare:
    """What the CUDA backend finds in the place of CUDA, whatever this machine has."""

    def prepare(patch: pytest.MonkeyPatch) -> None:
        import dnnstack.backends.cuda.backend  # noqa: F401
        from dnnstack.backends.cuda.libraries import runtime

        opened = runtime.device
        for name, module in list(sys.modules.items()):
            if name.startswith("dnnstack.backends.cuda."):
                if callable(getattr(module, "cuda_api", None)):
                    patch.setattr(module, "cuda_api", found)
                # An earlier test may have opened this machine's GPU, which is kept.
                if getattr(module, "device", None) is opened:
                    patch.setattr(module, "device", opened.__wrapped__)

    return prepare


def without_cupy(patch: pytest.MonkeyPatch) -> None:
    from dnnstack.backends.cuda.libraries import runtime

    for name in ("cupy_backends", "cupy_backends.cuda.api.runtime"):
        patch.setitem(sys.modules, name, None)
    # Imported afresh, even where an earlier test had it.
    cuda_as(runtime.cuda_api.__wrapped__)(patch)


def without_bfloat16(patch: pytest.MonkeyPatch) -> None:
    from dnnstack.backends.onednn.library import library

    avx2 = 7
    patch.setattr(library(), "_isa", lambda: avx2)


def no_devices() -> object:
    return SimpleNamespace(
        runtime=SimpleNamespace(getDeviceCount=lambda: 0, CUDARuntimeError=ValueError)
    )


def disk_full(patch: pytest.MonkeyPatch) -> None:
    full = SimpleNamespace(f_bavail=10, f_frsize=4096)
    patch.setattr(disk_space.os, "statvfs", lambda place: full)

"""Our own kernels: kernels.cu compiled once a process by NVRTC, launched on our stream."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import resources
from typing import Any

import numpy as np

from .runtime import cupy, device

THREADS = 256
# Enough blocks to fill the largest GPU; kernels loop over what is beyond.
MAX_BLOCKS = 4096


@cache
def _module() -> Any:
    source = resources.files(__package__).joinpath("kernels.cu").read_text("utf-8")
    return cupy().RawModule(code=source, options=("-std=c++17",))


def launcher(
    name: str, blocks: int, threads: int, arguments: tuple[Any, ...], shared: int = 0
) -> Callable[[], None]:
    """A function that launches a kernel with these arguments.

    Arguments are device arrays, or NumPy scalars of the kernel's types; shared: bytes.
    """
    function = _module().get_function(name)
    stream = device().stream

    def launch() -> None:
        with stream:
            function((blocks,), (threads,), arguments, shared_mem=shared)

    return launch


def linear(name: str, size: int, arguments: tuple[Any, ...]) -> Callable[[], None]:
    """A launch with about one thread for each of ``size`` elements."""
    blocks = min(MAX_BLOCKS, max(1, -(-size // THREADS)))
    return launcher(name, blocks, THREADS, arguments)


def one_block(name: str, arguments: tuple[Any, ...], item: int = 8) -> Callable[[], None]:
    """A launch of a single block, for sums in a fixed order; item: bytes a thread shares."""
    return launcher(name, 1, THREADS, arguments, THREADS * item)


def i32(value: int) -> np.int32:
    return np.int32(value)


def i64(value: int) -> np.int64:
    return np.int64(value)


def f32(value: float) -> np.float32:
    return np.float32(value)

"""Files of kernels with common.cuh in front, run on the processor."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from dnnstack.backends.cuda.libraries.layout import BFLOAT, FLOAT, Layout

from . import emulated_build
from .emulated_build import SOURCES


def library(
    name: str, folder: Path, defines: dict[str, int], outside: Sequence[str] = ()
) -> ctypes.CDLL:
    """That of emulated/``name``.cpp; an address that is no multiple of what is read or written
    there ends the process. ``outside``: sources whose shared memory of any size is the .cpp's."""
    for file in outside:
        source = (SOURCES / "sources" / file).read_text("utf-8")
        (folder / file).write_text(source.replace("extern __shared__", "extern"), "utf-8")
    return emulated_build.library(name, folder, defines, emulated_build.EXACT)


def stored(values: np.ndarray, bf16: bool) -> np.ndarray:
    """As a kernel reads them."""
    return _flat(values.size, bf16).pack(np.asarray(values, np.float32).ravel())


def loaded(array: np.ndarray, bf16: bool, shape: tuple[int, ...]) -> np.ndarray:
    """What a kernel has written."""
    return _flat(array.size, bf16).unpack(array).reshape(shape)


def _flat(size: int, bf16: bool) -> Layout:
    return Layout((size,), (size,), dtype=BFLOAT if bf16 else FLOAT)


def pointer(array: np.ndarray | None) -> ctypes.c_void_p | None:
    return None if array is None else ctypes.c_void_p(array.ctypes.data)

"""Launches that may begin before the kernel in front has ended: programmatic dependent launch.

Such a kernel takes its place on the GPU while the one in front still runs, and waits there (`enter`
in common.cuh) until that has ended and its writes can be seen: the order of work is the same, the
microsecond between two kernels shrinks. Needs compute capability 9.0. In a capture the launch
becomes a programmatic edge of the graph (CUDA programming guide, "Programmatic Dependent Launch").
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from ....common.errors import LibraryError
from .arguments import Arguments
from .runtime import device

# CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION of cuda.h.
ATTRIBUTE = 6
_CAPABILITY = (9, 0)


class _Value(ctypes.Union):
    """CUlaunchAttributeValue: 64 bytes, of which one integer is used."""

    _fields_ = (("pad", ctypes.c_char * 64), ("allowed", ctypes.c_int))


class _Attribute(ctypes.Structure):
    """CUlaunchAttribute: the value begins at byte 8."""

    _fields_ = (("id", ctypes.c_int), ("pad", ctypes.c_char * 4), ("value", _Value))


class _Config(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(_Attribute)),
        ("count", ctypes.c_uint),
    )


@cache
def _driver() -> Any:
    """cuLaunchKernelEx of the driver; None if there is none."""
    try:
        function = ctypes.CDLL("libcuda.so.1").cuLaunchKernelEx
    except (OSError, AttributeError):
        return None
    function.restype = ctypes.c_int
    function.argtypes = (ctypes.POINTER(_Config), *[ctypes.c_void_p] * 3)
    return function


def available() -> bool:
    """Whether this GPU and its driver can overlap launches."""
    return device().capability >= _CAPABILITY and _driver() is not None


def overlapping(
    function: int,
    stream: Any,
    grid: Sequence[int],
    block: Sequence[int],
    arguments: Sequence[Any],
    shared: int,
) -> Callable[[], None]:
    """A function that launches so behind the kernel that the stream was given before.

    function: a CUfunction; arguments: device arrays, device pointers (0 for none) or NumPy scalars;
    shared: bytes. Raises LibraryError if the driver refuses, when called.
    """
    held = Arguments(arguments)
    attribute = _Attribute(id=ATTRIBUTE, value=_Value(allowed=1))
    config = _Config(
        grid=_three(grid),
        block=_three(block),
        shared=shared,
        stream=stream.ptr,
        attributes=ctypes.pointer(attribute),
        count=1,
    )
    launch = _driver()

    def run() -> None:
        status = launch(ctypes.byref(config), function, held.pointers, None)
        if status:
            shown = {"grid": tuple(grid), "block": tuple(block), "arguments": len(held)}
            raise LibraryError("CUDA", "cuLaunchKernelEx", f"CUresult {status}", shown)

    return run


def _three(sizes: Sequence[int]) -> Any:
    return (ctypes.c_uint * 3)(*sizes, *[1] * (3 - len(sizes)))

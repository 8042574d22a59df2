"""CUDA's driver by ctypes: modules, kernels and their launches.

CuPy's binding of it would import all of CuPy.
"""

from __future__ import annotations

import ctypes as C
from ctypes import byref, c_char_p, c_int, c_uint, c_void_p
from functools import cache
from typing import Any

LIBRARY = "libcuda.so.1"
# CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES of cuda.h.
MOST_SHARED = 8
# CUDA_ERROR_OUT_OF_MEMORY of cuda.h, and cudaErrorMemoryAllocation of driver_types.h.
OUT_OF_MEMORY = 2
# What an error names where memory ran out.
ALLOCATION = "cudaMalloc"
# What the functions take, behind which all answer with a CUresult; a pointer given by its address.
_SIGNATURES = {
    "cuModuleLoadData": (c_void_p, c_char_p),
    "cuModuleUnload": (c_void_p,),
    "cuModuleGetFunction": (c_void_p, c_void_p, c_char_p),
    "cuFuncSetAttribute": (c_void_p, c_int, c_int),
    "cuLaunchKernel": (c_void_p, *[c_uint] * 7, c_void_p, c_void_p, c_void_p),
    "cuGetErrorName": (c_int, c_void_p),
    "cuGetErrorString": (c_int, c_void_p),
}


class DriverError(RuntimeError):
    """A function of the driver failed; the message is the driver's, ``status`` its CUresult."""

    def __init__(self, message: str, status: int = 0, function: str = "") -> None:
        super().__init__(message)
        self.status, self.function = status, function


@cache
def _driver() -> Any:
    """Raises OSError where there is none."""
    dll = C.CDLL(LIBRARY)
    for name, types in _SIGNATURES.items():
        getattr(dll, name).argtypes = types
    return dll


def call(name: str, *arguments: Any) -> None:
    """Call a function. Raises DriverError."""
    status = getattr(_driver(), name)(*arguments)
    if status:
        text = f"{_word('Name', status)}: {_word('String', status)}"
        raise DriverError(text, status, name)


def ran_out(error: Exception) -> bool:
    """Whether an error of the driver or of CUDA's runtime says that memory ran out."""
    return getattr(error, "status", None) == OUT_OF_MEMORY


def _word(kind: str, status: int) -> str:
    """What a status is called, or means."""
    text = c_char_p()
    getattr(_driver(), f"cuGetError{kind}")(status, byref(text))
    return (text.value or f"CUresult {status}".encode()).decode()


def loaded(code: bytes) -> int:
    """The module of compiled code."""
    module = c_void_p()
    call("cuModuleLoadData", byref(module), code)
    return module.value or 0


def unload(module: int) -> None:
    call("cuModuleUnload", module)


def function(module: int, name: str) -> int:
    """A kernel of a module."""
    found = c_void_p()
    call("cuModuleGetFunction", byref(found), module, name.encode())
    return found.value or 0


def allow_shared(function: int, size: int) -> None:
    """Let a kernel be launched with so many bytes of shared memory."""
    call("cuFuncSetAttribute", function, MOST_SHARED, size)

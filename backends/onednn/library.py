"""libdnnl through ctypes: finding it, its functions, and one check of every status."""

from __future__ import annotations

import ctypes as C
import logging
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from ctypes import POINTER, byref, c_char_p, c_float, c_int, c_int64, c_size_t, c_uint, c_void_p
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from ...common.errors import BackendUnavailableError, DnnlError
from ...common.native import Owned
from .constants import (
    AVX2_BIT,
    AVX2_VNNI_BIT,
    AVX512_BF16_BIT,
    AVX512_BIT,
    AVX512_VNNI_BIT,
    ENGINE_CPU,
    ISA_NAMES,
    MAX_NDIMS,
    STATUS,
    STREAM_IN_ORDER,
)

Dims = c_int64 * MAX_NDIMS
_P, _I, _F = c_void_p, c_int, c_float
_LOG = logging.getLogger("dnnstack.layers")
SONAME = "libdnnl.so.3"
PACKAGE = "onednn-cpu-gomp"
# How often a thread looks whether the others have come before it sleeps. By default it looks for
# milliseconds: where other programs share the cores, it holds up the very thread it waits for.
SPIN_COUNT = "10000"
SPIN_SETTINGS = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")


class ExecArg(C.Structure):
    """dnnl_exec_arg_t: which argument, and the dnnl_memory that holds it."""

    _fields_ = (("arg", c_int), ("memory", c_void_p))


class _Version(C.Structure):
    _fields_ = (
        ("major", c_int),
        ("minor", c_int),
        ("patch", c_int),
        ("hash", c_char_p),
        ("cpu_runtime", c_uint),
        ("gpu_runtime", c_uint),
    )


# Argument types of every function that returns a dnnl_status_t, without the prefix "dnnl_".
_SIGNATURES: dict[str, list[Any]] = {
    "engine_create": [_P, _I, c_size_t],
    "engine_destroy": [_P],
    "stream_create": [_P, _P, c_uint],
    "stream_destroy": [_P],
    "stream_wait": [_P],
    "memory_desc_create_with_tag": [_P, _I, _P, _I, _I],
    "memory_desc_clone": [_P, _P],
    "memory_desc_destroy": [_P],
    "memory_desc_query": [_P, _I, _P],
    "memory_create": [_P, _P, _P, _P],
    "memory_destroy": [_P],
    "memory_set_data_handle": [_P, _P],
    "primitive_desc_query": [_P, _I, _I, _P],
    "primitive_desc_next_impl": [_P],
    "primitive_desc_destroy": [_P],
    "primitive_create": [_P, _P],
    "primitive_execute": [_P, _P, _I, _P],
    "primitive_destroy": [_P],
    "primitive_attr_create": [_P],
    "primitive_attr_destroy": [_P],
    "primitive_attr_set_post_ops": [_P, _P],
    "post_ops_append_binary": [_P, _I, _P],
    "primitive_attr_set_scales_mask": [_P, _I, _I],
    "primitive_attr_set_scratchpad_mode": [_P, _I],
    "post_ops_create": [_P],
    "post_ops_destroy": [_P],
    "post_ops_append_eltwise": [_P, _I, _F, _F],
    "post_ops_append_sum": [_P, _F, _I, _I],
    "convolution_forward_primitive_desc_create": [_P, _P, _I, _I, *[_P] * 9],
    "convolution_backward_data_primitive_desc_create": [_P, _P, _I, *[_P] * 9],
    "convolution_backward_weights_primitive_desc_create": [_P, _P, _I, *[_P] * 10],
    "inner_product_forward_primitive_desc_create": [_P, _P, _I, *[_P] * 5],
    "inner_product_backward_data_primitive_desc_create": [_P] * 7,
    "inner_product_backward_weights_primitive_desc_create": [_P] * 8,
    "matmul_primitive_desc_create": [_P] * 7,
    "eltwise_forward_primitive_desc_create": [_P, _P, _I, _I, _P, _P, _F, _F, _P],
    "eltwise_backward_primitive_desc_create": [_P, _P, _I, _P, _P, _P, _F, _F, _P, _P],
    "pooling_forward_primitive_desc_create": [_P, _P, _I, _I, *[_P] * 8],
    "pooling_backward_primitive_desc_create": [_P, _P, _I, *[_P] * 9],
    "softmax_forward_primitive_desc_create": [_P, _P, _I, _I, _P, _P, _I, _P],
    "softmax_backward_primitive_desc_create": [_P, _P, _I, _P, _P, _P, _I, _P, _P],
    "batch_normalization_forward_primitive_desc_create": [_P, _P, _I, _P, _P, _F, c_uint, _P],
    "batch_normalization_backward_primitive_desc_create": [_P, _P, _I, *[_P] * 3, _F, c_uint]
    + [_P] * 2,
    "lrn_forward_primitive_desc_create": [_P, _P, _I, _I, _P, _P, c_int64, _F, _F, _F, _P],
    "lrn_backward_primitive_desc_create": [_P, _P, _I, *[_P] * 3, c_int64, _F, _F, _F, *[_P] * 2],
    "reorder_primitive_desc_create": [_P] * 6,
    "binary_primitive_desc_create": [_P, _P, _I, *[_P] * 4],
    "concat_primitive_desc_create": [_P, _P, _P, _I, _I, _P, _P],
    "sum_primitive_desc_create": [_P, _P, _P, _I, _P, _P, _P],
    "memory_desc_create_submemory": [_P, _P, _P, _P],
}


def _candidates() -> Iterator[str]:
    """Where libdnnl may be: the package's file, the prefix's lib folder, the system's."""
    try:
        files = metadata.distribution(PACKAGE).files or ()
    except metadata.PackageNotFoundError:
        files = ()
    yield from (str(f.locate()) for f in files if f.name == SONAME)
    yield str(Path(sys.prefix) / "lib" / SONAME)
    yield SONAME


def _load() -> tuple[C.CDLL, str]:
    reasons: list[str] = []
    for path in _candidates():
        try:
            loaded = C.CDLL(path)
            _LOG.info("oneDNN: loaded from %s", path)
            return loaded, path
        except OSError as error:
            reasons.append(str(error))
    if any("libgomp" in reason for reason in reasons):
        raise BackendUnavailableError(
            "oneDNN needs the system library libgomp.so.1, which is missing; "
            "install it (Debian, Ubuntu: apt install libgomp1)"
        )
    raise BackendUnavailableError(
        f"oneDNN 3 ({SONAME}) was not found; install it (pip install {PACKAGE}, on x86-64 Linux)"
    )


@contextmanager
def _short_waits() -> Iterator[None]:
    """Let a libgomp that is loaded inside wait for SPIN_COUNT, unless the user has chosen."""
    if any(name in os.environ for name in SPIN_SETTINGS):
        yield
        return
    os.environ[SPIN_SETTINGS[0]] = SPIN_COUNT
    try:
        yield
    finally:
        del os.environ[SPIN_SETTINGS[0]]


class Library:
    """The loaded library with an engine and a stream of its own; use ``library()``.

    Raises BackendUnavailableError if it, or libgomp, is missing or not version 3.
    """

    def __init__(self) -> None:
        with _short_waits():
            self.dll, self.path = _load()
        self.dll.dnnl_version.restype = POINTER(_Version)
        version = self.dll.dnnl_version().contents
        self.version = f"{version.major}.{version.minor}.{version.patch}"
        if version.major != 3:
            raise BackendUnavailableError(f"{self.path} is oneDNN {self.version}; 3 is needed")
        self.dll.dnnl_primitive_desc_query_md.restype = c_void_p
        self.dll.dnnl_primitive_desc_query_md.argtypes = [_P, _I, _I]
        self.dll.dnnl_memory_desc_get_size.restype = c_size_t
        self.dll.dnnl_memory_desc_get_size.argtypes = [_P]
        self.dll.dnnl_memory_desc_equal.argtypes = [_P, _P]
        for name, types in _SIGNATURES.items():
            function = getattr(self.dll, f"dnnl_{name}")
            function.argtypes, function.restype = types, c_int
        self._openmp = C.CDLL("libgomp.so.1")
        self._openmp.omp_set_num_threads.argtypes = [c_int]
        self.execute = self.dll.dnnl_primitive_execute
        engine = self.create("engine_create", ENGINE_CPU, 0)
        self.engine = Owned(engine, self.destroyer("engine"))
        stream = self.create("stream_create", engine, STREAM_IN_ORDER)
        self.stream = Owned(stream, self.destroyer("stream"), self.engine)

    def call(self, name: str, *arguments: Any, shown: Mapping[str, object] | None = None) -> None:
        """Call dnnl_<name>; a status other than success raises DnnlError with ``shown``."""
        status = getattr(self.dll, f"dnnl_{name}")(*arguments)
        if status:
            raise DnnlError("oneDNN", f"dnnl_{name}", status_name(status), shown)

    def create(
        self, function: str, *arguments: Any, shown: Mapping[str, object] | None = None
    ) -> int:
        """The handle of a new native object, made by dnnl_<function>(&handle, *arguments)."""
        handle = c_void_p()
        self.call(function, byref(handle), *arguments, shown=shown)
        if handle.value is None:
            raise DnnlError("oneDNN", f"dnnl_{function}", "success without an object", shown)
        return handle.value

    def destroyer(self, kind: str) -> Callable[[int], object]:
        """dnnl_<kind>_destroy, for the object's owner."""
        destroy: Callable[[int], object] = getattr(self.dll, f"dnnl_{kind}_destroy")
        return destroy

    def set_threads(self, count: int) -> None:
        """OpenMP threads of the calling thread's next primitives."""
        self._openmp.omp_set_num_threads(count)

    def threads(self) -> int:
        """How many they are."""
        return int(self._openmp.omp_get_max_threads())

    def isa(self) -> str:
        """The instruction set that oneDNN uses here, such as avx512_core."""
        number = self._isa()
        return ISA_NAMES.get(number, f"isa_{number:#x}")

    def has_avx512(self) -> bool:
        """Whether that set has AVX-512."""
        return bool(self._isa() & AVX512_BIT)

    def has_avx2(self) -> bool:
        """Whether that set has AVX2."""
        return bool(self._isa() & AVX2_BIT)

    def lanes(self) -> int:
        """Channels in a block of the layouts for which that set has fast kernels."""
        return 16 if self.has_avx512() else 8

    def has_bfloat16(self) -> bool:
        """Whether that set multiplies numbers in bfloat16: AVX512_BF16, which AMX includes."""
        return bool(self._isa() & AVX512_BF16_BIT)

    def has_int8(self) -> bool:
        """Whether that set adds up products of 8-bit integers exactly: VNNI.

        Without it pairs of products are added in 16 bits, which may not suffice.
        """
        return bool(self._isa() & (AVX2_VNNI_BIT | AVX512_VNNI_BIT))

    def _isa(self) -> int:
        return int(self.dll.dnnl_get_effective_cpu_isa())


def status_name(status: int) -> str:
    """oneDNN's word for a status."""
    return STATUS[status] if status < len(STATUS) else f"status {status}"


@cache
def library() -> Library:
    """The process's one Library; raises BackendUnavailableError as it does."""
    return Library()

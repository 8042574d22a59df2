"""cublasLt: the same products as cublasSgemm, with a choice of algorithms that can be timed."""

from __future__ import annotations

import ctypes as C
from collections.abc import Callable
from ctypes import byref, c_float, c_int, c_int64, c_size_t, c_uint32, c_uint64, c_void_p
from functools import partial
from typing import Any

from ....common.errors import BackendUnavailableError, CublasError
from ....common.native import Owned
from .cublas import COMPUTE_FLOAT, DATA_TYPE, STATUS, Product
from .runtime import captured_seconds, cupy, device_errors, loaded_library

COMPUTE_TF32 = 77  # CUBLAS_COMPUTE_32F_FAST_TF32
TRANSPOSE_A, TRANSPOSE_B = 3, 4  # CUBLASLT_MATMUL_DESC_TRANSA, _TRANSB
BATCH_COUNT, BATCH_OFFSET = 5, 6  # CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, _STRIDED_BATCH_OFFSET
MOST_WORKSPACE = 1  # CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES
# CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, _B_, _C_, _D_; what is assumed where nothing is said.
ALIGNMENTS, MOST_ALIGNED = (5, 6, 7, 8), 256
CANDIDATES = 16
WORKSPACE_BYTES = 32 << 20


class _Algorithm(C.Structure):
    """cublasLtMatmulHeuristicResult_t; the algorithm comes first."""

    _fields_ = (
        ("algorithm", c_uint64 * 8),
        ("workspace", c_size_t),
        ("state", c_int),
        ("waves", c_float),
        ("reserved", c_int * 4),
    )


class CublasLt:
    """A cublasLt handle; it is bound to no stream, so one serves all streams."""

    def __init__(self) -> None:
        path = loaded_library("libcublasLt.so")
        if path is None:
            raise BackendUnavailableError("device 'cuda': CuPy loaded no libcublasLt.so")
        self._dll = C.CDLL(path)
        handle = c_void_p()
        self.call("cublasLtCreate", byref(handle))
        assert handle.value is not None
        self._owned = Owned(handle.value, lambda h: self._dll.cublasLtDestroy(c_void_p(h)))
        self.handle = c_void_p(handle.value)

    def call(self, name: str, *arguments: Any, **shown: object) -> None:
        """Call a function; a status other than success raises CublasError with ``shown``."""
        status = getattr(self._dll, name)(*arguments)
        if status:
            raise CublasError("cublasLt", name, STATUS.get(status, f"status {status}"), shown)

    def new(self, kind: str, *arguments: Any) -> Owned:
        handle = c_void_p()
        self.call(f"cublasLt{kind}Create", byref(handle), *arguments)
        assert handle.value is not None
        destroy = getattr(self._dll, f"cublasLt{kind}Destroy")
        return Owned(handle.value, lambda h: destroy(c_void_p(h)))

    def set(self, kind: str, owned: Owned, attribute: int, value: Any) -> None:
        size = c_size_t(C.sizeof(value))
        name = f"cublasLt{kind}SetAttribute"
        self.call(name, c_void_p(owned.handle), c_int(attribute), byref(value), size)

    def describe(self, product: Product, tf32: bool, operands: str, result: str) -> list[Owned]:
        """Descriptors of the product and of its matrices as cuBLAS sees them: column by column."""
        p, kind = product, DATA_TYPE[operands]
        compute = COMPUTE_TF32 if tf32 else COMPUTE_FLOAT
        matmul = self.new("MatmulDesc", c_int(compute), c_int(DATA_TYPE["float32"]))
        self.set("MatmulDesc", matmul, TRANSPOSE_A, c_int(int(p.transpose_b)))
        self.set("MatmulDesc", matmul, TRANSPOSE_B, c_int(int(p.transpose_a)))
        first = (p.k, p.n) if p.transpose_b else (p.n, p.k)
        second = (p.m, p.k) if p.transpose_a else (p.k, p.m)
        return [
            matmul,
            self.matrix(kind, *first, p.ldb),
            self.matrix(kind, *second, p.lda),
            self.matrix(DATA_TYPE[result], p.n, p.m, p.ldc),
        ]

    def matrix(
        self, kind: int, rows: int, columns: int, stride: int, count: int = 1, apart: int = 0
    ) -> Owned:
        """``count`` matrices of ``columns`` columns a stride apart; ``apart``: their distance."""
        sizes = (c_uint64(rows), c_uint64(columns), c_int64(stride))
        matrix = self.new("MatrixLayout", c_int(kind), *sizes)
        if count > 1:
            self.set("MatrixLayout", matrix, BATCH_COUNT, c_int(count))
            self.set("MatrixLayout", matrix, BATCH_OFFSET, c_int64(apart))
        return matrix

    def algorithms(
        self, descriptors: list[Owned], pointers: tuple[int, int, int, int]
    ) -> list[_Algorithm]:
        """What the heuristics offer for matrices at these places (A, B, C, D as cuBLAS sees them),
        their first choice first."""
        preference = self.new("MatmulPreference")
        self.set("MatmulPreference", preference, MOST_WORKSPACE, c_uint64(WORKSPACE_BYTES))
        for attribute, pointer in zip(ALIGNMENTS, pointers, strict=True):
            self.set("MatmulPreference", preference, attribute, c_uint32(alignment(pointer)))
        matmul, a, b, c = (c_void_p(owned.handle) for owned in descriptors)
        found, count = (_Algorithm * CANDIDATES)(), c_int()
        self.call(
            "cublasLtMatmulAlgoGetHeuristic",
            *(self.handle, matmul, a, b, c, c, c_void_p(preference.handle)),
            *(c_int(CANDIDATES), found, byref(count)),
        )
        return [found[i] for i in range(count.value) if found[i].state == 0]


def alignment(pointer: int) -> int:
    """The largest power of two of bytes that an address is a multiple of, as far as it matters."""
    return min(pointer & -pointer, MOST_ALIGNED) or MOST_ALIGNED


class LtProduct:
    """One product bound to its pointers and a stream, with the algorithms that can compute it.

    workspace: a device array of WORKSPACE_BYTES that nothing else uses on this stream.
    """

    def __init__(
        self,
        library: CublasLt,
        product: Product,
        stream: Any,
        workspace: Any,
        *,
        tf32: bool,
        operands: str,
        result: str,
        elements: int,
    ) -> None:
        self._library = library
        self._product = product
        self._stream = stream
        self._workspace = workspace
        self._descriptors = library.describe(product, tf32, operands, result)
        try:
            places = (product.b, product.a, product.c, product.c)
            self._algorithms = library.algorithms(self._descriptors, places)
        except CublasError:
            # No choice to time: plain cuBLAS, which takes more shapes, computes it.
            self._algorithms = []
        self._one, self._zero = c_float(1.0), c_float(0.0)
        self._bytes = elements * (2 if result == "bfloat16" else 4)

    def count(self) -> int:
        return len(self._algorithms)

    def launch(self, index: int) -> Callable[[], None]:
        """A function that computes the product by one algorithm.

        Raises CublasError if there is no such algorithm, as on another machine.
        """
        if index >= len(self._algorithms):
            shown = self._product.shown()
            raise CublasError("cublasLt", "cublasLtMatmul", f"no algorithm {index}", shown)
        matmul, a, b, c = (c_void_p(owned.handle) for owned in self._descriptors)
        p, algorithm = self._product, self._algorithms[index]
        return partial(
            self._library.call,
            "cublasLtMatmul",
            *(self._library.handle, matmul, byref(self._one), c_void_p(p.b), a, c_void_p(p.a), b),
            *(byref(self._zero), c_void_p(p.c), c, c_void_p(p.c), c, byref(algorithm)),
            *(c_void_p(int(self._workspace.data.ptr)), c_size_t(WORKSPACE_BYTES)),
            c_void_p(self._stream.ptr),
            **p.shown(),
        )

    def seconds(self, index: int, repeats: int) -> float:
        """Device seconds of one algorithm; infinite for one that fails."""
        try:
            return captured_seconds(self.launch(index), self._stream, repeats)
        except (CublasError, *device_errors()):
            return float("inf")

    def verified(self, index: int) -> bool:
        """Whether an algorithm gives equal bits twice on what its operands hold now."""
        cp = cupy()
        memory = cp.cuda.UnownedMemory(self._product.c, self._bytes, self)
        output = cp.ndarray((self._bytes,), "uint8", cp.cuda.MemoryPointer(memory, 0))
        results = []
        with self._stream:
            for _ in range(2):
                self.launch(index)()
                results.append(output.copy())
            return bool((results[0] == results[1]).all())

"""cuBLAS by ctypes, on the library that CuPy loads: CuPy's own functions refuse stream capture.

Matrices are row-major here. cuBLAS is column-major, where a row-major (M, N) matrix is its
transpose: C = op(A) op(B) is computed as C^T = op(B)^T op(A)^T, so the operands change places.
"""

from __future__ import annotations

import ctypes as C
from ctypes import byref, c_float, c_int, c_size_t, c_void_p
from dataclasses import dataclass
from typing import Any

from ....common.errors import BackendUnavailableError, CublasError
from ....common.native import Owned
from .runtime import cupy, loaded_library

STATUS = {
    1: "not initialized",
    3: "allocation failed",
    7: "invalid value",
    8: "architecture mismatch",
    11: "mapping error",
    13: "execution failed",
    14: "internal error",
    15: "not supported",
    16: "license error",
}
MATH_DEFAULT, MATH_TF32 = 0, 3
POINTER_HOST, POINTER_DEVICE = 0, 1
DATA_TYPE = {"float32": 0, "bfloat16": 14}  # cudaDataType: R_32F, R_16BF
COMPUTE_FLOAT, DEFAULT_ALGORITHM = 68, -1  # CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT
WORKSPACE_BYTES = 32 << 20
_SIGNATURES: dict[str, list[Any]] = {
    "cublasCreate_v2": [c_void_p],
    "cublasDestroy_v2": [c_void_p],
    "cublasSetStream_v2": [c_void_p, c_void_p],
    "cublasSetWorkspace_v2": [c_void_p, c_void_p, c_size_t],
    "cublasSetMathMode": [c_void_p, c_int],
    "cublasSetPointerMode_v2": [c_void_p, c_int],
    "cublasGetVersion_v2": [c_void_p, c_void_p],
    "cublasSgemm_v2": [
        *(c_void_p, c_int, c_int, c_int, c_int, c_int, c_void_p),
        *(c_void_p, c_int, c_void_p, c_int, c_void_p, c_void_p, c_int),
    ],
    "cublasGemmEx": [
        *(c_void_p, c_int, c_int, c_int, c_int, c_int, c_void_p, c_void_p, c_int, c_int),
        *(c_void_p, c_int, c_int, c_void_p, c_void_p, c_int, c_int, c_int, c_int),
    ],
    "cublasSgemv_v2": [
        *(c_void_p, c_int, c_int, c_int, c_void_p, c_void_p, c_int),
        *(c_void_p, c_int, c_void_p, c_void_p, c_int),
    ],
    "cublasSaxpy_v2": [c_void_p, c_int, c_void_p, c_void_p, c_int, c_void_p, c_int],
    "cublasSscal_v2": [c_void_p, c_int, c_void_p, c_void_p, c_int],
}


@dataclass(frozen=True)
class Product:
    """C = op(A) op(B): op(A) (m, k), op(B) (k, n), C (m, n); row-major, row strides ld."""

    m: int
    n: int
    k: int
    a: int
    lda: int
    b: int
    ldb: int
    c: int
    ldc: int
    transpose_a: bool = False
    transpose_b: bool = False

    def shown(self) -> dict[str, object]:
        """What an error message and ``explain`` show."""
        ld = f"{self.lda},{self.ldb},{self.ldc}"
        transposed = f"{self.transpose_a},{self.transpose_b}"
        return {"m": self.m, "n": self.n, "k": self.k, "ld": ld, "transpose": transposed}


class Cublas:
    """A cuBLAS handle on a stream with a workspace of its own, so that it can be captured.

    ``tf32``: whether matrix products may round their operands to TF32.
    """

    def __init__(self, tf32: bool, stream: Any) -> None:
        cp = cupy()
        cp.cuda.device.get_cublas_handle()
        path = loaded_library("libcublas.so")
        if path is None:
            raise BackendUnavailableError("device 'cuda': CuPy loaded no libcublas.so")
        self.path = path
        self._dll = C.CDLL(path)
        for name, types in _SIGNATURES.items():
            function = getattr(self._dll, name)
            function.argtypes, function.restype = types, c_int
        handle = c_void_p()
        self.call("cublasCreate_v2", byref(handle))
        assert handle.value is not None
        self._owned = Owned(handle.value, self._dll.cublasDestroy_v2)
        self.handle = handle.value
        self.call("cublasSetStream_v2", self.handle, stream.ptr)
        # After the stream: setting the stream resets the workspace to one that is allocated later.
        self.workspace = cp.empty(WORKSPACE_BYTES, cp.uint8)
        workspace = self.workspace.data.ptr
        self.call("cublasSetWorkspace_v2", self.handle, workspace, WORKSPACE_BYTES)
        self.call("cublasSetMathMode", self.handle, MATH_TF32 if tf32 else MATH_DEFAULT)
        self._one, self._zero = c_float(1.0), c_float(0.0)

    def call(self, name: str, *arguments: Any, **shown: object) -> None:
        """Call a function; a status other than success raises CublasError with ``shown``."""
        status = getattr(self._dll, name)(*arguments)
        if status:
            raise CublasError("cuBLAS", name, STATUS.get(status, f"status {status}"), shown)

    @property
    def version(self) -> str:
        number = c_int()
        self.call("cublasGetVersion_v2", self.handle, byref(number))
        major, rest = divmod(number.value, 10000)
        return f"{major}.{rest // 100}.{rest % 100}"

    def sgemm(self, product: Product) -> None:
        """C = op(A) op(B) in float32, or TF32 where the handle allows it."""
        p = product
        self.call(
            "cublasSgemm_v2",
            *(self.handle, int(p.transpose_b), int(p.transpose_a), p.n, p.m, p.k, byref(self._one)),
            *(p.b, p.ldb, p.a, p.lda, byref(self._zero), p.c, p.ldc),
            **p.shown(),
        )

    def gemm_ex(self, product: Product, operands: str, result: str) -> None:
        """The same with operands and result of their own types, summed in float32."""
        p, kind = product, DATA_TYPE[operands]
        self.call(
            "cublasGemmEx",
            *(self.handle, int(p.transpose_b), int(p.transpose_a), p.n, p.m, p.k, byref(self._one)),
            *(p.b, kind, p.ldb, p.a, kind, p.lda, byref(self._zero)),
            *(p.c, DATA_TYPE[result], p.ldc, COMPUTE_FLOAT, DEFAULT_ALGORITHM),
            **p.shown(),
        )

    def column_sums(self, rows: int, columns: int, stride: int, a: int, ones: int, y: int) -> None:
        """y = A^T 1 by cublasSgemv: A (rows, columns), its rows a stride apart, ones (rows,)."""
        self.call(
            "cublasSgemv_v2",
            *(self.handle, 0, columns, rows, byref(self._one), a, stride, ones, 1),
            *(byref(self._zero), y, 1),
            rows=rows,
            columns=columns,
        )

    def saxpy(self, n: int, alpha: int, x: int, y: int) -> None:
        """y += alpha x; alpha: a device pointer to one float."""
        self.call("cublasSetPointerMode_v2", self.handle, POINTER_DEVICE)
        self.call("cublasSaxpy_v2", self.handle, n, alpha, x, 1, y, 1, n=n)
        self.call("cublasSetPointerMode_v2", self.handle, POINTER_HOST)

    def sscal(self, n: int, alpha: int, x: int) -> None:
        """x *= alpha; alpha: a device pointer to one float."""
        self.call("cublasSetPointerMode_v2", self.handle, POINTER_DEVICE)
        self.call("cublasSscal_v2", self.handle, n, alpha, x, 1, n=n)
        self.call("cublasSetPointerMode_v2", self.handle, POINTER_HOST)

    def close(self) -> None:
        self._owned.close()

"""cuBLAS by ctypes, whose functions a stream may capture.

Matrices are row-major here. cuBLAS is column-major, where a row-major (M, N) matrix is its
transpose: C = op(A) op(B) is computed as C^T = op(B)^T op(A)^T, so the operands change places.
"""

from __future__ import annotations

from ctypes import byref, c_float, c_int, c_size_t, c_void_p
from typing import Any

from ....common.errors import CublasError
from ....common.records import dataclass
from .runtime import cuda_api
from .shared_library import SharedLibrary, library_path

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
# The types of arguments, a letter each.
_TYPES = {"p": c_void_p, "i": c_int, "n": c_size_t}
_SIGNATURES = {
    "cublasCreate_v2": "p",
    "cublasDestroy_v2": "p",
    "cublasSetStream_v2": "pp",
    "cublasSetWorkspace_v2": "ppn",
    "cublasSetMathMode": "pi",
    "cublasSetPointerMode_v2": "pi",
    "cublasGetVersion_v2": "pp",
    "cublasSgemm_v2": "piiiiippipippi",
    "cublasSgemmStridedBatched": "piiiiippinpinppini",
    "cublasGemmEx": "piiiiippiipiippiiii",
    "cublasSgemv_v2": "piiippipippi",
    "cublasSaxpy_v2": "pippipi",
    "cublasSscal_v2": "pippi",
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


class CublasLibrary(SharedLibrary):
    """cuBLAS or cublasLt, whose statuses are the same."""

    error = CublasError

    def word(self, status: int) -> str:
        return STATUS.get(status, super().word(status))


class Cublas(CublasLibrary):
    """A cuBLAS handle on a stream with a workspace of its own, so that it can be captured.

    ``tf32``: whether matrix products may round their operands to TF32.
    """

    name = "cuBLAS"

    def __init__(self, tf32: bool, stream: Any) -> None:
        super().__init__(library_path("cublas"))
        for name, types in _SIGNATURES.items():
            getattr(self.dll, name).argtypes = [_TYPES[letter] for letter in types]
        self.handle = self.create("cublasCreate_v2", "cublasDestroy_v2")
        self.call("cublasSetStream_v2", self.handle, stream.ptr)
        # After the stream: setting the stream resets the workspace to one that is allocated later.
        self.workspace = cuda_api().empty(WORKSPACE_BYTES, "uint8")
        workspace = self.workspace.data.ptr
        self.call("cublasSetWorkspace_v2", self.handle, workspace, WORKSPACE_BYTES)
        self.call("cublasSetMathMode", self.handle, MATH_TF32 if tf32 else MATH_DEFAULT)
        self._one, self._zero = byref(c_float(1.0)), byref(c_float(0.0))

    @property
    def version(self) -> str:
        number = c_int()
        self.call("cublasGetVersion_v2", self.handle, byref(number))
        major, rest = divmod(number.value, 10000)
        return f"{major}.{rest // 100}.{rest % 100}"

    def sgemm(self, product: Product) -> None:
        """C = op(A) op(B) in float32, or TF32 where the handle allows it."""
        p = product
        operands = (p.b, p.ldb, p.a, p.lda, self._zero, p.c, p.ldc)
        self.call("cublasSgemm_v2", *self._sizes(p), *operands, **p.shown())

    def sgemm_batched(self, product: Product, count: int, factor: float) -> None:
        """The same times a factor, for so many triples of matrices, each behind the one before."""
        p = product
        self.call(
            "cublasSgemmStridedBatched",
            *(*self._sizes(p)[:-1], byref(c_float(factor)), p.b, p.ldb, p.k * p.n),
            *(p.a, p.lda, p.m * p.k, self._zero, p.c, p.ldc, p.m * p.n, count),
            **p.shown(),
        )

    def gemm_ex(self, product: Product, operands: str, result: str) -> None:
        """The same with operands and result of their own types, summed in float32."""
        p, kind = product, DATA_TYPE[operands]
        self.call(
            "cublasGemmEx",
            *(*self._sizes(p), p.b, kind, p.ldb, p.a, kind, p.lda, self._zero),
            *(p.c, DATA_TYPE[result], p.ldc, COMPUTE_FLOAT, DEFAULT_ALGORITHM),
            **p.shown(),
        )

    def _sizes(self, p: Product) -> tuple[Any, ...]:
        """What every product begins with."""
        return self.handle, p.transpose_b, p.transpose_a, p.n, p.m, p.k, self._one

    def column_sums(self, rows: int, columns: int, stride: int, a: int, ones: int, y: int) -> None:
        """y = A^T 1 by cublasSgemv: A (rows, columns), its rows a stride apart, ones (rows,)."""
        self.call(
            "cublasSgemv_v2",
            *(self.handle, 0, columns, rows, self._one, a, stride, ones, 1, self._zero, y, 1),
            rows=rows,
            columns=columns,
        )

    def by_factor(self, name: str, n: int, alpha: int, *vectors: int) -> None:
        """cublasSscal: x *= alpha; cublasSaxpy: y += alpha x. alpha lies on the device too."""
        spaced = [part for vector in vectors for part in (vector, 1)]
        self.call("cublasSetPointerMode_v2", self.handle, POINTER_DEVICE)
        self.call(f"{name}_v2", self.handle, n, alpha, *spaced, n=n)
        self.call("cublasSetPointerMode_v2", self.handle, POINTER_HOST)

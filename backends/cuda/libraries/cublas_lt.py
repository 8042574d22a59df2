"""cublasLt: the same products as cublasSgemm, with a choice of algorithms that can be timed; and
products of many matrices of one size, with a sum: D = alpha A op(B) + beta C.
"""

from __future__ import annotations

import ctypes as C
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from ctypes import byref, c_float, c_int, c_int64, c_size_t, c_uint32, c_uint64, c_void_p
from functools import cache, partial
from typing import Any

from ....common.errors import CublasError
from ....common.records import dataclass
from .cublas import COMPUTE_FLOAT, DATA_TYPE, WORKSPACE_BYTES, CublasLibrary, Product
from .runtime import address_of, cupy, gives_equal_bits, trial_seconds
from .shared_library import Handle, loaded_by_cupy

COMPUTE_TF32 = 77  # CUBLAS_COMPUTE_32F_FAST_TF32
TRANSPOSE_A, TRANSPOSE_B = 3, 4  # CUBLASLT_MATMUL_DESC_TRANSA, _TRANSB
BATCH_COUNT, BATCH_OFFSET = 5, 6  # CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, _STRIDED_BATCH_OFFSET
MOST_WORKSPACE = 1  # CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES
# CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, _B_, _C_, _D_; what is assumed where nothing is said.
ALIGNMENTS, MOST_ALIGNED = (5, 6, 7, 8), 256
CANDIDATES = 16


class _Algorithm(C.Structure):
    """cublasLtMatmulHeuristicResult_t; the algorithm comes first."""

    _fields_ = (
        ("algorithm", c_uint64 * 8),
        ("workspace", c_size_t),
        ("state", c_int),
        ("waves", c_float),
        ("reserved", c_int * 4),
    )


class CublasLt(CublasLibrary):
    """A cublasLt handle; it is bound to no stream, so one serves all streams."""

    name = "cublasLt"

    def __init__(self) -> None:
        super().__init__(loaded_by_cupy("libcublasLt.so"))
        self.handle = self.create("cublasLtCreate", "cublasLtDestroy")

    def warm(self, tf32: bool) -> None:
        """Ask for the algorithms of two small products, whose sizes do and do not suit vectors.

        The first question of a process takes a tenth of a second, in which Python's other threads
        go on.
        """
        for columns in (512, 10):
            product = Product(64, columns, 512, 0, 512, 0, columns, 0, columns)
            with suppress(CublasError):
                described = self.describe(product, tf32, "float32", "float32")
                self.algorithms(described, [MOST_ALIGNED] * len(described))

    def new(self, kind: str, *arguments: Any) -> Handle:
        return self.create(f"cublasLt{kind}Create", f"cublasLt{kind}Destroy", *arguments)

    def set(self, kind: str, handle: Handle, attribute: int, value: Any) -> None:
        size = c_size_t(C.sizeof(value))
        self.call(f"cublasLt{kind}SetAttribute", handle, attribute, byref(value), size)

    def describe(self, product: Product, tf32: bool, operands: str, result: str) -> list[Handle]:
        """Descriptors of the product and of its matrices as cuBLAS sees them: column by column."""
        p, kind = product, DATA_TYPE[operands]
        compute = COMPUTE_TF32 if tf32 else COMPUTE_FLOAT
        matmul = self.new("MatmulDesc", compute, DATA_TYPE["float32"])
        self.set("MatmulDesc", matmul, TRANSPOSE_A, c_int(p.transpose_b))
        self.set("MatmulDesc", matmul, TRANSPOSE_B, c_int(p.transpose_a))
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
    ) -> Handle:
        """``count`` matrices of ``columns`` columns a stride apart; ``apart``: their distance."""
        sizes = (c_uint64(rows), c_uint64(columns), c_int64(stride))
        matrix = self.new("MatrixLayout", kind, *sizes)
        if count > 1:
            self.set("MatrixLayout", matrix, BATCH_COUNT, c_int(count))
            self.set("MatrixLayout", matrix, BATCH_OFFSET, c_int64(apart))
        return matrix

    def algorithms(
        self, descriptors: Sequence[Handle], pointers: Sequence[int]
    ) -> list[_Algorithm]:
        """What the heuristics offer for matrices at these places (A, B, C, D as cuBLAS sees them),
        their first choice first."""
        preference = self.new("MatmulPreference")
        self.set("MatmulPreference", preference, MOST_WORKSPACE, c_uint64(WORKSPACE_BYTES))
        for attribute, pointer in zip(ALIGNMENTS, pointers, strict=True):
            self.set("MatmulPreference", preference, attribute, c_uint32(alignment(pointer)))
        found, count = (_Algorithm * CANDIDATES)(), c_int()
        ends = (self.handle, *descriptors, descriptors[-1], preference)
        self.call("cublasLtMatmulAlgoGetHeuristic", *ends, CANDIDATES, found, byref(count))
        return [found[i] for i in range(count.value) if found[i].state == 0]

    def matmul(
        self,
        descriptors: Sequence[Handle],
        pointers: Sequence[int],
        algorithm: _Algorithm,
        workspace: Any,
        stream: Any,
        shown: Mapping[str, object],
        factors: tuple[float, float] = (1.0, 0.0),
    ) -> Callable[[], None]:
        """A function that computes D = alpha A B + beta C, (alpha, beta) being ``factors``.

        workspace: a device array of WORKSPACE_BYTES that nothing else uses on this stream.
        """
        product, a, b, c = descriptors
        at = [c_void_p(pointer) for pointer in pointers]
        alpha, beta = (byref(c_float(factor)) for factor in factors)
        return partial(
            self.call,
            "cublasLtMatmul",
            *(self.handle, product, alpha, at[0], a, at[1], b, beta, at[2], c, at[3], c),
            *(byref(algorithm), c_void_p(address_of(workspace)), c_size_t(WORKSPACE_BYTES)),
            c_void_p(stream.ptr),
            **shown,
        )


@cache
def cublas_lt() -> CublasLt:
    """The handle of this process, once CuPy has loaded cuBLAS."""
    cupy().cuda.device.get_cublas_handle()
    return CublasLt()


def alignment(pointer: int) -> int:
    """The largest power of two of bytes that an address is a multiple of, as far as it matters."""
    return min(pointer & -pointer, MOST_ALIGNED) or MOST_ALIGNED


class LtProduct:
    """One product bound to its pointers and a stream, with the algorithms that can compute it."""

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
    ) -> None:
        self._library = library
        self._product = product
        self._stream = stream
        self._workspace = workspace
        self._descriptors = library.describe(product, tf32, operands, result)
        self._places = (product.b, product.a, product.c, product.c)
        try:
            self._algorithms = library.algorithms(self._descriptors, self._places)
        except CublasError:
            # No choice to time: plain cuBLAS, which takes more shapes, computes it.
            self._algorithms = []
        self._bytes = product.m * product.ldc * (2 if result == "bfloat16" else 4)

    def count(self) -> int:
        return len(self._algorithms)

    def launch(self, index: int) -> Callable[[], None]:
        """A function that computes the product by one algorithm.

        Raises CublasError if there is no such algorithm, as on another machine.
        """
        shown = self._product.shown()
        if index >= len(self._algorithms):
            raise CublasError("cublasLt", "cublasLtMatmul", f"no algorithm {index}", shown)
        where = (self._algorithms[index], self._workspace, self._stream)
        return self._library.matmul(self._descriptors, self._places, *where, shown)

    def seconds(self, index: int, repeats: int) -> float:
        """Device seconds of one algorithm; infinite for one that fails."""
        return trial_seconds(self.launch(index), self._stream, repeats)

    def verified(self, index: int) -> bool:
        """Whether an algorithm gives equal bits twice on what its operands hold now."""
        cp = cupy()
        memory = cp.cuda.UnownedMemory(self._product.c, self._bytes, self)
        output = cp.ndarray((self._bytes,), "uint8", cp.cuda.MemoryPointer(memory, 0))
        with self._stream:
            return gives_equal_bits(self.launch(index), output)


@dataclass(frozen=True)
class Stack:
    """``count`` row-major matrices of (rows, columns), one behind the other at an address."""

    pointer: int
    count: int
    rows: int
    columns: int


@dataclass(frozen=True)
class StackProduct:
    """D = alpha A op(B) + beta C for each matrix of the stacks; operands of one type, sums float32.

    ``transposed``: op(B) is B^T. C and D have one size; C may be absent where beta is 0. workspace:
    a device array of WORKSPACE_BYTES that nothing else uses on this stream.
    """

    library: CublasLt
    stream: Any
    workspace: Any
    operands: str
    transposed: bool

    def launch(
        self,
        a: Stack,
        b: Stack,
        d: Stack,
        alpha: float = 1.0,
        c: Stack | None = None,
        beta: float = 0.0,
    ) -> Callable[[], None]:
        """A function that computes the products. Raises CublasError if there is no algorithm."""
        library, shown = self.library, self.shown(a, d)
        # Column by column the operands change places: D^T = op(B)^T A^T.
        matmul = library.new("MatmulDesc", COMPUTE_FLOAT, DATA_TYPE["float32"])
        library.set("MatmulDesc", matmul, TRANSPOSE_A, c_int(self.transposed))
        kind = DATA_TYPE[self.operands]
        layouts = [
            library.matrix(kind, s.columns, s.rows, s.columns, s.count, s.rows * s.columns)
            for s in (b, a, d)
        ]
        descriptors = [matmul, *layouts]
        places = [stack.pointer for stack in (b, a, c or d, d)]
        found = library.algorithms(descriptors, places)
        if not found:
            raise CublasError("cublasLt", "cublasLtMatmul", "no algorithm", shown)
        where = (found[0], self.workspace, self.stream)
        return library.matmul(descriptors, places, *where, shown, (alpha, beta))

    def shown(self, a: Stack, d: Stack) -> dict[str, object]:
        """What an error message and ``explain`` show."""
        sizes = {"count": d.count, "m": d.rows, "n": d.columns, "k": a.columns}
        return {**sizes, "operands": self.operands}

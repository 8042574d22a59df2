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

import numpy as np

from ....common.errors import CublasError
from ....common.records import dataclass
from .cublas import COMPUTE_FLOAT, DATA_TYPE, WORKSPACE_BYTES, CublasLibrary, Product
from .layout import BFLOAT, FLOAT, Layout
from .runtime import address_of, cuda_api, cupy_on
from .shared_library import Handle, library_path
from .timing import gives_equal_bits, trial_seconds

COMPUTE_TF32 = 77  # CUBLAS_COMPUTE_32F_FAST_TF32
TRANSPOSE_A, TRANSPOSE_B = 3, 4  # CUBLASLT_MATMUL_DESC_TRANSA, _TRANSB
BATCH_COUNT, BATCH_OFFSET = 5, 6  # CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, _STRIDED_BATCH_OFFSET
MOST_WORKSPACE = 1  # CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES
# CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, _B_, _C_, _D_; what is assumed where nothing is said.
ALIGNMENTS, MOST_ALIGNED = (5, 6, 7, 8), 256
CANDIDATES = 16
# Numbers that operands repeat where algorithms are verified: a prime, so that rows differ.
DRAWN = 4099
# Bytes of a number.
ITEM = {BFLOAT: 2, FLOAT: 4}


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
        super().__init__(library_path("cublasLt"))
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
    """The handle of this process."""
    return CublasLt()


def alignment(pointer: int) -> int:
    """The largest power of two of bytes that an address is a multiple of, as far as it matters."""
    return min(pointer & -pointer, MOST_ALIGNED) or MOST_ALIGNED


class Algorithms:
    """The algorithms that can compute something, bound to its pointers and a stream.

    ``descriptors``: of the product and of its matrices, at ``places`` (A, B, C, D as cuBLAS sees
    them). ``size``: bytes of the result. workspace: a device array of WORKSPACE_BYTES that nothing
    else uses on this stream.
    """

    def __init__(
        self,
        library: CublasLt,
        stream: Any,
        workspace: Any,
        *,
        descriptors: Sequence[Handle],
        places: Sequence[int],
        size: int,
        shown: Mapping[str, object],
        factors: tuple[float, float] = (1.0, 0.0),
    ) -> None:
        self._library, self._stream, self._workspace = library, stream, workspace
        self._descriptors, self._places, self._size = descriptors, places, size
        self._factors = factors
        # What an error message and ``explain`` show.
        self.shown = shown
        try:
            self._algorithms = library.algorithms(descriptors, places)
        except CublasError:
            # No choice to time; plain cuBLAS takes more shapes.
            self._algorithms = []

    def count(self) -> int:
        return len(self._algorithms)

    def launch(self, index: int = 0) -> Callable[[], None]:
        """A function that computes it by one algorithm, by default the heuristics' first choice.

        Raises CublasError if there is no such algorithm, as on another machine.
        """
        try:
            algorithm = self._algorithms[index]
        except IndexError:
            missing = f"no algorithm {index}"
            raise CublasError("cublasLt", "cublasLtMatmul", missing, self.shown) from None
        where = (algorithm, self._workspace, self._stream, self.shown, self._factors)
        return self._library.matmul(self._descriptors, self._places, *where)

    def seconds(self, index: int, repeats: int) -> float:
        """Device seconds of one algorithm; infinite for one that fails."""
        return trial_seconds(self.launch(index), self._stream, repeats)

    def verified(self, index: int) -> bool:
        """Whether an algorithm gives equal bits twice on what its operands hold now."""
        output = cuda_api().at_address(self._places[-1], self._size)
        with cupy_on(self._stream) as cupy:
            return gives_equal_bits(self.launch(index), cupy.asarray(output))


class LtProduct(Algorithms):
    """One product of two matrices."""

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
        super().__init__(
            *(library, stream, workspace),
            descriptors=library.describe(product, tf32, operands, result),
            places=(product.b, product.a, product.c, product.c),
            size=product.m * product.ldc * ITEM[result],
            shown=product.shown(),
        )


@dataclass(frozen=True)
class Stack:
    """``count`` row-major matrices of (rows, columns), one behind the other at an address."""

    pointer: int
    count: int
    rows: int
    columns: int

    @property
    def size(self) -> int:
        """Numbers in all of them."""
        return self.count * self.rows * self.columns


class StackProduct(Algorithms):
    """D = alpha A op(B) + beta C for each matrix of the stacks; operands of one type, sums float32.

    ``transposed``: op(B) is B^T. C and D have one size; C may be absent where beta is 0. D is none
    of the operands.
    """

    def __init__(
        self,
        library: CublasLt,
        stream: Any,
        workspace: Any,
        operands: str,
        stacks: tuple[Stack, Stack, Stack],
        *,
        transposed: bool = False,
        alpha: float = 1.0,
        c: Stack | None = None,
        beta: float = 0.0,
    ) -> None:
        a, b, d = stacks
        # Column by column the operands change places: D^T = op(B)^T A^T.
        matmul = library.new("MatmulDesc", COMPUTE_FLOAT, DATA_TYPE["float32"])
        library.set("MatmulDesc", matmul, TRANSPOSE_A, c_int(transposed))
        layouts = [
            library.matrix(
                *(DATA_TYPE[operands], s.columns, s.rows, s.columns, s.count, s.rows * s.columns)
            )
            for s in (b, a, d)
        ]
        self._operands = operands
        self._read = tuple(dict.fromkeys(stack for stack in (a, b, c) if stack is not None))
        sizes = {"count": d.count, "m": d.rows, "n": d.columns, "k": a.columns}
        super().__init__(
            *(library, stream, workspace),
            descriptors=[matmul, *layouts],
            places=[stack.pointer for stack in (b, a, c or d, d)],
            size=d.size * ITEM[operands],
            shown={**sizes, "operands": operands},
            factors=(alpha, beta),
        )

    def verified(self, index: int) -> bool:
        """Whether an algorithm gives equal bits twice, on numbers that are drawn for it: a network
        that has not been trained may leave zeros."""
        drawn = np.random.default_rng(index).standard_normal(DRAWN, np.float32)
        with self._stream:
            for stack in self._read:
                layout = Layout((stack.size,), (stack.size,), dtype=self._operands)
                values = layout.pack(np.resize(drawn, stack.size))
                array = cuda_api().at_address(stack.pointer, stack.size * ITEM[self._operands])
                array.set(values.view("uint8"))
        return super().verified(index)

"""Products of many matrices of one size by cublasLt, with a sum: D = alpha A op(B) + beta C."""

from __future__ import annotations

from collections.abc import Callable
from ctypes import byref, c_float, c_int, c_size_t, c_void_p
from dataclasses import dataclass
from typing import Any

from ....common.errors import CublasError
from .cublas import COMPUTE_FLOAT, DATA_TYPE
from .cublas_lt import TRANSPOSE_A, WORKSPACE_BYTES, CublasLt


@dataclass(frozen=True)
class Stack:
    """``count`` row-major matrices of (rows, columns), one behind the other at an address."""

    pointer: int
    count: int
    rows: int
    columns: int


class StackProduct:
    """D = alpha A op(B) + beta C for each matrix of the stacks; operands of one type, sums float32.

    ``transposed``: op(B) is B^T. C and D have one size; C may be absent where beta is 0. workspace:
    a device array of WORKSPACE_BYTES that nothing else uses on this stream.
    """

    def __init__(
        self, library: CublasLt, stream: Any, workspace: Any, operands: str, transposed: bool
    ) -> None:
        self._library = library
        self._stream = stream
        self._workspace = workspace
        self._kind = DATA_TYPE[operands]
        self._operands = operands
        self._transposed = transposed

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
        library, shown = self._library, self.shown(a, d)
        # Column by column the operands change places: D^T = op(B)^T A^T.
        matmul = library.new("MatmulDesc", c_int(COMPUTE_FLOAT), c_int(DATA_TYPE["float32"]))
        library.set("MatmulDesc", matmul, TRANSPOSE_A, c_int(int(self._transposed)))
        layouts = [
            library.matrix(self._kind, s.columns, s.rows, s.columns, s.count, s.rows * s.columns)
            for s in (b, a, d)
        ]
        descriptors = [matmul, *layouts]
        addend = c or d
        places = (b.pointer, a.pointer, addend.pointer, d.pointer)
        found = library.algorithms(descriptors, places)
        if not found:
            raise CublasError("cublasLt", "cublasLtMatmul", "no algorithm", shown)
        factors, algorithm = (c_float(alpha), c_float(beta)), found[0]

        def run() -> None:
            handles = [c_void_p(owned.handle) for owned in descriptors]
            library.call(
                "cublasLtMatmul",
                *(library.handle, handles[0], byref(factors[0]), c_void_p(b.pointer), handles[1]),
                *(c_void_p(a.pointer), handles[2], byref(factors[1]), c_void_p(addend.pointer)),
                *(handles[3], c_void_p(d.pointer), handles[3], byref(algorithm)),
                *(c_void_p(int(self._workspace.data.ptr)), c_size_t(WORKSPACE_BYTES)),
                c_void_p(self._stream.ptr),
                **shown,
            )

        return run

    def shown(self, a: Stack, d: Stack) -> dict[str, object]:
        """What an error message and ``explain`` show."""
        sizes = {"count": d.count, "m": d.rows, "n": d.columns, "k": a.columns}
        return {**sizes, "operands": self._operands}

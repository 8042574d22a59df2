"""Products of many matrices of one size by cublasLt, with a sum: D = alpha A op(B) + beta C."""

from __future__ import annotations

from collections.abc import Callable
from ctypes import c_int
from dataclasses import dataclass
from typing import Any

from ....common.errors import CublasError
from .cublas import COMPUTE_FLOAT, DATA_TYPE
from .cublas_lt import TRANSPOSE_A, CublasLt


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

"""Small matrix products on tensor cores by a kernel of ours, bias and activation in it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ....graph.ops import MatMul
from ..binding.bind import Binder
from ..binding.wide import kind_of
from ..libraries.kernels import Defines, Kernel, f32, i32
from ..libraries.layout import Layout
from ..libraries.runtime import address_of, cuda_api
from .dense_candidates import CANDIDATES, DenseCandidates, Ends, Packed, takes
from .dense_tilings import DenseTiling, dense_tilings
from .pattern import defines

FILE, NAME = "tensor_dense.cu", "tensor_dense"


class TensorDense(DenseCandidates[DenseTiling]):
    """``tensor_dense`` bound to the matrices of a product; see DenseCandidates.

    Raises ValueError, too, if choices name it for a product that it does not take.
    """

    file, tiling = NAME, DenseTiling

    def __init__(
        self, b: Binder, op: MatMul, ends: Ends, chosen: Sequence[int] | None = None
    ) -> None:
        if chosen is not None and not takes(op, ends, b.arithmetic):
            raise ValueError(f"{NAME}, {op.label()}: the tuning's kernel does not take it")
        super().__init__(b, op, ends, chosen)

    def _promising(self) -> Sequence[DenseTiling]:
        return dense_tilings(self._geometry, CANDIDATES, self._b.stream.processors)

    def _fixed(self, index: int, activation: str | None) -> Defines:
        values = self._geometry.numbers() | self._every[index].numbers
        return defines(values | {"ACTIVATION": kind_of(activation)})

    def _kernel(self, index: int, bare: bool = False) -> Kernel:
        fixed = self._fixed(index, None if bare else self._op.activation)
        return Kernel(FILE, NAME, self._geometry.dtype, defines=fixed)

    def _arguments(self, ends: Sequence[Any], bias: Any) -> tuple[Any, ...]:
        a, right, c = ends
        return a, right, bias, c, i32(self._geometry.depth), f32(self._op.activation_alpha)

    def launch(self, index: int, workspace: int) -> Callable[[], None]:
        given = [*map(self._b.argument, self._arguments(self._ends, self._op.bias))]
        return self._launch(self._kernel(index), index, given)

    def _tried(self, index: int, operands: Sequence[Packed], result: Layout) -> Packed:
        """What the kernel leaves in a result that is NaN before; without bias and activation."""
        filled = np.full(result.size * np.dtype(result.item).itemsize, 0xFF, "uint8")
        arrays = [cuda_api().asarray(each) for each in (*operands, filled.view(result.item))]
        a, b, c = map(address_of, arrays)
        given = self._arguments((a, b, c), 0)
        self._launch(self._kernel(index, bare=True), index, given)()
        self.stream.synchronize()
        return np.asarray(arrays[-1].get())

    def add(self) -> None:
        """Append the launch with the tiling taken."""
        tiling = self._every[self.plan]
        self._b.kernel(
            self._op,
            (FILE, NAME, self._geometry.dtype),
            tiling.grid(),
            self._arguments(self._ends, self._op.bias),
            block=(tiling.threads,),
            shared=tiling.shared,
            defines=self._fixed(self.plan, self._op.activation),
        )

"""Small matrix products on tensor cores by a kernel of ours, bias and activation in it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ....graph.ops import MatMul
from ...known import numbers, product
from ..binding.bind import Arithmetic, Binder
from ..binding.store import Buffer
from ..binding.wide import kind_of
from ..libraries.candidates import Compiled
from ..libraries.conv_check import CLOSE
from ..libraries.kernels import Defines, Kernel, f32, i32
from ..libraries.layout import Layout
from ..libraries.runtime import address_of, cupy
from .dense_tilings import DenseGeometry, DenseTiling, dense_tilings, named
from .pattern import defines

FILE, NAME = "tensor_dense.cu", "tensor_dense"
# Ways that a search times.
CANDIDATES = 8
# Bytes that a load takes at once.
ALIGNED = 16
# Numbers of a matrix, and multiplications, beyond which cuBLAS is faster and a search takes longer.
MOST_NUMBERS, MOST_WORK = 1 << 24, 1 << 31

# A flat stored array.
Packed = NDArray[Any]
# A matrix product's a, b and c as they lie.
Ends = tuple[Buffer, Buffer, Buffer]


def takes(op: MatMul, ends: Ends, arithmetic: Arithmetic) -> bool:
    """Whether the kernel computes this product, of matrices that lie like this, and may be faster.

    Stored rows and, where one runs along it, the depth are multiples of 16 bytes. An activation
    leaves numbers of the type that it takes.
    """
    a, b, c = (end.layout for end in ends)
    if not all(len(layout.stored) == 2 for layout in (a, b, c)):
        return False
    geometry = DenseGeometry.of(a, b, c, op.transpose_a, op.transpose_b)
    return (
        arithmetic.fusion
        and not arithmetic.exact
        and a.dtype == b.dtype
        and (op.activation is None or a.dtype == c.dtype)
        and geometry.fits
        and c.stored[0] == geometry.rows
        and c.columns >= geometry.columns
        and all(end.pointer % ALIGNED == 0 for end in ends)
        and max(a.size, b.size, c.size) <= MOST_NUMBERS
        and geometry.rows * geometry.columns * geometry.depth <= MOST_WORK
    )


class TensorDense(Compiled):
    """``tensor_dense`` bound to the matrices of a product, with its tilings as candidates.

    ``chosen``: the tiling that the choices name, as the only one; no other is looked at then.
    Raises ValueError if it is none, or the kernel does not take the product.
    """

    file = NAME

    def __init__(self, b: Binder, op: MatMul, ends: Ends, chosen: str | None = None) -> None:
        self._b, self._op, self._ends = b, op, ends
        self.stream = b.stream.cuda
        a, right, c = (end.layout for end in ends)
        self._geometry = DenseGeometry.of(a, right, c, op.transpose_a, op.transpose_b)
        self._chosen = None
        if chosen is None:
            return
        if not takes(op, ends, b.arithmetic):
            raise ValueError(f"{NAME}, {op.label()}: the tuning's kernel does not take it")
        self._chosen = named(self._geometry, [*map(int, chosen.split("-"))])

    @cached_property
    def _every(self) -> Sequence[DenseTiling]:
        if self._chosen is not None:
            return (self._chosen,)
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
        return self._launch(index, given)

    def _launch(self, index: int, given: Sequence[Any], bare: bool = False) -> Callable[[], None]:
        tiling = self._every[index]
        kernel = self._kernel(index, bare)
        return kernel.launch(self.stream, tiling.grid(), (tiling.threads,), given, tiling.shared)

    def verified(self, index: int, workspace: int) -> bool:
        """Whether the sums alone of operands whose result is known are right, and twice the same
        bits."""
        g = self._geometry
        down, along, across = numbers((g.rows, g.depth, g.columns))
        a, b, result = self._alone()
        operands = [
            a.pack(product([down, along] if g.deep_a else [along, down])),
            b.pack(product([across, along] if g.deep_b else [along, across])),
        ]
        want = product([down, across * (along * along).sum()])
        want[:, g.counted :] = 0.0
        with self.stream:
            first, second = (self._tried(index, operands, result) for _ in range(2))
        gap = abs(result.unpack(first) - want)
        same = first.tobytes() == second.tobytes()
        return same and bool((gap <= CLOSE[g.result] * want).all())

    def _alone(self) -> tuple[Layout, Layout, Layout]:
        """How the matrices lie: every stored number counts."""
        g = self._geometry
        a = (g.rows, g.depth) if g.deep_a else (g.depth, g.rows)
        b = (g.columns, g.depth) if g.deep_b else (g.depth, g.columns)
        shapes, types = (a, b, (g.rows, g.columns)), (g.dtype, g.dtype, g.result)
        found = [
            Layout(shape, (shape[0], pitch), dtype=dtype)
            for shape, pitch, dtype in zip(shapes, g.pitches, types, strict=True)
        ]
        return found[0], found[1], found[2]

    def _tried(self, index: int, operands: Sequence[Packed], result: Layout) -> Packed:
        """What the kernel leaves in a result that is NaN before; without bias and activation."""
        filled = np.full(result.size * np.dtype(result.item).itemsize, 0xFF, "uint8")
        arrays = [cupy().asarray(each) for each in (*operands, filled.view(result.item))]
        a, b, c = map(address_of, arrays)
        self._launch(index, self._arguments((a, b, c), 0), bare=True)()
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

"""What kernels of matrix products share that a search tries: tilings, a check of their sums."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, Generic, TypeVar

from numpy.typing import NDArray

from ....graph.ops import MatMul
from ...known import numbers, product
from ..binding.bind import Arithmetic, Binder
from ..binding.buffer import Buffer
from ..libraries.candidates import Compiled
from ..libraries.conv_check import CLOSE
from ..libraries.kernels import Kernel
from ..libraries.layout import Layout
from .dense_tilings import DenseGeometry, ProductTiling

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


TilingT = TypeVar("TilingT", bound=ProductTiling)


def takes(op: MatMul, ends: Ends, arithmetic: Arithmetic) -> bool:
    """Whether kernels of ours compute this product, of matrices that lie like this, and may be
    faster.

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


class DenseCandidates(Compiled, Generic[TilingT]):
    """A kernel bound to the matrices of a product, with its tilings as candidates.

    ``chosen``: the tiling that the choices name, as the only one; no other is looked at then.
    Raises ValueError if it is none. ``tiling``: their type.
    """

    tiling: type[TilingT]

    def __init__(self, b: Binder, op: MatMul, ends: Ends, chosen: Sequence[int] | None) -> None:
        self._b, self._op, self._ends = b, op, ends
        self.stream = b.stream.cuda
        a, right, c = (end.layout for end in ends)
        self._geometry = DenseGeometry.of(a, right, c, op.transpose_a, op.transpose_b)
        self._named = None
        if chosen is not None:
            self._named = self.tiling.named(self._geometry, chosen)

    @abstractmethod
    def _promising(self) -> Sequence[TilingT]: ...

    @abstractmethod
    def _tried(self, index: int, operands: Sequence[Packed], result: Layout) -> Packed:
        """The sums of operands, as the result lies."""

    @cached_property
    def _every(self) -> Sequence[TilingT]:
        return self._promising() if self._named is None else (self._named,)

    def _launch(self, kernel: Kernel, index: int, given: Sequence[Any]) -> Callable[[], None]:
        tiling = self._every[index]
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

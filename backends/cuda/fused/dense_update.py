"""A dense layer's weights updated with their gradient, which is not stored, by the update's launch.

A kernel that does nothing else is what a search times and checks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ....graph.ops import MatMul, SgdUpdate
from ...live import Live
from ..binding.at_once import follower
from ..binding.bind import Arithmetic, Binder
from ..binding.ending import WeightProduct
from ..binding.launch_list import Varying
from ..binding.store import PARAMETERS
from ..libraries.kernels import Kernel, f32
from ..libraries.layout import FLOAT, Layout
from ..libraries.runtime import address_of, cuda_api
from .dense_candidates import CANDIDATES, DenseCandidates, Ends, Packed, takes
from .dense_tilings import UpdateTiling, update_tilings
from .pattern import defines

FILE, NAME = "dense_update.cu", "dense_update"


def may_update(b: Binder, op: MatMul, ends: Ends) -> bool:
    """Whether the kernel computes this gradient, of matrices that lie like this, and nothing but an
    update by SGD follows it."""
    arithmetic: Arithmetic = b.arithmetic
    return (
        op.transpose_a
        and not op.transpose_b
        and op.bias is None
        and op.activation is None
        and takes(op, ends, arithmetic)
        and ends[2].layout.dtype == FLOAT
        and ends[2].layout.columns % 4 == 0
        and follower(b.graph, op) is not None
    )


class DenseUpdate(DenseCandidates[UpdateTiling]):
    """``dense_update`` bound to the matrices of a weight gradient; see DenseCandidates.

    Raises ValueError, too, if the kernel does not take the product.
    """

    file, tiling = NAME, UpdateTiling

    def __init__(
        self, b: Binder, op: MatMul, ends: Ends, chosen: Sequence[int] | None = None
    ) -> None:
        following = follower(b.graph, op)
        if following is None or not may_update(b, op, ends):
            raise ValueError(f"{NAME}, {op.label()}: the tuning's kernel does not take it")
        self._update, self._which = following
        super().__init__(b, op, ends, chosen)

    def _promising(self) -> Sequence[UpdateTiling]:
        return update_tilings(self._geometry, CANDIDATES, self._b.stream.processors)

    def _fixed(self, index: int) -> dict[str, int]:
        """What a product is compiled with, wherever it is."""
        kept = ("ROWS", "COLUMNS", "DEPTH", "A_PITCH", "B_PITCH", "C_PITCH", "COUNTED")
        values = self._geometry.numbers()
        return {name: values[name] for name in kept} | self._every[index].numbers

    def _kernel(self, index: int) -> Kernel:
        return Kernel(FILE, NAME, self._geometry.dtype, defines=defines(self._fixed(index)))

    def _live(self) -> Live[SgdUpdate]:
        return self._b.live.add(self._update, ("momentum", "lr_factor", "weight_decay"))

    def _rule(self) -> Any:
        """(factor of the rate, weight decay) on the device."""
        which = self._which

        def values(op: SgdUpdate) -> NDArray[Any]:
            return np.array((op.factor(which), op.weight_decay[which]), "float32")

        return self._b.varying(self._live(), values)

    def _arguments(self) -> tuple[Any, ...]:
        """What the kernel is given: the operands, the layer's part of every arena, the rule."""
        b, update = self._b, self._update
        _, first, last = b.store.spans[update.parameters[self._which]]
        own, arenas = slice(first, last), b.store.arenas
        return (
            *self._ends[:2],
            arenas[PARAMETERS][own],
            arenas["momentum"][own] if update.momentum else None,
            b.store.bf16_arena()[own] if b.store.has_bf16 else None,
            self._rule(),
            b.data(update.rates),
            update.step,
            Varying(self._live(), lambda op: f32(op.momentum)),
            update.nesterov,
        )

    def launch(self, index: int, workspace: int) -> Callable[[], None]:
        given = [*map(self._b.argument, self._arguments())]
        return self._launch(self._kernel(index), index, given)

    def _tried(self, index: int, operands: Sequence[Packed], result: Layout) -> Packed:
        """What zeros become, without momentum, by a rate of 1 whose factor is -1."""
        weights = cuda_api().zeros(result.size, "float32")
        ends = [cuda_api().asarray(each) for each in operands]
        rule, rates = (cuda_api().asarray(np.array(v, "float32")) for v in ((-1.0, 0.0), (1.0,)))
        step = cuda_api().zeros(1, "int64")
        held = [address_of(each) for each in (*ends, weights)]
        rest = [address_of(each) for each in (rule, rates, step)]
        given = (*held, 0, 0, *rest, f32(0.0), np.int32(0))
        self._launch(self._kernel(index), index, given)()
        self.stream.synchronize()
        return np.asarray(weights.get())

    def leave_to_update(self) -> None:
        """Have the launch of the update compute it. Raises ValueError where that cannot be."""
        tiling, b = self._every[self.plan], self._b
        if b.decisions.weights is not None:
            raise ValueError(f"{NAME}, {self._op.label()}: the update takes one product at most")
        across, down = tiling.grid()
        _, *span = b.store.spans[self._update.parameters[self._which]]
        b.decisions.weights = WeightProduct(
            self._op,
            self._ends[1],
            (*self._ends[:2], self._rule()),
            (span[0], span[1]),
            across,
            across * down,
            tiling.shared,
            defines(self._fixed(self.plan)),
            self._geometry.dtype,
        )

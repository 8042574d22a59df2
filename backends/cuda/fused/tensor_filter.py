"""Gradients of the filters of convolutions of few channels, on tensor cores by kernels of ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ....graph.ops import ActivationBackward, Conv2dBackwardFilter
from ..binding.bind import Binder
from ..binding.buffer import Buffer
from ..binding.choices import Through, Tiled, Warpgroups, WarpgroupsThrough
from ..binding.decisions import Spread
from ..libraries.kernels import f32, i32, i64
from ..libraries.runtime import cuda_api, cupy
from .filter_tilings import FilterTiling, filter_tilings, most_slices
from .tensor_conv import CANDIDATES, Pointers, TensorCores, large
from .tilings import AnyTiling
from .warpgroup_tilings import WarpgroupFilterTiling, serves_filters, warpgroup_filter_tilings

FILTER, WARPGROUP_FILTER = "tensor_filter", "warpgroup_filter"
# Bytes a second at which the sums of slices are added up, nearly.
SUM_RATE = 2e12


def sloped(spread: Spread | None) -> bool:
    """Whether what is computed on the way is the gradient of an activation."""
    return spread is not None and isinstance(spread.op, ActivationBackward)


class _Filter(TensorCores[AnyTiling]):
    """The gradient of filters and, unless another kernel sums it, of biases."""

    def __init__(
        self,
        b: Binder,
        op: Conv2dBackwardFilter,
        ends: Mapping[str, Buffer],
        chosen: Sequence[int] | None = None,
        spread: Spread | None = None,
    ) -> None:
        # A max-pool's kernel that has summed it may be left out.
        stored = spread is None or spread.strided
        bias, self._dw = op.bias_grad, op.dw
        self._bias = None if bias and stored and b.summed(op, bias) else bias
        super().__init__(b, op, ends, chosen, spread)
        self._size = ends["w"].layout.size
        self._stride = self._size + ends["y"].layout.columns
        most = most_slices(self._geometry, self._processors)
        count = most if chosen is None else self._slices(0)
        wanted, held = count * self._stride, b.decisions.slices.get(op.dw)
        # With another gradient on the way or without: a search times one after the other.
        self._sums = held if held is not None else b.scratch(wanted, "float32")
        b.decisions.slices[op.dw] = self._sums

    def _defines(self) -> dict[str, int]:
        return {"BIAS": int(self._bias is not None)} | self._in_front()

    def _slices(self, index: int) -> int:
        return self._every[index].grid(self._n, self._processors)[0]

    def _arguments(self, ends: Pointers) -> tuple[Any, ...]:
        gradient = self._gradient(ends)
        return ends["x"], *gradient, self._sums, i64(self._stride), i32(self._n)

    def seconds(self, index: int, workspace: int, repeats: int) -> float:
        """Also about those that the sum of slices takes."""
        read = 4 * self._slices(index) * self._stride
        return super().seconds(index, workspace, repeats) + read / SUM_RATE

    def _try(self, index: int, pointers: Mapping[str, int]) -> None:
        super()._try(index, pointers)
        count = self._slices(index)
        sums = cupy().asarray(self._sums)[: count * self._stride]
        total = sums.reshape(count, self._stride)[:, : self._size].sum(0)
        copied, runtime = (pointers["w"], total.data.ptr, total.nbytes), cuda_api().runtime
        runtime.memcpyAsync(*copied, runtime.memcpyDeviceToDevice, self.stream.ptr)
        self.stream.synchronize()

    def add(self) -> None:
        """Append the launch with the tiling taken, and ask for the sums of its slices."""
        b, op, count = self._b, self._op, self._slices(self.plan)
        self._added(self._arguments(self._ends), self._through() | {"slices": count})
        b.slices(op, self._sums, 0, count, self._stride, self._dw, self._size)
        if self._bias is not None:
            size = self._bias.size
            b.slices(op, self._sums, self._size, count, self._stride, self._bias, size)


class TensorFilter(_Filter[FilterTiling]):
    """By tensor_filter.cu."""

    file, alone, through = FILTER, Tiled, Through

    def _promising(self) -> tuple[FilterTiling, ...]:
        given = (self._geometry, self._n, CANDIDATES, self._processors)
        every = filter_tilings(*given)
        if not sloped(self._spread):
            return every
        # The model knows nothing of slopes: while a block waits for what it takes them of, a
        # neighbour can compute.
        half = CANDIDATES // 2
        return every[:half] + filter_tilings(*given, neighbours=True)[:half]

    def _tiling(self, values: Sequence[int]) -> FilterTiling:
        return FilterTiling.of(self._geometry, values)

    def _arguments(self, ends: Pointers) -> tuple[Any, ...]:
        op = None if self._spread is None else self._spread.op
        alpha = op.alpha if isinstance(op, ActivationBackward) else 0.0
        return *super()._arguments(ends), f32(alpha)


class WarpgroupFilter(_Filter[WarpgroupFilterTiling]):
    """By warpgroup_filter.cu."""

    file, alone, through = WARPGROUP_FILTER, Warpgroups, WarpgroupsThrough
    slopes = False

    def _promising(self) -> tuple[WarpgroupFilterTiling, ...]:
        return warpgroup_filter_tilings(self._geometry, self._n, CANDIDATES, self._processors)

    def _tiling(self, values: Sequence[int]) -> WarpgroupFilterTiling:
        if not self._processors.warpgroups or sloped(self._spread):
            raise TypeError("no products of warpgroups")
        return WarpgroupFilterTiling.of(self._geometry, values)


Summing = TensorFilter | WarpgroupFilter


def filter_ways(b: Binder, ends: Mapping[str, Buffer]) -> list[type[Summing]]:
    """Those for a gradient of filters that tensor_conv's ``takes`` lets pass."""
    found, x = list[type[Summing]]([TensorFilter]), ends["x"].layout
    if b.stream.processors.warpgroups and large(ends) and serves_filters(x.dtype, x.columns):
        found.append(WarpgroupFilter)
    return found

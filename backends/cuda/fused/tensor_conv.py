"""Convolutions of few channels on tensor cores by kernels of ours: forward, both gradients."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from math import prod
from typing import Any, Generic

from ....graph import ops
from ...known import Kind
from ..binding.bind import Arithmetic, Binder
from ..binding.buffer import Buffer
from ..binding.choices import Choice, Through, Tiled, Warpgroups, WarpgroupsThrough
from ..binding.decisions import Maxima, Spread
from ..binding.wide import kind_of
from ..libraries.candidates import Compiled
from ..libraries.conv_check import is_right
from ..libraries.kernels import Defines, Kernel, f32, i32
from ..libraries.layout import BFLOAT
from ..libraries.operand import Operand
from ..libraries.runtime import cupy_on
from .conv_tilings import Tiling, tilings
from .pattern import defines, normed
from .tilings import AnyTiling, Geometry, fits
from .warpgroup_tilings import WarpgroupTiling, serves, warpgroup_tilings

CONV, WARPGROUP_CONV = "tensor_conv", "warpgroup_conv"
# What a kernel with neither in it is compiled with.
ALONE = {"POOL": 0, "FROM_POOL": 0, "STRIDED": 0, "POOLED": 0, "SLOPE": -1}
# Ways that a search times, and channels up to which it does: cuDNN is faster beyond.
CANDIDATES, FEW, MOST_CHANNELS = 8, 64, 128
# So many of the model's first are looked through for those that a max-pool fits.
FURTHER = 40
# Multiplications from which products of warpgroups are offered: a search that times launches one by
# one took them for LeNet at batch 64 too, whose steps then took longer.
LEAST_WORK = 1_000_000_000
# Blocks that leave sums for a batch norm: what unites them takes longer beyond.
MOST_SLICES = 1056
# Numbers of a picture that 32 bits can count.
MOST_INDEX = 1 << 31

Convolution = ops.Conv2d | ops.Conv2dBackwardData | ops.Conv2dBackwardFilter
Pointers = Mapping[str, Any]


def takes(op: Convolution, ends: Mapping[str, Buffer], arithmetic: Arithmetic) -> bool:
    """Whether the kernels compute this convolution, of ``x``, ``w`` and ``y`` as they lie.

    Stride and dilation 1, no groups, less padding than the window is large; channels-last.
    """
    window, x, y, w = (op.window, *(ends[name].layout for name in ("x", "y", "w")))
    source, target = (y, x) if isinstance(op, ops.Conv2dBackwardData) else (x, y)
    height, width = window.kernel
    top, bottom, left, right = window.padding
    inner = 1 if isinstance(op, ops.Conv2dBackwardFilter) else 8 if x.dtype == BFLOAT else 4
    channels = sorted((x.columns, y.columns))
    return (
        arithmetic.fusion
        and not arithmetic.exact
        and op.groups == 1
        and window.stride == window.dilation == (1, 1)
        and max(top, bottom) < height
        and max(left, right) < width
        and x.nhwc
        and y.nhwc
        and (w.nhwc or window.area == 1)
        and w.stored[:2] == (y.columns, x.columns)
        and x.dtype == y.dtype == arithmetic.dtype
        and source.columns % inner == target.columns % 8 == 0
        and channels[0] <= FEW
        and channels[1] <= MOST_CHANNELS
        and max(x.size // x.shape[0], y.size // y.shape[0]) < MOST_INDEX
    )


class TensorCores(Compiled, Generic[AnyTiling]):
    """One of the kernels bound to real pictures, with its tilings as candidates.

    ``ends``: x, w, y as cuDNN names them, w and y being gradients where they are. ``chosen``: the
    tiling that the choices name, as the only one. ``spread``: what y is computed from in the
    kernel, if it is; then only the layout of y counts. ``alone``, ``through``: the kinds of its
    choices, without a neighbour in the kernel and with one; ``slopes``: whether an activation can
    be that.
    """

    alone: type[Choice]
    through: type[Choice]
    slopes = True

    def __init__(
        self,
        b: Binder,
        op: Convolution,
        ends: Mapping[str, Buffer],
        chosen: Sequence[int] | None = None,
        spread: Spread | None = None,
    ) -> None:
        self._spread = spread
        x, y = (ends[name].layout.stored[1:] for name in ("x", "y"))
        data = isinstance(op, ops.Conv2dBackwardData)
        given = (y, x) if data else (x, y)
        self._window = replace(op.window, stride=(1, 1))
        self._geometry = Geometry(*given, self._window, data, ends["x"].dtype)
        self._b, self._op, self._ends = b, op, dict(ends)
        self._kind: Kind = "data" if data else "forward" if isinstance(op, ops.Conv2d) else "filter"
        self._n = op.x.shape[0] if not isinstance(op, ops.Conv2dBackwardData) else op.dx.shape[0]
        self._processors = b.stream.processors
        self.stream = b.stream.cuda
        self._chosen = None if chosen is None else self._named(chosen)

    @cached_property
    def _every(self) -> tuple[AnyTiling, ...]:
        return self._promising() if self._chosen is None else (self._chosen,)

    @abstractmethod
    def add(self) -> None:
        """Append the launch with the tiling taken."""

    @abstractmethod
    def _promising(self) -> tuple[AnyTiling, ...]:
        """The tilings to time."""

    @abstractmethod
    def _tiling(self, values: Sequence[int]) -> AnyTiling:
        """The one of these numbers."""

    @abstractmethod
    def _defines(self) -> dict[str, int]:
        """What the kernel is compiled with beside geometry and tiling."""

    @abstractmethod
    def _arguments(self, ends: Pointers) -> tuple[Any, ...]:
        """What the kernel is given."""

    def _in_front(self) -> dict[str, int]:
        if self._spread is None:
            return ALONE
        op, gradient, maxima, _ = self._spread
        if self._spread.strided:
            return ALONE | {"FROM_POOL": 1, "STRIDED": 1, "POOLED": gradient.layout.columns}
        if isinstance(op, ops.ActivationBackward):
            return ALONE | {"SLOPE": kind_of(op.kind)}
        return ALONE | {"FROM_POOL": 1, "POOLED": maxima.layout.columns if maxima else 0}

    def _through(self) -> dict[str, object]:
        """What ``explain`` shows of another gradient that the kernel computes on the way."""
        if self._spread is None:
            return {}
        strided = self._spread.strided
        return {"stride": "2x2 spread"} if strided else {"with": self._spread.op.label()}

    def _gradient(self, ends: Pointers) -> tuple[Any, Any, Any]:
        """What the kernel is given for y: itself, or the gradient of maxima with their places, or
        that of an activation's output with what its slope is taken of, or that of stride 2."""
        if self._spread is None or ends is not self._ends:
            return ends["y"], None, None
        _, gradient, maxima, mask = self._spread
        return gradient, None if maxima is None else maxima.places, mask

    def _named(self, chosen: Sequence[int]) -> AnyTiling:
        """The tiling that the choices name. Raises ValueError if it is none."""
        try:
            found = self._tiling(chosen)
            known = fits(found, self._processors)
        except (TypeError, ZeroDivisionError):
            known = False
        if not known:
            shown = f"tiling {'-'.join(map(str, chosen))} is unknown"
            raise ValueError(f"{self.file}, {self._op.label()}: the tuning's {shown}")
        return found

    def _fixed(self, index: int, **others: int) -> Defines:
        values = self._geometry.numbers() | self._defines() | self._every[index].numbers
        return defines(values | others)

    def _kernel(self, index: int, **others: int) -> Kernel:
        fixed = self._fixed(index, **others)
        return Kernel(f"{self.file}.cu", self.file, self._ends["x"].dtype, defines=fixed)

    def _launch(self, index: int, ends: Pointers, **others: int) -> Callable[[], None]:
        tiling = self._every[index]
        # Of a trial on other operands pointers are given.
        every = self._arguments(ends)
        given = [each if isinstance(each, int) else self._b.argument(each) for each in every]
        grid, block = tiling.grid(self._n, self._processors), (tiling.threads,)
        kernel = self._kernel(index, **others)
        return kernel.launch(self.stream, grid, block, given, self._shared(index, **others))

    def _shared(self, index: int, **others: int) -> int:
        return self._every[index].shared

    def launch(self, index: int, workspace: int) -> Callable[[], None]:
        return self._launch(index, self._ends)

    def verified(self, index: int, workspace: int) -> bool:
        """Whether it is right. Its sums run in one order, so that two runs give the same bits."""
        operands = {name: Operand.of(end.layout) for name, end in self._ends.items()}
        run = partial(self._try, index)
        with cupy_on(self.stream):
            return is_right(self._kind, operands, self._window, run, (workspace, 0))

    def _try(self, index: int, pointers: Mapping[str, int]) -> None:
        """The sums alone, without bias, activation and max-pool, of these operands."""
        bare = {"ACTIVATION": kind_of(None)} if "ACTIVATION" in self._defines() else {}
        self._launch(index, pointers, **bare, **ALONE)()

    def _added(self, arguments: tuple[Any, ...], details: Mapping[str, object]) -> None:
        tiling = self._every[self.plan]
        named = (f"{self.file}.cu", self.file, self._ends["x"].dtype)
        self._b.kernel(
            self._op,
            named,
            tiling.grid(self._n, self._processors),
            arguments,
            details,
            block=(tiling.threads,),
            shared=self._shared(self.plan),
            defines=self._fixed(self.plan),
        )


class _Conv(TensorCores[AnyTiling]):
    """Forward with bias and any activation, or the gradient of pictures.

    ``behind``: the max-pool that follows, with what it leaves its maxima and their places in;
    forward with it writes no y.
    """

    def __init__(
        self,
        b: Binder,
        op: ops.Conv2d | ops.Conv2dBackwardData,
        ends: Mapping[str, Buffer],
        chosen: Sequence[int] | None = None,
        spread: Spread | None = None,
        behind: tuple[ops.Pool2d, Buffer, Maxima] | None = None,
    ) -> None:
        self._behind = behind
        super().__init__(b, op, ends, chosen, spread)

    def _defines(self) -> dict[str, int]:
        activation = self._op.activation if isinstance(self._op, ops.Conv2d) else None
        fixed = {"DATA": int(self._geometry.data), "ACTIVATION": kind_of(activation)}
        if self._behind is not None:
            return fixed | ALONE | {"POOL": 1, "POOLED": self._behind[2].layout.columns}
        return fixed | self._in_front()

    def _arguments(self, ends: Pointers) -> tuple[Any, ...]:
        op = self._op
        if not isinstance(op, ops.Conv2d):
            through = (*self._gradient(ends), ends["w"], None, ends["x"], None)
            return *through, i32(self._n), f32(0.0)
        own = ends is self._ends
        y, places = ends["y"], None
        if own and self._behind is not None:
            _, y, (places, *_) = self._behind
        given = (ends["x"], None, None, ends["w"], op.bias if own else None, y, places)
        return *given, i32(self._n), f32(op.activation_alpha)

    def add(self) -> None:
        shown = self._through()
        if self._behind is not None:
            self._b.decisions.merged.add(id(self._behind[0]))
            shown = {"with": self._behind[0].label()}
        self._added(self._arguments(self._ends), shown)


class TensorConv(_Conv[Tiling]):
    """By tensor_conv.cu; where a batch norm follows, with the sums that it begins with."""

    file, alone, through = CONV, Tiled, Through

    @property
    def sums(self) -> bool:
        return (
            isinstance(self._op, ops.Conv2d) and self._behind is None and normed(self._b, self._op)
        )

    @cached_property
    def _slices(self) -> Any:
        """What it leaves them in, large enough for every tiling."""
        if not self.sums:
            return None
        most = max(each.grid(self._n, self._processors)[0] for each in self._every)
        return self._b.scratch(2 * most * self._geometry.y[0], "float64")

    def _promising(self) -> tuple[Tiling, ...]:
        if self._behind is None and not self.sums:
            return tilings(self._geometry, self._n, CANDIDATES, self._processors)
        every = tilings(self._geometry, self._n, FURTHER, self._processors)
        return tuple(filter(self._serves, every))[:CANDIDATES]

    def _serves(self, tiling: Tiling) -> bool:
        if self._behind is not None:
            return tiling.pools
        return not self.sums or (
            tiling.grid(self._n, self._processors)[0] <= MOST_SLICES
            and fits(tiling, self._processors, tiling.bytes_of_sums)
        )

    def _tiling(self, values: Sequence[int]) -> Tiling:
        found = Tiling.of(self._geometry, values)
        if not self._serves(found):
            raise TypeError("no windows of 2 by 2, or no room for sums")
        return found

    def _fixed(self, index: int, **others: int) -> Defines:
        return super()._fixed(index, **({"SUMS": 1} if self.sums else {}) | others)

    def _shared(self, index: int, **others: int) -> int:
        tiling = self._every[index]
        return tiling.shared + tiling.bytes_of_sums * others.get("SUMS", int(self.sums))

    def _arguments(self, ends: Pointers) -> tuple[Any, ...]:
        *given, n, alpha = super()._arguments(ends)
        return *given, self._slices if ends is self._ends else None, n, alpha

    def _try(self, index: int, pointers: Mapping[str, int]) -> None:
        bare = {"ACTIVATION": kind_of(None), "SUMS": 0}
        self._launch(index, pointers, **bare, **ALONE)()

    def _through(self) -> dict[str, object]:
        left = {"sums": f"moments of {self._op.y.name}"} if isinstance(self._op, ops.Conv2d) else {}
        return super()._through() | (left if self.sums else {})

    def add(self) -> None:
        super().add()
        if self.sums and isinstance(self._op, ops.Conv2d):
            count = self._every[self.plan].grid(self._n, self._processors)[0]
            self._b.decisions.moments[self._op.y] = (self._slices, count)


class WarpgroupConv(_Conv[WarpgroupTiling]):
    """By warpgroup_conv.cu."""

    file, alone, through = WARPGROUP_CONV, Warpgroups, WarpgroupsThrough

    def _defines(self) -> dict[str, int]:
        return super()._defines() | {"BIAS": int(getattr(self._op, "bias", None) is not None)}

    def _promising(self) -> tuple[WarpgroupTiling, ...]:
        return warpgroup_tilings(self._geometry, self._n, CANDIDATES, self._processors)

    def _tiling(self, values: Sequence[int]) -> WarpgroupTiling:
        if not self._processors.warpgroups:
            raise TypeError("no products of warpgroups")
        return WarpgroupTiling.of(self._geometry, values)


Convolving = TensorConv | WarpgroupConv


def large(ends: Mapping[str, Buffer]) -> bool:
    """Whether there is so much to multiply that products of warpgroups may pay."""
    y, w = (ends[name].layout.shape for name in ("y", "w"))
    return prod(y) * prod(w[1:]) >= LEAST_WORK


def ways(
    b: Binder, op: ops.Conv2d | ops.Conv2dBackwardData, ends: Mapping[str, Buffer]
) -> list[type[Convolving]]:
    """Those for a convolution that ``takes`` lets pass."""
    found: list[type[Convolving]] = [TensorConv]
    x, y = (ends[name].layout for name in ("x", "y"))
    source = x if isinstance(op, ops.Conv2d) else y
    # Chunks are counted in 32 bits there.
    counted = max(x.size, y.size) // 8 < MOST_INDEX
    has = counted and b.stream.processors.warpgroups
    if has and large(ends) and serves(x.dtype, source.columns, op.window.kernel):
        found.append(WarpgroupConv)
    return found

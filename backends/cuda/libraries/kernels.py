"""Our own kernels: .cu files compiled by NVRTC when first used, launched on a stream.

A compiled kernel is kept for the process, and on disk for the next one; see modules.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import cache
from importlib import resources
from textwrap import dedent
from typing import Any

import numpy as np

from ....graph.ops.formulas import Formula
from .layout import BFLOAT, FLOAT, ceil_div
from .modules import Module
from .overlap import overlapping

THREADS = 256
# Bytes of shared memory that a kernel may have without asking, its own ones included.
UNASKED = 48 << 10
# Enough blocks to fill the largest GPU; kernels loop over what is beyond.
MAX_BLOCKS = 4096
HEADERS = ("common.cuh", "activations.cuh", "formulas.cuh")
# What some files begin with as well.
FURTHER = {
    "activation.cu": ("groups.cuh",),
    "dense_tail.cu": ("tail_gradients.cuh",),
    "dense_update.cu": ("mma.cuh", "slices.cuh", "sgd.cuh", "weights.cuh"),
    "disjoint_pool.cu": ("groups.cuh",),
    "elementwise.cu": ("slices.cuh", "gather.cuh"),
    "max_pool.cu": ("groups.cuh",),
    "norm.cu": ("groups.cuh",),
    "peers.cu": ("told.cuh", "peers.cuh"),
    "ranks_end.cu": (
        *("slices.cuh", "sgd.cuh", "gather.cuh", "next_batch.cuh"),
        *("told.cuh", "peers.cuh"),
    ),
    "tensor_conv.cu": ("mma.cuh", "spread.cuh", "channel_sums.cuh", "conv_tile.cuh"),
    "tensor_dense.cu": ("mma.cuh",),
    "tensor_direct.cu": ("mma.cuh",),
    "tensor_filter.cu": ("mma.cuh", "spread.cuh", "sloped.cuh"),
    "tensor_first.cu": ("mma.cuh", "ahead.cuh"),
    "first_conv.cu": ("ahead.cuh",),
    "sgd.cu": ("slices.cuh", "sgd.cuh"),
    "step_end.cu": (
        *("mma.cuh", "slices.cuh", "sgd.cuh", "tail_gradients.cuh"),
        *("gather.cuh", "next_batch.cuh", "weights.cuh"),
    ),
    "warpgroup_conv.cu": ("mma.cuh", "wgmma.cuh", "spread_chunks.cuh", "rows_ahead.cuh"),
    "warpgroup_filter.cu": ("mma.cuh", "wgmma.cuh", "spread.cuh"),
}
# What a file has in front that only code for its own kind of GPU can hold: -arch=sm_90a.
OF_ONE_KIND = "wgmma.cuh"
# Where files lie: for operations of any kind, and beside the patterns that they are for.
FOLDERS = ("sources", "fused")

i32, u32, i64, f32 = np.int32, np.uint32, np.int64, np.float32
Grid = tuple[int, ...]
Defines = tuple[tuple[str, int], ...]


@cache
def _module(file: str, dtype: str, defines: Defines, formula: Formula | None) -> Module:
    switches = (("BFLOAT", int(dtype == BFLOAT)), *defines)
    options = ("-std=c++17", *(f"-D{name}={value}" for name, value in switches))
    own = OF_ONE_KIND in FURTHER.get(file, ())
    return Module(file, source_of(file, formula), options, own)


def source_of(file: str, formula: Formula | None = None) -> str:
    """A file's source behind what every file begins with, and a formula's functions between."""
    parts = [_text(name) for name in (*HEADERS, *FURTHER.get(file, ()), file)]
    if formula is not None:
        parts[-1:-1] = [*map(_constant, formula.constants().items()), dedent(formula.cuda)]
    return "".join(parts)


@cache
def _text(name: str) -> str:
    backend = resources.files(__package__.rpartition(".")[0])
    found = (backend / folder / name for folder in FOLDERS)
    text = next(path for path in found if path.is_file()).read_text("utf-8")
    return text + "".join(map(_products, range(1, 33))) if name == OF_ONE_KIND else text


def _products(octets: int) -> str:
    """A call of PRODUCTS of wgmma.cuh: the operands of so many octets of sums, and those behind."""
    count = 4 * octets
    names = ",".join(f"%{i}" for i in range(count))
    behind = [str(i) for i in range(count, count + 7)]
    sums = [f'"+f"(d[{i}])' for i in range(count)]
    return f'PRODUCTS({octets}, {8 * octets}, "{names}", {", ".join([*behind, *sums])})\n'


def _constant(option: tuple[str, bool | int | float]) -> str:
    name, value = option
    if isinstance(value, bool | int):
        return f"constexpr {type(value).__name__} {name} = {int(value)};\n"
    return f"constexpr float {name} = {float(f32(value)).hex()}f;\n"


class Kernel:
    """One kernel of a file; dtype: that of activations; defines: its fixed geometry.

    formula: that of the kernels of a file that calls one's functions.
    """

    def __init__(
        self,
        file: str,
        name: str,
        dtype: str = FLOAT,
        *,
        defines: Defines = (),
        formula: Formula | None = None,
    ) -> None:
        self._module, self._name = _module(file, dtype, defines, formula), name

    def begin(self) -> Future[bytes] | None:
        """Let it be compiled beside other work; None if it needs no compiler."""
        return self._module.begin()

    def ready(self) -> None:
        """Compile it unless it has been. Raises LibraryError if that is not possible."""
        self._function(0)

    def _function(self, shared: int) -> Any:
        """The function, which may be launched with so many bytes of shared memory, besides those
        of its own: these count where a launch needs more than UNASKED."""
        return self._module.function(self._name, shared)

    def launch(
        self, stream: Any, grid: Grid, block: Grid, arguments: Sequence[Any], shared: int = 0
    ) -> Callable[[], None]:
        """A function that launches on the stream with these arguments, and may compile first.

        Arguments are device arrays, integers that are device pointers (0 for none), or NumPy
        scalars of the kernel's types; shared: bytes.
        """

        @cache
        def made() -> Callable[[], None]:
            found: Callable[[], None] = self._function(shared).launch(
                stream, grid, block, arguments, shared
            )
            return found

        return lambda: made()()

    def overlapping(
        self, stream: Any, grid: Grid, block: Grid, arguments: Sequence[Any], shared: int = 0
    ) -> Callable[[], None]:
        """The same, beginning before the kernel in front has ended; see overlap.py."""

        @cache
        def made() -> Callable[[], None]:
            handle = int(self._function(shared).ptr)
            return overlapping(handle, stream, grid, block, arguments, shared)

        return lambda: made()()


def linear_grid(size: int) -> Grid:
    """Blocks of THREADS, with about one thread for each of ``size`` elements."""
    return (blocks_for(size, THREADS, MAX_BLOCKS),)


def blocks_for(work: int, each: int, most: int) -> int:
    """How many blocks do some work, ``each`` so much of it: 1 to ``most``."""
    return max(1, min(most, ceil_div(work, each)))

"""Convolutions for the kernels on tensor cores: any geometry and tiling, and what is right."""

from __future__ import annotations

import ctypes
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from dnnstack.backends.base import Options
from dnnstack.backends.cuda.fused.conv_tilings import Tiling, tilings
from dnnstack.backends.cuda.fused.filter_tilings import FilterTiling, filter_tilings
from dnnstack.backends.cuda.fused.tensor_conv import ALONE
from dnnstack.backends.cuda.fused.tilings import Geometry
from dnnstack.backends.cuda.fused.warpgroup_tilings import (
    WarpgroupFilterTiling,
    WarpgroupTiling,
    warpgroup_filter_tilings,
    warpgroup_tilings,
)
from dnnstack.backends.cuda.libraries.layout import BFLOAT, FLOAT, Layout
from dnnstack.backends.cuda.libraries.runtime import H200, cuda_api
from dnnstack.backends.reference.backend import ReferenceBackend
from dnnstack.graph.geometry import Window
from dnnstack.graph.graph import Tensor

from . import emulated_build
from .op_draft import Draft

# So many tilings of a geometry are drawn from.
FURTHER = 60
AnyOfThem = Tiling | FilterTiling | WarpgroupTiling | WarpgroupFilterTiling


@dataclass(frozen=True)
class Drawn:
    """kind: "forward", "data" or "filter"; n pictures."""

    kind: str
    n: int
    tiling: AnyOfThem

    @property
    def geometry(self) -> Geometry:
        return self.tiling.geometry

    @property
    def warpgroups(self) -> bool:
        return isinstance(self.tiling, WarpgroupTiling | WarpgroupFilterTiling)

    @property
    def bf16(self) -> bool:
        return self.geometry.dtype == BFLOAT

    def __str__(self) -> str:
        g = self.geometry
        number = "bf16" if self.bf16 else "tf32"
        numbers = "-".join(map(str, self.tiling.numbers.values()))
        return f"{self.kind} {number} {self.n} x {g.x} to {g.y}, {g.window}, {numbers}"


def draw(
    seed: int | str,
    kind: str,
    pooled: bool = False,
    warpgroups: bool = False,
    strided: bool = False,
) -> Drawn:
    """A geometry with anything odd, and one of its tilings.

    pooled: one that a max-pool of 2 by 2 may follow in the same kernel. warpgroups: for the kernel
    that has its products done by these. strided: of which stride 2 takes a half.
    """
    dice = random.Random(f"{seed} {kind}")
    while True:
        kernel = (dice.choice([1, 2, 3, 4, 5]), dice.choice([1, 2, 3, 5]))
        height, width = (dice.randint(size, 13) for size in kernel)
        edges = (dice.randint(0, size - 1) for size in (kernel[0], *kernel, kernel[1]))
        window = Window(kernel, padding=tuple(edges))
        inner = 3 if kind == "filter" and dice.random() < 0.3 else 8 * dice.randint(1, 4)
        x = (inner, height, width)
        y = (8 * dice.randint(1, 5), *window.output(height, width))
        if strided and (y[1] % 2 or y[2] % 2):
            continue
        data, dtype = kind == "data", dice.choice([BFLOAT, FLOAT])
        geometry = Geometry(*((y, x) if data else (x, y)), window, data, dtype)
        n = dice.randint(1, 9)
        find = filter_tilings if kind == "filter" else tilings
        if warpgroups:
            # So many rows that places of those before are used again.
            find = warpgroup_filter_tilings if kind == "filter" else warpgroup_tilings
            n *= 3
        found = [each for each in find(geometry, n, FURTHER, H200) if not pooled or pools(each)]
        if found:
            return Drawn(kind, n, dice.choice(found))


def pools(tiling: AnyOfThem) -> bool:
    """Whether there are windows of 2 by 2, which lie within what a warp computes of forward."""
    g = tiling.geometry
    if isinstance(tiling, Tiling) and not g.data and not tiling.pools:
        return False
    return min(g.x[1:] if g.data else g.y[1:]) > 1


def numbers(rng: np.random.Generator, shape: tuple[int, ...], bf16: bool) -> np.ndarray:
    """Normal numbers; bf16: that bfloat16 holds."""
    values = rng.standard_normal(shape).astype(np.float32)
    if bf16:
        values.view(np.uint32)[...] &= 0xFFFF0000
    return values


def convolved(x: np.ndarray, w: np.ndarray, window: Window) -> np.ndarray:
    """y in float64, all channels-last: x (N, H, W, C), w (K, kh, kw, C)."""
    top, bottom, left, right = window.padding
    wide = np.pad(x.astype(np.float64), ((0, 0), (top, bottom), (left, right), (0, 0)))
    height, width = window.kernel
    rows, columns = window.output(*x.shape[1:3])
    y = np.zeros((len(x), rows, columns, len(w)))
    for i in range(height):
        for j in range(width):
            y += wide[:, i : i + rows, j : j + columns] @ w[:, i, j].T.astype(np.float64)
    return y


def turned(window: Window) -> Window:
    """That of the gradient of pictures, as a convolution of dy."""
    top, bottom, left, right = window.padding
    height, width = window.kernel
    edges = (height - 1 - top, height - 1 - bottom, width - 1 - left, width - 1 - right)
    return replace(window, padding=edges)


class Emulated:
    """A kernel for one tiling, on the processor."""

    def __init__(self, drawn: Drawn, folder: Path, **defines: int) -> None:
        self.drawn = drawn
        family = "warpgroup" if drawn.warpgroups else "tensor"
        self.file = f"{family}_{'filter' if drawn.kind == 'filter' else 'conv'}"
        values = drawn.geometry.numbers() | drawn.tiling.numbers | defines
        values = ALONE | {"BIAS": 1} | values
        values = {"SUMS": 0} | values
        values["BFLOAT"] = int(drawn.bf16)
        self._pooled = values["POOLED"]
        self._library = emulated_build.library(self.file, folder, values)

    def sizes(self) -> tuple[int, int, int]:
        """Bytes of shared memory, threads, units."""
        found = [ctypes.c_int() for _ in range(3)]
        self._library.sizes(*map(ctypes.byref, found))
        bytes_, threads, units = (each.value for each in found)
        return bytes_, threads, units

    def stored(self, values: np.ndarray) -> np.ndarray:
        layout = Layout((values.size,), (values.size,), dtype=self.drawn.geometry.dtype)
        return layout.pack(values.ravel())

    def values(self, stored: np.ndarray) -> np.ndarray:
        return Layout((stored.size,), (stored.size,), dtype=self.drawn.geometry.dtype).unpack(
            stored
        )

    def _give(self, *arrays: np.ndarray | None) -> None:
        """Tell the kernel's copies what they may read."""
        for array in arrays:
            if array is not None:
                self._library.give(_pointer(array), ctypes.c_longlong(array.nbytes))

    def grid(self, most: int) -> tuple[int, ...]:
        """Few blocks, so that some have several groups where they may."""
        first, *others = self.drawn.tiling.grid(self.drawn.n, H200)
        once = isinstance(self.drawn.tiling, Tiling) and self.drawn.tiling.once
        if isinstance(self.drawn.tiling, WarpgroupTiling):
            most = 1
        return (first if once else min(first, most), *others)

    def convolve(
        self,
        x: np.ndarray,
        w: np.ndarray,
        bias: np.ndarray | None = None,
        places: np.ndarray | None = None,
        mask: np.ndarray | None = None,
    ) -> np.ndarray:
        """y (n, rows, columns, K), NaN where nothing is written; with POOL half as large, and
        ``places`` takes those of the maxima.

        With FROM_POOL x is the gradient of maxima, ``places`` and ``mask`` theirs, or, with STRIDED
        as well, that of every second pixel. With SUMS ``slices`` has (blocks, 2, K) then.
        """
        g, n = self.drawn.geometry, self.drawn.n
        behind = places is not None and not g.data
        shape = (n, *g.y[1:], g.y[0])
        if behind:
            shape = (n, g.y[1] // 2, g.y[2] // 2, self._pooled)
        out = self.stored(np.full(shape, np.nan, np.float32))
        held = [None if array is None else self.stored(array) for array in (x, mask, w)]
        self._give(*held)
        source, masked, filters = map(_pointer, held)
        before, after = (None, _pointer(places)) if behind else (_pointer(places), None)
        grid = (ctypes.c_int * 2)(*self.grid(3))
        given = (source, before, masked, filters, _pointer(bias), _pointer(out), after)
        if not self.drawn.warpgroups:
            self.slices = np.full((grid[0], 2, g.y[0]), np.nan)
            given = (*given, _pointer(self.slices))
        self._library.run(*given, n, ctypes.c_float(0.3), grid)
        return self.values(out).reshape(shape)

    def gradients(
        self,
        x: np.ndarray,
        dy: np.ndarray,
        places: np.ndarray | None = None,
        mask: np.ndarray | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """dw (K, kh, kw, C) and db (K,): the sums of the slices.

        With SLOPE dy is the gradient of an activation's output, and ``mask`` what its slope is
        taken of.
        """
        g = self.drawn.geometry
        shape = (g.y[0], *g.window.kernel, g.x[0])
        size = int(np.prod(shape))
        grid = self.grid(3)
        slices = np.full((grid[0], size + g.y[0]), np.nan, np.float32)
        held = [None if array is None else self.stored(array) for array in (x, dy, mask)]
        self._give(*held)
        source, gradient, masked = map(_pointer, held)
        self._library.run(
            *(source, gradient, _pointer(places), masked, _pointer(slices)),
            ctypes.c_longlong(slices.shape[1]),
            self.drawn.n,
            *(() if self.drawn.warpgroups else (ctypes.c_float(0.3),)),
            (ctypes.c_int * 3)(*grid),
        )
        total = slices.astype(np.float64).sum(0)
        return total[:size].reshape(shape), total[size:]


def _pointer(array: np.ndarray | None) -> ctypes.c_void_p | None:
    return None if array is None else ctypes.c_void_p(array.ctypes.data)


def pooled(y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The maxima of windows of 2 by 2, and their places: y (n, rows, columns, K)."""
    rows, columns = (size // 2 * 2 for size in y.shape[1:3])
    windows = np.stack([y[:, i:rows:2, j:columns:2] for i in (0, 1) for j in (0, 1)])
    return windows.max(0), windows.argmax(0).astype(np.uint8)


def spread(dp: np.ndarray, places: np.ndarray, size: tuple[int, ...] | None = None) -> np.ndarray:
    """The gradient of maxima as that of what they are of; ``size``: rows and columns of it, where
    windows leave the last."""
    n, rows, columns, k = dp.shape
    found = np.zeros((n, *(size or (2 * rows, 2 * columns)), k), dp.dtype)
    for place in range(4):
        one = found[:, place // 2 : 2 * rows : 2, place % 2 : 2 * columns : 2]
        one[...] = np.where(places == place, dp, 0)
    return found


def computed(
    backend: Any, draft: Draft, found: Sequence[Tensor], options: Options
) -> tuple[list[np.ndarray], list[str], list[str]]:
    """What a run leaves behind another whose results are overwritten."""
    executable = backend.compile({"one": draft.graph}, options)
    for tensor, value in draft.values.items():
        executable.write(tensor, value)
    for _ in range(2):
        if backend.name == "cuda":
            for tensor in found:
                executable._buffer(tensor).array.fill(0x7F)
            # The filling is on another stream than the run.
            cuda_api().runtime.deviceSynchronize()
        executable.run("one")
    values = [executable.read(tensor) for tensor in found]
    functions = [call.function for call in executable.calls("one")]
    notices = list(executable.notices)
    executable.close()
    return values, functions, notices


def close_to_the_reference(
    backend: Any,
    draft: Draft,
    found: Sequence[Tensor],
    options: Options,
    limit: float,
    gradients: float | None = None,
) -> list[str]:
    """Compare norms of errors with a limit, perhaps another one for gradients, and two runs bit by
    bit; gives the functions that are called."""
    got, functions, notices = computed(backend, draft, found, options)
    assert not notices
    want, _, _ = computed(ReferenceBackend(1), draft, found, Options("fp64"))
    again, _, _ = computed(backend, draft, found, options)
    for tensor, mine, right, second in zip(found, got, want, again, strict=True):
        near = limit if gradients is None or tensor.role != "gradient" else gradients
        assert np.linalg.norm(mine - right) <= near * np.linalg.norm(right), tensor.name
        np.testing.assert_array_equal(mine, second)
    return functions


def right_in_every_way(candidates: Any) -> int:
    """Each is timed, and right on operands whose result is known, as a search finds out."""
    for index in range(candidates.plans()):
        assert candidates.build(index)
        assert 0.0 < candidates.seconds(index, 0, 1) < float("inf")
        assert candidates.verified(index, 0)
    return int(candidates.plans())

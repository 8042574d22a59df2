"""Pooling where windows lie apart: its kernels, run on the processor (needs g++, no GPU), and where
they are taken."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from types import SimpleNamespace

import numpy as np
import pytest
from dnnstack.backends.cuda.binding.bind import Arithmetic
from dnnstack.backends.cuda.libraries.layout import BFLOAT, FLOAT, Layout
from dnnstack.backends.cuda.operations.pool import _apart
from dnnstack.graph.geometry import Window
from dnnstack.graph.graph import Tensor
from dnnstack.graph.ops import Pool2d

from ....support.emulated_build import COMPILER
from ....support.emulated_kernels import library, loaded, pointer, stored
from ....support.tensor_convs import numbers

emulated = pytest.mark.skipif(COMPILER is None, reason="g++ is not there")


@dataclass(frozen=True)
class Drawn:
    """n pictures of so many channels, of which ``columns`` are stored."""

    n: int
    channels: int
    columns: int
    size: tuple[int, int]
    window: Window
    dtype: str = FLOAT
    nhwc: bool = True

    @property
    def large(self) -> Layout:
        stored = (self.n, self.columns, *self.size)
        return Layout((self.n, self.channels, *self.size), stored, self.nhwc, dtype=self.dtype)

    @property
    def small(self) -> Layout:
        ends = self.window.output(*self.size)
        stored = (self.n, self.columns, *ends)
        return Layout((self.n, self.channels, *ends), stored, self.nhwc, dtype=self.dtype)

    def defines(self, kind: str = "avg", fusion: bool = True) -> dict[str, int] | None:
        x, y = (Tensor("x", one.shape, FLOAT, "activation") for one in (self.large, self.small))
        op = Pool2d(x=x, y=y, window=self.window, kind=kind)
        binder = SimpleNamespace(arithmetic=Arithmetic.of("bf16", fusion, True))
        found = _apart(binder, op, self.large, self.small)
        return None if found is None else dict(found)

    def numbers(self, rng, layout: Layout) -> np.ndarray:
        """(N, H, W, C), zeros where channels only pad."""
        n, _, height, width = layout.shape
        bf16 = self.dtype == BFLOAT
        values = numbers(rng, (n, height, width, self.channels), bf16)
        edges = ((0, 0), (0, 0), (0, 0), (0, self.columns - self.channels))
        return np.pad(values, edges)

    def taps(self, x: np.ndarray) -> np.ndarray:
        """Those of each window, in front."""
        (down, across), (rows, columns) = self.window.stride, self.small.shape[2:]
        return np.array(
            [
                x[
                    :,
                    h : h + down * (rows - 1) + 1 : down,
                    w : w + across * (columns - 1) + 1 : across,
                ]
                for h in range(self.window.kernel[0])
                for w in range(self.window.kernel[1])
            ]
        )


# The shortcut of a residual network, a global average, and anything odd: gaps between windows,
# pixels beyond the last, one window of any stride, channels in fours but not in eights.
CASES = {
    "picked": Drawn(3, 16, 16, (8, 6), Window((1, 1), (2, 2)), BFLOAT),
    "picked_rest": Drawn(2, 16, 16, (7, 10), Window((1, 1), (3, 2)), BFLOAT),
    "picked_float": Drawn(2, 3, 4, (5, 5), Window((1, 1), (2, 3))),
    "copied": Drawn(2, 8, 8, (3, 4), Window((1, 1), (1, 1)), BFLOAT),
    "2x2": Drawn(3, 20, 20, (9, 8), Window((2, 2), (2, 2)), BFLOAT),
    "2x2_eights": Drawn(3, 20, 24, (8, 9), Window((2, 2), (2, 2)), BFLOAT),
    "gaps": Drawn(2, 12, 12, (11, 9), Window((2, 3), (4, 4))),
    "row": Drawn(2, 33, 40, (4, 7), Window((1, 4), (2, 5)), BFLOAT),
    "3x3": Drawn(2, 8, 8, (9, 8), Window((3, 3), (4, 3)), BFLOAT),
    "4x4": Drawn(2, 8, 8, (9, 8), Window((4, 4), (4, 4))),
    "5x5": Drawn(3, 30, 32, (11, 13), Window((5, 5), (5, 6)), BFLOAT),
    "7x7_rest": Drawn(3, 20, 20, (9, 8), Window((7, 7), (7, 7))),
    "global": Drawn(5, 64, 64, (8, 8), Window((8, 8), (8, 8)), BFLOAT),
    "global_float": Drawn(5, 64, 64, (8, 8), Window((8, 8), (8, 8))),
    "global_stride": Drawn(3, 8, 8, (5, 5), Window((5, 4), (1, 2))),
    "global_large": Drawn(2, 16, 16, (28, 27), Window((28, 27), (28, 27))),
    "global_large_eights": Drawn(2, 16, 16, (28, 27), Window((28, 27), (28, 27)), BFLOAT),
}
PIXEL = {dtype: Drawn(1, 8, 8, (2, 3), Window((1, 1), (1, 1)), dtype) for dtype in (FLOAT, BFLOAT)}


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """Gives the kernels for a geometry, and how many channels a thread has of it."""

    @cache
    def kernels(dtype):
        """One compilation for all geometries, of which each is a namespace."""
        folder, lines, fixed = tmp_path_factory.mktemp("pool"), [], {}
        for drawn in (*CASES.values(), *PIXEL.values()):
            if drawn.dtype == dtype and drawn not in fixed:
                number, fixed[drawn] = len(fixed), drawn.defines()
                lines += [f"#define {key} {value}" for key, value in fixed[drawn].items()]
                lines += [f"namespace geometry_{number} {{", '#include "groups.cuh"']
                lines += ['#include "disjoint_pool.cu"', "}", f"LAUNCHERS({number})"]
                lines += [f"#undef {key}" for key in fixed[drawn]]
        (folder / "geometries.hpp").write_text("\n".join(lines), "utf-8")
        found = library("disjoint_pool", folder, {"BFLOAT": int(dtype == BFLOAT)})
        ways = [
            SimpleNamespace(forward=found[f"forward_{at}"], backward=found[f"backward_{at}"])
            for at in range(len(fixed))
        ]
        return {
            drawn: (way, defines["EACH"])
            for way, (drawn, defines) in zip(ways, fixed.items(), strict=True)
        }

    return lambda drawn: kernels(drawn.dtype)[drawn]


@emulated
@pytest.mark.parametrize("name", CASES)
def test_forward(compiled, name):
    """As near as rounding lets it, also where all are near a large mean; the same in any batch."""
    drawn, rng = CASES[name], np.random.default_rng(len(name))
    kernels, each = compiled(drawn)
    bf16 = drawn.dtype == BFLOAT
    x = drawn.numbers(rng, drawn.large) + np.float32(4.0) * (np.arange(drawn.columns) < 2)
    x = loaded(stored(x, bf16), bf16, x.shape)
    taps = drawn.taps(x)
    shape = taps.shape[1:]
    got = {}
    for n, blocks in ((drawn.n, 1), (drawn.n, 3), (1, 2)):
        y = stored(np.full((n, *shape[1:]), np.nan), bf16)
        source = stored(x[:n], bf16)
        kernels.forward(pointer(source), pointer(y), y.size // each, blocks)
        got[n, blocks] = loaded(y, bf16, (n, *shape[1:]))
    whole = got[drawn.n, 1]
    want = taps.astype(np.float64).mean(0)
    # Where terms have both signs, the error is that of the terms.
    error = 2.0**-8 if bf16 else 2.0**-22
    near = error * np.abs(want) + 2.0**-22 * np.abs(taps).max(0)
    assert (np.abs(whole - want) <= near).all()
    np.testing.assert_array_equal(got[drawn.n, 3], whole)
    np.testing.assert_array_equal(got[1, 2], whole[:1])
    assert not whole[..., drawn.channels :].any()


@emulated
@pytest.mark.parametrize("name", [name for name, c in CASES.items() if c.window.area <= 9])
def test_small_windows_are_added_up_in_order(compiled, name):
    """Bit for bit as pool.cu does, row by row."""
    drawn, rng = CASES[name], np.random.default_rng(len(name))
    kernels, each = compiled(drawn)
    bf16 = drawn.dtype == BFLOAT
    x = drawn.numbers(rng, drawn.large)
    taps = drawn.taps(x)
    total = np.zeros(taps.shape[1:], np.float32)
    for tap in taps:
        total += tap
    source, y = stored(x, bf16), stored(np.full(total.shape, np.nan), bf16)
    kernels.forward(pointer(source), pointer(y), y.size // each, 2)
    np.testing.assert_array_equal(y, stored(total / np.float32(len(taps)), bf16))


@emulated
@pytest.mark.parametrize("dtype", [FLOAT, BFLOAT])
def test_a_window_of_one_pixel_is_that_pixel(compiled, dtype):
    """Whatever it holds: then the maximum is the average."""
    kernels, each = compiled(PIXEL[dtype])
    values = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0], np.float32)
    x = stored(np.repeat(values, 8), dtype == BFLOAT)
    y = np.ones_like(x)
    kernels.forward(pointer(x), pointer(y), y.size // each, 1)
    np.testing.assert_array_equal(y.view(np.uint8), x.view(np.uint8))


@emulated
@pytest.mark.parametrize("name", CASES)
def test_backward_writes_every_pixel(compiled, name):
    drawn, rng = CASES[name], np.random.default_rng(len(name))
    kernels, each = compiled(drawn)
    bf16 = drawn.dtype == BFLOAT
    dy = drawn.numbers(rng, drawn.small)
    want = np.zeros((drawn.n, *drawn.size, drawn.columns), np.float32)
    for at in np.ndindex(*drawn.small.shape[2:]):
        top, left = (np.array(at) * drawn.window.stride).tolist()
        bottom, right = top + drawn.window.kernel[0], left + drawn.window.kernel[1]
        share = dy[:, at[0], at[1]] / np.float32(drawn.window.area)
        want[:, top:bottom, left:right] = share[:, None, None]
    source, dx = stored(dy, bf16), stored(np.full(want.shape, np.nan), bf16)
    kernels.backward(pointer(source), pointer(dx), dx.size // each, 3)
    np.testing.assert_array_equal(dx, stored(want, bf16))


ONE = Drawn(2, 16, 16, (9, 8), Window((2, 2), (3, 2)))


@pytest.mark.parametrize(
    ("drawn", "kind", "fusion", "served"),
    [
        (ONE, "avg", True, True),
        (ONE, "avg", False, False),
        (ONE, "max", True, False),
        (CASES["picked"], "max", True, True),
        (Drawn(2, 16, 16, (9, 8), Window((2, 2), (2, 2)), nhwc=False), "avg", True, False),
        (Drawn(2, 6, 6, (9, 8), Window((2, 2), (2, 2))), "avg", True, False),
        (Drawn(2, 6, 8, (9, 8), Window((2, 2), (2, 2))), "avg", True, True),
        (Drawn(2, 16, 16, (9, 8), Window((3, 2), (2, 2))), "avg", True, False),
        (Drawn(2, 16, 16, (9, 8), Window((2, 3), (2, 2))), "avg", True, False),
        # One window in one direction alone.
        (Drawn(2, 16, 16, (9, 3), Window((2, 3), (2, 1))), "avg", True, True),
        (Drawn(2, 16, 16, (9, 8), Window((2, 2), (2, 2), (0, 1, 0, 0))), "avg", True, False),
        (Drawn(1 << 20, 64, 64, (8, 8), Window((8, 8), (8, 8))), "avg", True, True),
        (Drawn((1 << 20) + 1, 64, 64, (8, 8), Window((8, 8), (8, 8))), "avg", True, False),
    ],
)
def test_where_they_serve(drawn, kind, fusion, served):
    assert (drawn.defines(kind, fusion) is not None) is served


@pytest.mark.parametrize(
    ("area", "threads"), [(1, 1), (9, 1), (10, 8), (16, 8), (17, 16), (33, 32), (784, 32)]
)
def test_threads_of_a_window(area, threads):
    drawn = Drawn(2, 16, 16, (1, area), Window((1, area), (1, area)))
    assert drawn.defines()["SPLIT"] == threads

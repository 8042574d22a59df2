"""The ways to cut the loops of our kernels are those that are stored, in their order."""

from __future__ import annotations

from itertools import product

from dnnstack.backends.cuda.fused import first_conv
from dnnstack.backends.cuda.fused.conv_tilings import tilings
from dnnstack.backends.cuda.fused.dense_tilings import DenseGeometry, dense_tilings, update_tilings
from dnnstack.backends.cuda.fused.filter_tilings import filter_tilings, most_slices
from dnnstack.backends.cuda.fused.tilings import Geometry
from dnnstack.backends.cuda.fused.warpgroup_tilings import (
    warpgroup_filter_tilings,
    warpgroup_tilings,
)
from dnnstack.backends.cuda.libraries.layout import BFLOAT, FLOAT
from dnnstack.backends.cuda.libraries.runtime import H200
from dnnstack.graph.geometry import Window

from ...support.first_convs import Drawn
from ...support.goldens import compare

SAME = (1, 1, 1, 1)
WINDOWS = (
    ((24, 12, 12), (56, 8, 8), Window((5, 5))),
    ((32, 32, 32), (64, 32, 32), Window((3, 3), padding=SAME)),
    ((8, 31, 31), (24, 31, 31), Window((3, 3), padding=SAME)),
    ((64, 16, 16), (64, 14, 18), Window((3, 1), padding=(0, 0, 1, 1))),
    ((128, 7, 7), (128, 7, 7), Window((3, 3), padding=SAME)),
    ((16, 10, 20), (16, 9, 19), Window((2, 2))),
)
DENSE = (
    (500, 800, 64, (500, 800, 800), False, False, 800),
    (64, 500, 784, (784, 784, 500), True, True, 500),
    (64, 784, 500, (500, 784, 784), True, False, 784),
    (10, 84, 33, (12, 84, 84), False, False, 84),
    (16, 32, 64, (64, 64, 32), True, True, 32),
    (32, 64, 96, (32, 64, 64), False, False, 64),
    (64, 96, 16, (64, 96, 96), False, False, 96),
    (1024, 512, 256, (256, 512, 512), True, False, 500),
)
MOST = 40


def listed(found, *given):
    """Every way, the best first: its numbers, and what a launch takes from it."""
    for each in found:
        shown = " ".join(f"{key}={value}" for key, value in each.numbers.items())
        registers = getattr(each, "registers", None)
        yield f"{shown}: {each.threads} {each.shared} {registers} {each.grid(*given)}"


def test_convolutions():
    def every():
        for (x, y, window), n, dtype in product(WINDOWS, (1, 64), (FLOAT, BFLOAT)):
            for data in (False, True):
                seen = Geometry(*((y, x) if data else (x, y)), window, data, dtype)
                for find in (tilings, *((warpgroup_tilings,) if dtype == BFLOAT else ())):
                    yield f"# {find.__name__} of {seen}, {n} pictures"
                    yield from listed(find(seen, n, MOST, H200), n, H200)
            ways = (filter_tilings, *((warpgroup_filter_tilings,) if dtype == BFLOAT else ()))
            seen = Geometry(x, y, window, False, dtype)
            for find in ways:
                yield f"# {find.__name__} of {seen}, {n} pictures, {most_slices(seen, H200)}"
                yield from listed(find(seen, n, MOST, H200), n, H200)

    compare("cuda/tilings of convolutions", every())


def test_products():
    def every():
        for given, dtype, result in product(DENSE, (FLOAT, BFLOAT), (FLOAT, BFLOAT)):
            seen = DenseGeometry(*given, dtype, result)
            yield f"# {seen}, fits {seen.fits}"
            if seen.fits:
                for find in (dense_tilings, update_tilings):
                    yield f"# {find.__name__}"
                    yield from listed(find(seen, MOST, H200))

    compare("cuda/tilings of products", every())


def test_first_convolutions():
    """What their kernels are compiled with, and the shared memory of small pictures and large."""

    def every():
        for drawn in (Drawn(seed, n) for seed, n in product(range(24), (0, 64, 1024))):
            given = drawn.conv, drawn.pool, drawn.stored
            large = drawn.values | {"HEIGHT": 99, "WIDTH": 98}
            taken = [first_conv._tensor_bytes(values) for values in (drawn.values, large)]
            yield f"{first_conv._numbers(*given)} {drawn.values} {taken}"

    compare("cuda/sizes of first convolutions", every())

"""Bands of rows on GPUs: what the binding has moved and sent, by NumPy and by ranks in threads."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace

import numpy as np
import pytest
from dnnstack.backends import bands as numpy_bands
from dnnstack.backends.cuda.libraries.kernels import source_of
from dnnstack.backends.cuda.operations import bands, collectives
from dnnstack.backends.cuda.operations.collectives import FILE
from dnnstack.graph.graph import Tensor
from dnnstack.graph.ops import GatherBands, HaloExchange, HaloExchangeBackward, TakeBand

from ....support.cuda_shim import COMPILER, compiled
from ....support.threads import Threads

HEIGHT, N, C, WIDTH = 11, 2, 3, 4
BEFORE = """
#define SHORT_LINEAR(type, i, n) LINEAR(i, n)
static float __fadd_rn(float a, float b) { return a + b; }
static double __dadd_rn(double a, double b) { return a + b; }
"""
LAUNCHERS = """
void fill(float* to, int count, float value) {
    launch(2, 4, [=] { fill_floats(to, count, value); });
}
void move(const float* from, float* to, int planes, int rows, int width, int from_rows,
          int from_first, int to_rows, int to_first, int add) {
    launch(2, 4, [=] {
        move_rows(from, to, planes, rows, width, from_rows, from_first, to_rows, to_first, add);
    });
}
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """The kernels of collectives.cu, by the host's compiler; None without one."""
    if COMPILER is None:
        return None
    source = BEFORE + source_of(FILE).partition("// What ranks do together")[2].partition("\n")[2]
    return compiled(source, LAUNCHERS, tmp_path_factory.mktemp("bands"))


class Flat(np.ndarray):
    """Numbers on a device whose address is the array itself."""

    @property
    def pointer(self):
        return self


class Launches:
    """A binder whose launches are done at once, in NumPy; the library's kernels do the same."""

    stream = SimpleNamespace(cuda=SimpleNamespace(ptr=0))

    def __init__(self, given, library):
        self.given, self.library = given, library

    def floats(self, tensor):
        return self.given.reshape(-1).view(Flat)

    def output(self, tensor):
        self.written = np.full(tensor.shape, np.nan, np.float32)
        return self.written.reshape(-1).view(Flat)

    def scratch(self, size, dtype):
        return np.full(size, np.nan, dtype).view(Flat)

    def add(self, op, library, function, launch, details):
        launch()

    def kernel(self, op, name, count, arguments):
        target = arguments[0] if name[1] == "fill_floats" else arguments[1]
        again = target.copy()
        self.moved(name, count, arguments)
        if self.library is not None:
            self.launched([again if each is target else each for each in arguments])
            np.testing.assert_array_equal(again, target)

    def launched(self, arguments):
        given = [
            each.ctypes.data_as(ctypes.c_void_p)
            if isinstance(each, np.ndarray)
            else ctypes.c_float(each)
            if isinstance(each, np.float32)
            else each
            for each in arguments
        ]
        (self.library.fill if len(given) == 3 else self.library.move)(*given)

    def moved(self, name, count, arguments):
        if name[1] == "fill_floats":
            to, size, value = arguments
            assert size == count == to.size
            to[:] = value
            return
        assert name[1] == "move_rows"
        source, to, planes, rows, width, from_rows, from_first, to_rows, to_first, add = arguments
        assert count == planes * rows * width
        taken = source[: planes * from_rows * width].reshape(planes, from_rows, width)
        place = to[: planes * to_rows * width].reshape(planes, to_rows, width)
        taken = taken[:, from_first : from_first + rows]
        place = place[:, to_first : to_first + rows]
        assert taken.shape == place.shape == (planes, rows, width)
        place[...] = place + taken if add else taken


def operations(ranks):
    """Each operation, what it reads, and how NumPy computes it."""
    each = -(-HEIGHT // ranks)
    whole, band, window = (
        Tensor(f"rows{n}", (N, C, n, WIDTH), role="input") for n in (HEIGHT, each, 2 * each + 3)
    )
    y, dx, every = (Tensor(f"{t.name}.y", t.shape) for t in (window, band, whole))
    at = {"ranks": ranks, "step": each, "before": 2}
    exchange = HaloExchange(x=band, y=y, height=HEIGHT, fill=-5.0, **at)
    back = HaloExchangeBackward(dy=window, dx=dx, height=HEIGHT, **at)
    room = np.empty((ranks, *band.shape), np.float32)
    return {
        "halo": (bands.halo_exchange, exchange, numpy_bands.exchange),
        "back": (bands.halo_exchange_backward, back, numpy_bands.exchange_back),
        "take": (bands.take_band, TakeBand(x=whole, y=y, fill=-5.0, **at), numpy_bands.take),
        "gather": (
            bands.gather_bands,
            GatherBands(x=band, y=every, ranks=ranks),
            lambda op, x, y: numpy_bands.gather(op, x, room.copy(), y),
        ),
    }


@pytest.mark.parametrize("ranks", [2, 3, 5])
@pytest.mark.parametrize("name", ["halo", "back", "take", "gather"])
def test_rows_go_where_numpy_has_them(name, ranks, library, monkeypatch):
    threads = Threads(ranks)
    bind, op, compute = operations(ranks)[name]

    def trade(sent, counts, received, sizes, stream):
        threads.trade(sent[: sum(counts)], counts, received[: sum(sizes)], sizes)

    def gather(b, op, mine, rows, x):
        rows.reshape(ranks, -1)[threads.rank] = mine
        threads.gather(rows.reshape(ranks, -1))

    monkeypatch.setattr(collectives, "connection", lambda ranks: SimpleNamespace(trade=trade))
    monkeypatch.setattr(bands, "address_of", lambda array: array)
    monkeypatch.setattr(bands, "gather_from", gather)

    def one(rank):
        x = np.random.default_rng(rank).standard_normal(op.reads()[0].shape).astype(np.float32)
        want = np.empty(op.writes()[0].shape, np.float32)
        compute(op, x, want)
        launches = Launches(x, library)
        bind(launches, op)
        return launches.written, want

    for got, want in threads.run(one):
        np.testing.assert_array_equal(got, want)

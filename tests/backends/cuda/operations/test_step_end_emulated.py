"""The update and what it takes along, run on the processor: a classifier's last gradients, weights
of a dense layer, the next batch, slices. Needs g++, no GPU."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace

import numpy as np
import pytest
from dnnstack.backends.cuda.binding.slices import SEGMENT, Slices, places_of, table_of
from dnnstack.backends.cuda.binding.store import TILE
from dnnstack.backends.cuda.operations.sgd import LINES, RULE, SPAN
from dnnstack.graph.graph import Tensor

from ....support.emulated_build import COMPILER
from ....support.emulated_kernels import library, loaded, stored
from ....support.tensor_convs import numbers
from ....support.weight_updates import aligned

pytestmark = pytest.mark.skipif(COMPILER is None, reason="g++ is not there")
POINTERS = (
    *("p", "g", "v", "copy", "rules", "segments", "where", "rates", "step", "come_count", "pre"),
    *("b1", "dscores", "dpre", "row_sums", "dw2", "db1", "db2", "of", "loss", "metrics", "images"),
    *("labels", "order", "x", "target", "scale", "shift", "next"),
    *("left", "right", "of_weights", "loaded"),
)
NUMBERS = (
    *("nesterov", "fours", "gap", "gaps", "sums", "rows", "mean", "tails", "n", "parts"),
    *("place", "across", "products", "awaited", "gathers"),
)
RATE, MOMENTUM, NOW = np.float32(0.3), 0.9, 2
CLASSES, HIDDEN, STRIDE, N = 7, 30, 32, 11
# Of a dense layer that reads pictures; blocks of its product, two of which lie side by side.
UNITS, PIXELS, PITCH = 60, 72, 64
PRODUCT = {"ROWS": UNITS, "COLUMNS": PIXELS, "COUNTED": PIXELS, "DEPTH": N, "A_PITCH": PITCH}
PRODUCT |= {"B_PITCH": PIXELS, "C_PITCH": PIXELS, "DOWN": 1, "ACROSS": 2, "SPLIT": 4, "STAGES": 1}
ACROSS, PRODUCTS, BLOCK, WEIGHTS = 2, 4, 1024, 4


class Given(ctypes.Structure):
    """As in step_end.cpp."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in POINTERS),
        ("momentum", ctypes.c_float),
        *((name, ctypes.c_int) for name in NUMBERS),
    )


@pytest.fixture(
    scope="module",
    params=[(0, 0, 0), (1, 0, 0), (1, 1, 0), (0, 0, 1), (1, 1, 1)],
    ids=["plain", "tail", "bf16", "weights", "all"],
)
def kernel(request, tmp_path_factory):
    tail, bf16, product = request.param
    values = {"TAIL": tail, "PRODUCT": product, "SAMPLES": 4, "BFLOAT": bf16}
    values |= PRODUCT if product else {}
    if tail:
        values |= {"CLASSES": CLASSES, "HIDDEN": HIDDEN, "STRIDE": STRIDE, "KIND": 0}
        values |= {"SPAN": SPAN, "LINES": LINES, "TAIL_ROWS": 2}
    built = library("step_end", tmp_path_factory.mktemp("end"), values)
    kinds = {"tail": bool(tail), "bf16": bool(bf16), "product": bool(product)}
    return SimpleNamespace(run=built.run, **kinds)


class Arena:
    """Parameters side by side: w2, b1, b2 of a classifier's end, one of slices, the
    weights of a dense layer, one of neither."""

    SIZES = (CLASSES * STRIDE, STRIDE, CLASSES, 50, UNITS * PIXELS, 64)

    def __init__(self, tail, product, draw):
        self.starts, end = [], 0
        for size in self.SIZES:
            self.starts.append(end)
            end += -(-size // TILE) * TILE
        self.p, self.v, self.g = (draw.standard_normal(end).astype(np.float32) for _ in range(3))
        self.factors = [1.0, 0.5, 0.0, 1.25, 2.0, 0.75]
        self.decays = [0.01, 0.0, 0.1, 0.02, 0.03, 0.04]
        self.rules = np.zeros((end // TILE, 2), np.float32)
        own = [*([] if tail else [0, 1, 2]), *([] if product else [WEIGHTS]), 5]
        for i in own:
            tiles = slice(self.starts[i] // TILE, -(-(self.starts[i] + self.SIZES[i]) // TILE))
            self.rules[tiles] = (self.factors[i], self.decays[i])
        self.rows = draw.standard_normal((33, 52)).astype(np.float32)
        tensor = Tensor("sum", (50,), "float32", "gradient")
        held = SimpleNamespace(pointer=self.part(self.g, 3).ctypes.data)
        pending = [Slices(None, 0, tensor, held, self.rows.ctypes.data, 33, 52, 50)]
        followed = {tensor: (self.starts[3], self.factors[3], self.decays[3])}
        self.segments, self.where = table_of(pending, followed), places_of(pending)
        self.of_tail = np.array(
            [(self.starts[i], self.factors[i], self.decays[i]) for i in range(3)], RULE
        )

    def part(self, array, i):
        return array[self.starts[i] : self.starts[i] + self.SIZES[i]]


@pytest.mark.parametrize("gathers", [True, False], ids=["next", "last"])
@pytest.mark.parametrize("channels", [1, 3])
def test_everything_of_a_step_s_end_is_done(kernel, channels, gathers):
    draw = np.random.default_rng(channels)
    arena = Arena(kernel.tail, kernel.product, draw)
    assert arena.segments.dtype == np.dtype(SEGMENT)
    p, v, g = (array.copy() for array in (arena.p, arena.v, arena.g))
    pre, dscores = numbers(draw, (N, STRIDE), False), numbers(draw, (N, CLASSES), False)
    pre[:, HIDDEN:] = 0
    dpre = numbers(draw, (N, STRIDE), kernel.bf16)
    dpre[:, HIDDEN:] = 0
    b1 = arena.part(p, 1).copy()
    # (loss, whether it is right, or -1 for none) of every row.
    row_sums = np.stack([draw.random(N), draw.integers(-1, 2, N)], 1).astype(np.float32)
    wide = PIXELS // channels // 6
    images = draw.integers(0, 256, (20, channels, 6, wide), dtype=np.uint8)
    labels = draw.integers(0, 9, 20).astype(np.int32)
    order = draw.integers(-1, 20, (4, N)).astype(np.int32)
    order[3, 5] = -1
    scale, shift = (draw.standard_normal(channels).astype(np.float32) for _ in range(2))
    # The next batch takes the place of what the product reads; few bits, which nothing rounds off.
    before, slopes = numbers(draw, (N, PIXELS), True), numbers(draw, (N, PITCH), True)
    x, target = aligned(stored(before, kernel.bf16)), np.full(N, -7, np.int32)
    # Channels last where there are several.
    each = 6 * wide
    place = np.array([channels, each, 4, PIXELS, 1 if channels > 1 else each, channels], np.int32)
    rule = np.array((arena.factors[WEIGHTS], arena.decays[WEIGHTS]), np.float32)
    done, products = np.zeros(1, np.uint32), PRODUCTS * kernel.product
    first = arena.starts[WEIGHTS]
    gap = -(-first // BLOCK)
    gaps = ((first + arena.SIZES[WEIGHTS]) // BLOCK - gap) * kernel.product
    assert gaps > kernel.product or not kernel.product
    rates = np.zeros(5, np.float32)
    rates[NOW] = RATE
    step, count = np.array([NOW], np.int64), np.zeros(1, np.uint32)
    loss, metrics = np.zeros(1, np.float32), np.ones(3)
    copy, parts = np.zeros(p.size, np.uint16), 2 if channels > 1 else 1
    keep = {
        "p": arena.p,
        "g": arena.g,
        "v": arena.v,
        "copy": copy,
        "rules": arena.rules,
        "segments": arena.segments,
        "where": arena.where,
        "rates": rates,
        "step": step,
        "come_count": count,
        "pre": pre,
        "dscores": dscores,
        "row_sums": row_sums,
        "dpre": stored(dpre, kernel.bf16),
        "b1": arena.part(arena.p, 1),
        "dw2": arena.part(arena.g, 0),
        "db1": arena.part(arena.g, 1),
        "db2": arena.part(arena.g, 2),
        "of": arena.of_tail,
        "loss": loss,
        "metrics": metrics,
        "images": images,
        "labels": labels,
        "order": order,
        "x": x,
        "target": target,
        "scale": scale,
        "shift": shift,
        "next": place,
        "left": aligned(stored(slopes, kernel.bf16)),
        "right": x,
        "of_weights": rule,
        "loaded": done,
    }
    given = Given(
        *(keep[name].ctypes.data for name in POINTERS),
        *(MOMENTUM, 1, p.size // 4, gap, gaps, len(arena.where), N, 1),
        *(-(-STRIDE // SPAN) + 2 if kernel.tail else 0, N, parts, first, ACROSS, products),
        *(products, -(-N // 4) * parts * gathers),
    )
    kernel.run(ctypes.byref(given))

    wanted = g.copy()
    arena.part(wanted, 3)[:] = arena.rows[:, :50].astype(np.float64).sum(0)
    if kernel.tail:
        h = np.maximum(pre.astype(np.float64) + b1, 0.0)
        h[:, HIDDEN:] = 0
        arena.part(wanted, 0)[:] = (dscores.astype(np.float64).T @ h).ravel()
        arena.part(wanted, 1)[:] = dpre.astype(np.float64).sum(0)
        arena.part(wanted, 2)[:] = dscores.astype(np.float64).sum(0)
        valid, right = row_sums[:, 1] >= 0, row_sums[:, 1] > 0
        total = row_sums[:, 0].astype(np.float64).sum()
        np.testing.assert_allclose(loss[0], total / valid.sum(), rtol=1e-6)
        np.testing.assert_allclose(
            metrics, [1 + loss[0] * valid.sum(), 1 + right.sum(), 1 + valid.sum()], rtol=1e-6
        )
    moving = wanted.copy()
    if kernel.product:
        arena.part(moving, WEIGHTS)[:] = (slopes.astype(np.float64).T @ before)[:UNITS].ravel()
    want_p, want_v, want_copy = p.copy(), v.copy(), np.zeros(p.size, np.float32)
    for i, (factor, decay) in enumerate(zip(arena.factors, arena.decays, strict=True)):
        if factor == 0.0:
            continue
        own, old = (arena.part(array, i) for array in (want_p, p))
        gradient = decay * old + arena.part(moving, i)
        velocity = MOMENTUM * arena.part(v, i) + gradient
        arena.part(want_v, i)[:] = velocity
        own[:] = old - RATE * factor * (gradient + MOMENTUM * velocity)
        arena.part(want_copy, i)[:] = own
    near = {"rtol": 2e-5, "atol": 2e-5}
    for i in range(len(arena.SIZES)):
        for got, want in ((arena.g, wanted), (arena.p, want_p), (arena.v, want_v)):
            np.testing.assert_allclose(arena.part(got, i), arena.part(want, i), **near)
        moved = arena.part(loaded(copy, True, (p.size,)), i)
        np.testing.assert_allclose(moved, arena.part(want_copy, i), rtol=2**-7, atol=1e-4)
    assert (step[0], count[0], done[0]) == (NOW + 1, 0, 0)

    rows = order[NOW + 1]
    pictures = images[rows].astype(np.float32) * scale[:, None, None] + shift[:, None, None]
    pictures[rows < 0] = 0.0
    seen = loaded(x, kernel.bf16, (N, 6, wide, channels) if channels > 1 else (N, 1, 6, wide))
    if gathers:
        pictures = pictures.transpose(0, 2, 3, 1) if channels > 1 else pictures
        tolerance = 2**-8 if kernel.bf16 else 1e-6
        np.testing.assert_allclose(seen, pictures, rtol=tolerance, atol=1e-3)
        np.testing.assert_array_equal(target, np.where(rows < 0, -1, labels[rows]))
    else:
        np.testing.assert_array_equal(seen.reshape(N, PIXELS), before)
        assert (target == -7).all()

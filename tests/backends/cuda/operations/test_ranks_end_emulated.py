"""The end of a step of ranks, run on the processor by processes that share memory. Needs g++."""

from __future__ import annotations

import ctypes
from functools import partial

import numpy as np
import pytest
from dnnstack.backends.collectives import added_in_pairs
from dnnstack.backends.cuda.binding.store import TILE

from ....support.emulated_build import COMPILER
from ....support.emulated_kernels import library, loaded, stored
from ....support.forked_ranks import told

pytestmark = pytest.mark.skipif(COMPILER is None, reason="g++ is not there")
POINTERS = (
    *("from", "to", "memory", "part", "kept", "sums", "counted", "summed", "p", "g", "v", "copy"),
    *("rules", "rates", "step", "come_count", "images", "labels", "order", "x", "target", "scale"),
    *("shift", "next"),
)
NUMBERS = (
    *("fours", "split", "gap", "rank", "parts", "uncounted", "place", "all", "nesterov", "n"),
    *("each", "every", "first", "gathers"),
)
RANKS, BLOCKS, CALLS = (2, 3), 3, 4
MOMENTUM, FACTOR, N, SAMPLES = np.float32(0.9), np.float32(1 / 3), 11, 4
# Tiles: of an early sum, of the late one's two places with others between them, and behind.
EARLY, FIRST, BETWEEN, SECOND, BEHIND = 5, 40, 3, 2, 1
TILES = EARLY + FIRST + BETWEEN + SECOND + BEHIND


class Given(ctypes.Structure):
    """As in ranks_end.cpp."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in POINTERS),
        ("factor", ctypes.c_float),
        ("momentum", ctypes.c_float),
        *((name, ctypes.c_int) for name in NUMBERS),
    )


@pytest.fixture(
    scope="module",
    params=[(ranks, bf16, lines) for ranks in RANKS for bf16, lines in ((0, 0), (0, 1), (1, 1))],
)
def kernel(request, tmp_path_factory):
    ranks, bf16, lines = request.param
    values = {"RANKS": ranks, "BLOCKS": BLOCKS, "WORKERS": BLOCKS, "SAMPLES": SAMPLES}
    values |= {"SIZE": 1 << 16, "LINES": lines}
    built = library("ranks_end", tmp_path_factory.mktemp("end"), values | {"BFLOAT": bf16})
    built.bytes.restype = ctypes.c_longlong
    return built, ranks, bool(bf16)


def drawn(*key):
    return np.random.default_rng(key)


def gradients(rank, call):
    """What a rank has computed, the same tiles of all."""
    return drawn(rank, call, 1).standard_normal(TILES * TILE).astype(np.float32)


def masks():
    """Which tiles are summed now, and which were before."""
    now = np.zeros(TILES, bool)
    now[EARLY : EARLY + FIRST] = True
    now[EARLY + FIRST + BETWEEN : TILES - BEHIND] = True
    before = ~now
    before[TILES - BEHIND :] = False
    return now, before


def tables():
    """(factor of the rate, decay) of the tiles that are summed now, and of those before."""
    drawing = drawn(5)
    rules = np.stack([drawing.uniform(0.5, 2, TILES), drawing.uniform(0, 0.1, TILES)], 1)
    rules = rules.astype(np.float32)
    # One of each is frozen.
    rules[EARLY + 1] = rules[1] = 0
    now, before = masks()
    return rules * now[:, None], rules * before[:, None]


def pictures():
    drawing = drawn(6)
    images = drawing.integers(0, 256, (20, 1, 6, 4), dtype=np.uint8)
    order = drawing.integers(-1, 20, ((CALLS + 1) * max(RANKS), N)).astype(np.int32)
    return images, drawing.integers(0, 9, 20).astype(np.int32), order


def work(built, ranks, bf16, rank, memory, said):
    """What a rank does: CALLS steps, of which all but the last gather the next part."""
    addresses = (ctypes.c_void_p * ranks)(*memory)
    p, v = (drawn(7, i).standard_normal(TILES * TILE).astype(np.float32) for i in range(2))
    copy, before = np.zeros(p.size, np.uint16), masks()[1]
    summed, rules = tables()
    images, labels, order = pictures()
    totals, kept, part = np.zeros(3), np.zeros((ranks, 3)), np.zeros(3)
    step, counted, come = np.zeros(1, np.int64), np.full(1, rank, np.int64), np.zeros(1, np.uint32)
    rates = (0.1 + 0.1 * np.arange(CALLS)).astype(np.float32)
    scale, shift = np.full(1, 0.5, np.float32), np.full(1, -3, np.float32)
    place = np.array([1, 24, len(order), 24, 24, 1], np.int32)
    for call in range(CALLS):
        own, g = gradients(rank, call), np.full(p.size, np.nan, np.float32)
        g.reshape(-1, TILE)[before] = gradients(9, call).reshape(-1, TILE)[before]
        part[:] = drawn(rank, call, 2).standard_normal(3)
        x, target = stored(np.full(N * 24, np.nan), bf16), np.full(N, -7, np.int32)
        first = EARLY * TILE
        arrays = (own[first:], g[first:], None, part, kept, totals, counted, summed, p, g, v, copy)
        arrays += (rules, rates, step, come, images, labels, order, x, target, scale, shift, place)
        given = Given(
            *(None if array is None else array.ctypes.data for array in arrays),
            *(FACTOR, MOMENTUM),
            *((FIRST + SECOND) * TILE // 4, FIRST * TILE // 4, BETWEEN * TILE // 4),
            *(rank, ranks, ranks, first // 4, p.size // 4, 1, N, 1, ranks, rank),
            -(-N // SAMPLES) * (call < CALLS - 1),
        )
        given.memory = ctypes.cast(addresses, ctypes.c_void_p)
        built.run(17 * rank + call, ctypes.byref(given))
        assert not part.any()
        assert come[0] == 0
        seen = loaded(x, bf16, (N, 24))
        said.put((rank, call, *(a.copy() for a in (p, v, g, copy, seen, target, totals))))
    said.put((rank, CALLS, int(step[0]), int(counted[0])))


@pytest.mark.timeout(120)
def test_ranks_sum_follow_and_gather(kernel):
    built, ranks, bf16 = kernel
    every = told(ranks, built.bytes(), CALLS + 1, partial(work, built, ranks, bf16))
    now, before = masks()
    rules = np.repeat(sum(tables()), TILE, axis=0)
    images, labels, order = pictures()
    p, v = (drawn(7, i).standard_normal(TILES * TILE).astype(np.float32) for i in range(2))
    totals = np.zeros(3)
    for call in range(CALLS):
        rows = np.stack([gradients(rank, call) for rank in range(ranks)]) * FACTOR
        g = np.full((TILES, TILE), np.nan, np.float32)
        g[now] = added_in_pairs(rows).reshape(-1, TILE)[now]
        g[before] = gradients(9, call).reshape(-1, TILE)[before]
        g = g.ravel()
        moves = rules[:, 0] > 0
        gradient = np.where(moves, g + rules[:, 1] * p, 0)
        v = np.where(moves, MOMENTUM * v + gradient, v).astype(np.float32)
        rate = np.float32(0.1 + 0.1 * call) * rules[:, 0]
        p = (p - rate * np.where(moves, gradient + MOMENTUM * v, 0)).astype(np.float32)
        for rank in range(ranks):
            totals = totals + drawn(rank, call, 2).standard_normal(3)
        found = [one for one in every if one[1] == call]
        assert len(found) == ranks
        first = found[0][2:6]
        for rank, _, own_p, own_v, own_g, copy, seen, target, sums in found:
            assert all(
                one.tobytes() == other.tobytes()
                for one, other in zip(first, (own_p, own_v, own_g, copy), strict=True)
            )
            np.testing.assert_array_equal(own_g, g)
            np.testing.assert_allclose(own_p, p, rtol=1e-5, atol=1e-5)
            np.testing.assert_allclose(own_v, v, rtol=1e-5, atol=1e-5)
            copied = loaded(copy, True, (p.size,))
            np.testing.assert_allclose(copied, np.where(moves, own_p, 0), rtol=2**-7)
            assert sums.tobytes() == totals.tobytes()
            if call == CALLS - 1:
                assert np.isnan(seen).all()
                assert (target == -7).all()
                continue
            chosen = order[(call + 1) * ranks + rank]
            wanted = images[chosen].reshape(N, 24) * 0.5 - 3.0
            wanted[chosen < 0] = 0
            np.testing.assert_allclose(seen, wanted, rtol=2**-8 if bf16 else 1e-6)
            np.testing.assert_array_equal(target, np.where(chosen < 0, -1, labels[chosen]))
        # The next call goes on from the bits that the ranks have.
        p, v = first[0], first[1]
    ends = {one[0]: one[2:] for one in every if one[1] == CALLS}
    assert ends == {rank: (CALLS, rank + CALLS * ranks) for rank in range(ranks)}

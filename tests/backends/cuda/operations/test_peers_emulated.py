"""Sums in each other's memory, run on the processor by processes that share memory. Needs g++."""

from __future__ import annotations

import ctypes
from functools import partial

import numpy as np
import pytest
from dnnstack.backends.collectives import added_in_pairs
from dnnstack.backends.cuda.libraries import peers
from dnnstack.backends.cuda.operations.peers import THREADS

from ....support import emulated_kernels
from ....support.emulated_build import COMPILER
from ....support.emulated_kernels import pointer as at
from ....support.forked_ranks import told

pytestmark = pytest.mark.skipif(COMPILER is None, reason="g++ is not there")
CALLS = 5
FEW_THREADS = 64
SCALE = 1 / 3


# With all blocks for the sum, or some beside it.
WORKERS = {2: peers.BLOCKS, 3: peers.BESIDE_BLOCKS, 4: peers.BLOCKS, 8: peers.BESIDE_BLOCKS}


@pytest.fixture(scope="module", params=WORKERS)
def ranks(request):
    return request.param


def compiled(ranks, blocks, folder, workers=None):
    values = {"RANKS": ranks, "BLOCKS": blocks, "WORKERS": workers or blocks, "BFLOAT": 0}
    found = emulated_kernels.library("peers", folder, values | {"SIZE": peers.LEAST})
    found.bytes.restype = ctypes.c_longlong
    return found


@pytest.fixture(scope="module")
def library(ranks, tmp_path_factory):
    return compiled(ranks, peers.BLOCKS, tmp_path_factory.mktemp("peers"), WORKERS[ranks])


def test_both_sides_lay_memory_out_alike(library, ranks):
    found = (ctypes.c_longlong * 3)()
    library.numbers(found)
    wanted = [peers.TAIL, peers.room(ranks, peers.LEAST), peers.AREAS]
    assert list(found) == wanted
    assert library.bytes() == peers.memory_bytes(ranks, peers.LEAST)


def values_of(rank, call, count):
    rng = np.random.default_rng([rank, call])
    return (rng.standard_normal(count) * 10.0 ** rng.integers(-3, 4, count)).astype(np.float32)


def metrics_of(rank, call, parts):
    return np.random.default_rng([rank, call, 9]).standard_normal((parts, 3))


def work(library, ranks, given, rank, memory, said):
    """What a rank does: sums of different numbers, with metrics in every other call if any, and in
    two places, between which nothing changes."""
    count, parts, threads, calls = given
    addresses = (ctypes.c_void_p * ranks)(*memory)
    step, totals = np.zeros(1, np.int64), np.zeros(3)
    for call in range(calls):
        some = count if call != 2 else 64
        split, gap = (some, 0) if call < 3 else (some // 8 * 4, 12)
        meant = np.r_[0:split, split + gap : some + gap]
        own = np.full(some + gap, np.nan, np.float32)
        own[meant] = values_of(rank, call, some)
        # Every other call in place, as a sum of sums.
        values = own if call % 2 else np.full(some + gap, np.nan, np.float32)
        kept, part = np.zeros((ranks * parts, 3)), np.zeros(3)
        mine = metrics_of(rank, call, parts)
        tail: list[object] = [None, None, None, 0, None, 0]
        if parts and call % 2:
            if parts == 1:
                part[:] = mine[0]
            else:
                kept[rank * parts : (rank + 1) * parts] = mine
            tail = [at(part) if parts == 1 else None, at(kept), at(totals), ranks * parts]
            tail += [at(step), 7]
        given = (at(values), some // 4, split // 4, gap // 4, addresses, rank, call == 3)
        scale = ctypes.c_float(1 if call % 2 else SCALE)
        library.run(17 * rank + call, threads, at(own), scale, *given, *tail)
        assert not part.any()
        assert np.isnan(values[split : split + gap]).all()
        said.put((rank, call, values[meant].tobytes(), totals.tobytes(), int(step[0])))


def check(library, ranks, count, parts, threads, calls):
    nbytes, given = peers.memory_bytes(ranks, peers.LEAST), (count, parts, threads, calls)
    every = told(ranks, nbytes, calls, partial(work, library, ranks, given))
    totals, steps = np.zeros(3), 0
    for call in range(calls):
        some = count if call != 2 else 64
        rows = np.stack([values_of(rank, call, some) for rank in range(ranks)])
        wanted = added_in_pairs(rows if call % 2 else rows * np.float32(SCALE))
        if parts and call % 2:
            steps += 7
            for rank in range(ranks):
                for row in metrics_of(rank, call, parts):
                    totals = totals + row
        found = [one for one in every if one[1] == call]
        assert len(found) == ranks
        for rank, _, values, sums, step in found:
            assert values == wanted.tobytes(), (rank, call)
            assert (sums, step) == (totals.tobytes(), steps)


@pytest.mark.parametrize(
    ("count", "parts", "threads"),
    [(128, 1, FEW_THREADS), (70_000, 2, FEW_THREADS), (2048, 1, THREADS)],
)
def test_all_ranks_have_the_sum_in_pairs_and_the_metrics(library, ranks, count, parts, threads):
    check(library, ranks, count, parts, threads, CALLS)


def test_a_fast_rank_writes_nothing_that_a_slow_one_still_reads(ranks, tmp_path):
    """With one block a rank may be in its next call while another is in the same block of this."""
    check(compiled(ranks, 1, tmp_path), ranks, 4 * FEW_THREADS, 0, FEW_THREADS, 40)

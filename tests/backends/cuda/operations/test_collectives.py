"""What ranks do together on GPUs, on the stand-in for a device and for NCCL."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import numpy as np
import pytest
from dnnstack.backends import collectives
from dnnstack.backends.collectives import added_in_pairs
from dnnstack.backends.cuda.backend import CudaBackend
from dnnstack.backends.cuda.libraries import nccl
from dnnstack.backends.cuda.memory_plan import FURTHEST, plan_memory
from dnnstack.common.errors import BackendUnavailableError, LibraryError
from dnnstack.graph.rewrites import rewritten
from dnnstack.optimizers.sgd import Sgd
from dnnstack.training.preprocessing import Preprocessing
from dnnstack.training.sections import Composition

from ....support import composed

MARK = bytes(range(100, 228))


class Others:
    """The connection of rank 1, to whom rank 0 gives the mark of NCCL."""

    rank = 1
    on_one_machine = False

    def __init__(self, size):
        self.size = size
        self.spreads = 0

    def spread(self, array):
        self.spreads += 1
        assert (array.dtype, array.nbytes) == (np.uint8, len(MARK))
        array[:] = np.frombuffer(MARK, np.uint8)


class FakeError(RuntimeError):
    """As CuPy's NcclError."""


class FakeComm:
    """Remembers what it was asked for; takes the mark as CuPy 14 does: bytes and nothing else."""

    refused = ""

    def __init__(self, size, mark, rank):
        assert type(mark) is bytes
        self.size, self.mark, self.rank, self.asked = size, mark, rank, []
        FakeComm.last = self

    def __getattr__(self, name):
        def asked(*arguments):
            if name == FakeComm.refused:
                raise FakeError("NCCL_ERROR_INVALID_USAGE: invalid usage")
            self.asked.append((name, *arguments))

        return asked


@pytest.fixture
def library(monkeypatch):
    """The names of ``cupy.cuda.nccl`` in CuPy 14, which ``import cupy`` does not bring."""
    found = SimpleNamespace(
        available=True,
        NCCL_FLOAT32=7,
        NCCL_INT8=0,
        NCCL_SUM=0,
        NcclError=FakeError,
        NcclCommunicator=FakeComm,
        get_unique_id=lambda: MARK,
        groupStart=lambda: FakeComm.last.asked.append(("start",)),
        groupEnd=lambda: FakeComm.last.asked.append(("end",)),
    )
    monkeypatch.setitem(sys.modules, "cupy.cuda.nccl", found)
    monkeypatch.setattr(FakeComm, "refused", "")
    return found


@pytest.fixture(params=[2, 3, 4])
def ranks(request, fake_cuda, library):
    others = Others(request.param)
    collectives.join(others)
    yield others
    collectives.join(None)


@pytest.fixture
def step(sections):
    """Makes the sections of a step of a network with batch norm, whose parts ranks share out."""

    def make(parts, ranks, split=False, buckets=1, net="deep", decay=0.0, clip=None, groups=()):
        channels = 1 if net == "lenet" else 3
        scaling = Preprocessing.standardize([0.5] * channels, [0.2] * channels)
        network = sections.network(net)
        for layer in network.every_layer():
            if split and layer.kind in ("conv2d", "dense") and layer.name != "dense_1":
                layer.parallel = "filters" if layer.kind == "conv2d" else "units"
        sgd = Sgd(momentum=0.9, weight_decay=decay, weight_decay_on="weights")
        added = {"averages": ("ema",), "parts": parts, "ranks": ranks, "buckets": buckets}
        rule = Composition(sgd, groups, clip, **added)
        found = composed.graphs(network, 12, "data", 48, 4, 8, scaling, rule)
        return {g.name: rewritten(g, CudaBackend.rewrites) for g in found}

    return make


@pytest.mark.parametrize("split", [False, True])
def test_what_ranks_do_is_counted_and_nccl_connected_once(bound, step, ranks, split):
    graphs = step(12, ranks.size, split)
    executable, taken = bound(graphs, "tf32", FURTHEST)
    plan = plan_memory(graphs, "tf32", choices=FURTHEST)
    assert plan.total - plan.libraries == taken
    assert ranks.spreads == 0
    executable.run("train")
    assert ranks.spreads == split
    executable.run("update")
    executable.run("update")
    assert ranks.spreads == 1
    executable.close()


def test_the_library_may_choose_the_order_where_the_config_lets_it(bound, step, ranks):
    executable, _ = bound(step(12, ranks.size), "tf32", FURTHEST, deterministic=False)
    executable.run("update")
    names = [name for name, *_ in FakeComm.last.asked]
    assert names == ["allGather", "allGather", "allReduce"]
    executable.close()


@pytest.mark.parametrize("rank", [0, 1])
def test_all_ranks_have_the_mark_of_the_first(ranks, rank):
    told = []

    def spread(array):
        told.append(array.tobytes())
        array[:] = np.frombuffer(MARK, np.uint8)

    ranks.rank, ranks.spread = rank, spread
    nccl.connection(ranks.size)
    assert told == [MARK if rank == 0 else bytes(len(MARK))]
    made = FakeComm.last
    assert (made.size, made.mark, made.rank) == (ranks.size, MARK, rank)


def test_each_rank_is_sent_its_own_number_of_values(ranks):
    counts, sizes = [5, 0, 7, 2][: ranks.size], [3, 0, 0, 4][: ranks.size]
    nccl.connection(ranks.size).trade(1000, counts, 2000, sizes, 9)
    found = [("send", 1000, 5, 7, 0, 9), ("recv", 2000, 3, 7, 0, 9)]
    found += [("send", 1020, 7, 7, 2, 9)] * (ranks.size > 2)
    found += [("send", 1048, 2, 7, 3, 9), ("recv", 2012, 4, 7, 3, 9)] * (ranks.size > 3)
    assert FakeComm.last.asked == [("start",), *found, ("end",)]


def test_a_call_that_nccl_refuses_is_named(bound, step, ranks, monkeypatch):
    executable, _ = bound(step(12, ranks.size), "tf32", FURTHEST)
    monkeypatch.setattr(FakeComm, "refused", "allGather")
    with pytest.raises(LibraryError, match=r"ncclAllGather\(.*rank=1.*INVALID_USAGE: invalid"):
        executable.run("update")
    executable.close()


def test_without_nccl_the_message_says_what_to_install(ranks, library):
    library.available = False
    with pytest.raises(
        BackendUnavailableError, match=r"install it with python3 -m pip install .*nccl13"
    ):
        nccl.connection(ranks.size)


def test_a_process_that_is_no_rank_is_told(fake_cuda):
    collectives.join(None)
    with pytest.raises(BackendUnavailableError, match="this process is not one of 2 ranks"):
        nccl.connection(2)


def test_rows_are_added_in_pairs():
    rows = np.array([[1.0], [2.0], [1e8], [-1e8], [0.5]], np.float32)
    # One after the other, 3 would be lost beside 1e8.
    assert added_in_pairs(rows.copy()).tolist() == [3.5]
    assert float(np.add.accumulate(rows, dtype=np.float32)[-1, 0]) == 0.5

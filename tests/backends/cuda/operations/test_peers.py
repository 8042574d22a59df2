"""When ranks add up in each other's memory, on the stand-in for a device and for NCCL."""

from __future__ import annotations

import numpy as np
import pytest
from dnnstack.backends.cuda import executable
from dnnstack.backends.cuda.binding.small_sums import SWITCH
from dnnstack.backends.cuda.libraries import peers as memory
from dnnstack.backends.cuda.memory_plan import FURTHEST, plan_memory
from dnnstack.graph.ops import KeepMetrics, SgdUpdate
from dnnstack.optimizers.groups import Group

from .test_collectives import FakeComm, library, ranks, step

__all__ = ["library", "ranks", "step"]
SUMS = ("add_over_ranks", "ranks_end")
WORDS = [*SUMS, "ncclAllGather", "add_metrics", "skip_parts", "sgd_update"]


class Runtime:
    """The calls of CUDA's runtime by which processes share memory; ``asked``: what they got."""

    def __init__(self, error):
        self.error = error
        self.asked = []
        self.refused = ""

    def __getattr__(self, name):
        def called(*arguments):
            self.asked.append((name, *arguments))
            if name == self.refused:
                raise self.error("cudaErrorMapBufferObjectFailed")
            given = {"malloc": 5 << 40, "ipcGetMemHandle": b"\7" * memory.HANDLE_BYTES}
            opened = len([word for word, *_ in self.asked if word == "ipcOpenMemHandle"])
            return opened << 41 if name == "ipcOpenMemHandle" else given.get(name)

        return called


@pytest.fixture
def near(ranks, fake_cuda, monkeypatch):
    """Ranks of one machine, of which the others answer what this one says."""
    monkeypatch.delenv(SWITCH, raising=False)
    runtime = Runtime(fake_cuda.runtime.CUDARuntimeError)
    runtime.CUDARuntimeError = runtime.error
    fake_cuda.runtime.__dict__.update(
        {name: getattr(runtime, name) for name in ("malloc", "free", "memset", "deviceSynchronize")}
    )
    for name in ("ipcGetMemHandle", "ipcOpenMemHandle", "ipcCloseMemHandle"):
        setattr(fake_cuda.runtime, name, getattr(runtime, name))

    def gather(rows):
        ranks.gathered.append(rows[ranks.rank].copy())
        rows[:] = rows[ranks.rank]
        if ranks.others is not None and rows.shape[1] == 1:
            rows[0] = ranks.others

    def free(address):
        ranks.gathered_before_free = len(ranks.gathered)
        return runtime.free(address)

    fake_cuda.runtime.free = free
    ranks.gather, ranks.gathered, ranks.others = gather, [], None
    ranks.gathered_before_free = None
    ranks.on_one_machine, ranks.runtime = True, runtime
    memory._found.clear()
    yield ranks
    memory._found.clear()


def launched(monkeypatch):
    """The names of the kernels that are launched from now on, with their arguments."""
    found = []
    from dnnstack.backends.cuda.libraries import kernels

    launch = kernels.Kernel.launch

    def noted(kernel, stream, grid, block, arguments, shared=0):
        run = launch(kernel, stream, grid, block, arguments, shared)

        def told():
            found.append((kernel._name, grid, arguments))
            run()

        return told

    monkeypatch.setattr(kernels.Kernel, "launch", noted)
    return found


def functions(executable, section="update"):
    return [call.function for call in executable.calls(section)]


def test_a_small_sum_and_the_metrics_are_one_launch(bound, step, near, monkeypatch):
    """By memory that all ranks share out once, before the first launch."""
    found = launched(monkeypatch)
    graphs = step(near.size, near.size)
    executable, taken = bound(graphs, "tf32", FURTHEST)
    plan = plan_memory(graphs, "tf32", choices=FURTHEST)
    assert plan.total - plan.libraries == taken
    assert near.gathered == []
    executable.run("update")
    executable.run("update")
    words = [word for word, *_ in near.runtime.asked]
    assert words.count("malloc") == 1
    assert words.count("ipcOpenMemHandle") == near.size - 1
    assert len(near.gathered) == 2
    (first, second) = [each for each in found if each[0] == "ranks_end"]
    assert first == second
    opened = [(i + 1) << 41 for i in range(near.size - 1)]
    assert np.asarray(first[2][6]).tolist() == [opened[0], 5 << 40, *opened[1:]]
    assert not any(name == "allReduce" for name, *_ in FakeComm.last.asked)


@pytest.mark.parametrize("refused", ["malloc", "ipcGetMemHandle", "ipcOpenMemHandle", "another"])
def test_ranks_that_cannot_reach_it_take_nccl(bound, step, near, monkeypatch, refused):
    """All of them, also if this one could: what was opened is closed, and the calls are named."""
    found = launched(monkeypatch)
    near.runtime.refused = refused
    near.others = 0 if refused == "another" else None
    executable, _ = bound(step(near.size, near.size), "tf32", FURTHEST)
    executable.run("train")
    executable.run("update")
    asked = [name for name, *_ in FakeComm.last.asked]
    # The metrics, the statistics, and the sum.
    assert asked.count("allGather") == (2 if near.size == 2 else 3)
    assert ("allReduce" in asked) == (near.size == 2)
    launches = [name for name, *_ in found]
    assert not {*SUMS} & {*launches}
    order = ["scale_floats", "keep_metrics", "advance", "add_metrics", "skip_parts"]
    assert [name for name in launches if name in order][: len(order)] == order
    assert "sgd_update" in launches
    (call,) = (c for c in executable.calls("update") if isinstance(c.op, SgdUpdate))
    assert call.library == "NCCL"
    assert call.function.startswith("scale_floats, keep_metrics, advance, ncclAllGather, ")
    assert call.function.endswith(", sgd_update")
    words = [word for word, *_ in near.runtime.asked]
    opened = words.count("ipcOpenMemHandle") if refused == "another" else 0
    assert words.count("ipcCloseMemHandle") == opened
    assert words.count("free") == (refused != "malloc")
    # Nobody frees what another may still have open.
    assert len(near.gathered) == 3
    assert near.gathered_before_free in (None, 3)


def test_a_rank_on_another_machine_is_no_peer(near, monkeypatch):
    plain = near.gather

    def gather(rows):
        plain(rows)
        rows[0, :1] ^= 1

    near.gather = gather
    assert memory.peers(near.size, memory.LEAST) is None
    assert not any(word == "ipcOpenMemHandle" for word, *_ in near.runtime.asked)


def test_who_asks_for_it_gets_nccl(bound, step, near, monkeypatch):
    monkeypatch.setenv(SWITCH, "0")
    executable, _ = bound(step(near.size, near.size), "tf32", FURTHEST)
    assert not {*SUMS} & {*functions(executable)}
    assert {"accumulate", "keep_metrics", "advance"} <= {*functions(executable, "train")}


def test_a_large_sum_is_left_to_nccl(bound, step, near, monkeypatch):
    monkeypatch.setattr(memory, "LEAST", 64)
    monkeypatch.setattr(memory, "MOST", 128)
    executable, _ = bound(step(near.size, near.size), "tf32", FURTHEST)
    names = functions(executable)
    assert not {*SUMS} & {*names}
    assert "add_metrics" in names


@pytest.mark.parametrize("apart", [False, True])
def test_the_next_part_is_gathered_with_the_sum(bound, step, near, monkeypatch, apart):
    """In a graph of several steps, where memory is reached and where it is not; else by itself."""
    found = launched(monkeypatch)
    near.runtime.refused = "malloc" if apart else ""
    choices = {"layout": "nhwc", "pad": "8", "streams": "1"}
    made, _ = bound(step(near.size, near.size), "tf32", choices, capture=True)
    monkeypatch.setattr(executable, "captured", lambda work, stream: [each() for each in work])
    made._record(("train", "update"), 3)
    names = [name for name, _, _ in found]
    # Behind one of each by itself, with which their modules are loaded.
    begin = [at for at, name in enumerate(names) if name == "gather_batch"][1]
    end = "sgd_update" if apart else "ranks_end"
    assert names[begin:].count("gather_batch") == (3 if apart else 1)
    assert names[begin:].count(end) == 3
    if not apart:
        gathers = [int(given[-1]) for name, _, given in found[begin:] if name == end]
        assert gathers == [gathers[0], gathers[0], 0]
        assert gathers[0] > 0
    found.clear()
    made._record(("train", "update"), 1)
    assert [name for name, _, _ in found].count("gather_batch") == 2


def test_without_fusion_the_sum_is_a_launch_by_itself(bound, step, near):
    made, _ = bound(step(near.size, near.size), "tf32", FURTHEST, fusion=False)
    names = functions(made)
    assert "add_over_ranks" in names
    assert "ranks_end" not in names


@pytest.mark.parametrize(
    "between", [{"clip": 1.0}, {"groups": (Group(names=("conv2d_1.*",), rates="slow"),)}]
)
def test_what_comes_between_keeps_the_sum_apart(bound, step, near, between):
    """A norm of all gradients, or another update of some of them."""
    made, _ = bound(step(near.size, near.size, **between), "tf32", FURTHEST)
    names = functions(made)
    assert "add_over_ranks" in names
    assert "ranks_end" not in names


def test_a_second_update_has_no_part_in_the_sum(bound, step, near, monkeypatch):
    """Here of the last layers, whose rates are others and which were summed beside backward."""
    found = launched(monkeypatch)
    groups = (Group(names=("dense_1.*",), rates="slow"),)
    graphs = step(near.size, near.size, buckets=2, groups=groups)
    made, _ = bound(graphs, "tf32", {"layout": "nhwc", "pad": "8", "streams": "1"})
    names = functions(made)
    assert (names.count("ranks_end"), names.count("sgd_update")) == (1, 1)
    made.run("train")
    made.run("update")
    summed = next(given for name, _, given in found if name == "ranks_end")
    other = next(given for name, _, given in found if name == "sgd_update")
    tables = [np.asarray(given[at]).reshape(-1, 2) for given, at in ((summed, 16), (other, 5))]
    assert all(table[:, 0].any() for table in tables)


def test_a_trial_launch_of_the_update_keeps_the_metrics_of_the_part(bound, step, near):
    """With the sum they go to those of all, though they belong to another section."""
    graphs = step(near.size, near.size)
    made, _ = bound(graphs, "tf32", FURTHEST)
    part = next(op.sums for op in graphs["train"].ops if isinstance(op, KeepMetrics))
    sums = made._buffer(part)
    sums.array.set(np.array([1.0, 2.0, 3.0]))
    with made._restored(made._sections["update"]):
        sums.array.set(np.zeros(3))
    assert np.asarray(sums.array.get()).tolist() == [1.0, 2.0, 3.0]


def test_a_sum_has_as_much_memory_as_it_needs(bound, step, near, monkeypatch):
    """Sums of another size another, each met for once by all ranks; the plan counts them."""
    monkeypatch.setattr(memory, "LEAST", 1 << 10)
    found = launched(monkeypatch)
    graphs = step(near.size, near.size, buckets=3)
    made, _ = bound(graphs, "tf32", FURTHEST)
    for _ in range(2):
        made.run("train")
        made.run("update")
    summed = [given for name, _, given in found if name in SUMS]
    sizes = list(dict.fromkeys(memory.size_for(near.size, 16 * int(g[3])) for g in summed))
    assert len(sizes) > 1
    taken = [memory.memory_bytes(near.size, size) for size in sizes]
    asked = [given for word, *given in near.runtime.asked if word == "malloc"]
    assert asked == [[each] for each in taken]
    counted = plan_memory(graphs, "tf32").libraries
    monkeypatch.setenv(SWITCH, "0")
    assert counted - plan_memory(graphs, "tf32").libraries == sum(taken)


@pytest.mark.parametrize("ranks", [2, 5, memory.MOST_RANKS])
def test_no_size_is_larger_than_it_must_be(ranks):
    most = memory.room(ranks, memory.MOST)
    assert memory.size_for(ranks, most) == memory.MOST
    assert memory.size_for(ranks, most + 16) is None
    assert memory.size_for(ranks, 16) == memory.LEAST
    least = memory.room(ranks, memory.LEAST)
    assert memory.size_for(ranks, least + 16) == 2 * memory.LEAST

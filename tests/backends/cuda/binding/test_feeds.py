"""Batches that are gathered ahead, with a stand-in for the device."""

from __future__ import annotations

from threading import Event

import numpy as np
import pytest
from dnnstack.backends.cuda.binding.feeds import SLOTS, Feeds, Packed
from dnnstack.backends.read_ahead import ReadAhead
from dnnstack.graph.graph import Graph
from dnnstack.graph.ops import Advance, GatherBatch
from hypothesis import given
from hypothesis import strategies as st

N, SHAPE, COUNT = 4, (2, 3, 3), 30


def section(steps=7, n=N, shape=SHAPE, floats=False, wide=0):
    graph, own = Graph("train", n), (wide,) if wide else ()
    pixel, kind = "float32" if floats else "uint8", "float32" if wide else "int32"
    tensors = {
        "images": graph.tensor("images", (COUNT, *shape), pixel, "data"),
        "labels": graph.tensor("labels", (COUNT, *own), kind, "data"),
        "order": graph.tensor("order", (steps * n,), "int32", "data"),
        "step": graph.tensor("step", (1,), "int64", "state"),
        "x": graph.tensor("x", (n, *shape)),
        "target": graph.tensor("target", (n, *own), kind),
    }
    with graph.at("data", "data"):
        graph.add(GatherBatch(**tensors, scale=(1.0,) * shape[0], shift=(0.0,) * shape[0]))
        graph.add(Advance(step=tensors["step"]))
    graph.results.update(tensors)
    return graph


class Machine:
    """Feeds of one section, with a counter that runs as the device's would."""

    def __init__(self, cuda, steps=7, floats=False, wide=0):
        draw = np.random.default_rng(4)
        self.graph = section(steps, N, SHAPE, floats, wide)
        self.step = 0
        self.feeds = Feeds({"train": self.graph}, lambda tensor: self.step, cuda)
        self.images = draw.integers(0, 256, (COUNT, *SHAPE), dtype=np.uint8)
        self.labels = draw.integers(0, 10, COUNT).astype(np.int32)
        if floats:
            self.images = draw.normal(size=self.images.shape).astype(np.float32)
        if wide:
            self.labels = draw.normal(size=(COUNT, wide)).astype(np.float32)
        self.order = draw.integers(0, COUNT, steps * N).astype(np.int32)
        self.order[1::5] = -1
        self.write("images", self.images)
        self.write("labels", self.labels)
        self.write("order", self.order)

    def write(self, name, array):
        self.feeds.write(self.graph[name], array)

    def go_to(self, step):
        self.step = step
        self.feeds.moved(self.graph["step"])

    def batch(self):
        """What a step would compute from its staging buffer."""
        self.feeds.load("train")
        self.step += 1
        staged = self.feeds.staging("train")
        order = np.array(staged.order)
        images = np.where((order < 0)[:, None, None, None], 0, staged.images[order])
        labels = np.array(staged.labels[order])
        labels[order < 0] = -1
        return np.array(images), np.array(labels), np.array(staged.rows)

    def check(self):
        at = self.step % (len(self.order) // N)
        rows = self.order[at * N : (at + 1) * N]
        images, labels, staged = self.batch()
        np.testing.assert_array_equal(staged, rows)
        targets = self.labels[rows]
        targets[rows < 0] = -1
        np.testing.assert_array_equal(labels, targets)
        wanted = np.where((rows < 0)[:, None, None, None], 0, self.images[rows])
        np.testing.assert_array_equal(images, wanted)


@pytest.fixture(params=[(False, 0), (True, 3)], ids=["bytes", "floats"])
def machine(fake_cuda, request):
    made = Machine(fake_cuda, 7, *request.param)
    yield made
    made.feeds.close()


def test_batches_come_in_order_and_start_again(machine):
    for _ in range(3 * 7 + 2):
        machine.check()


def test_rows_of_a_file_are_asked_for_where_they_lie(machine, tmp_path, monkeypatch):
    asked: list[tuple[object, ...]] = []
    np.save(tmp_path / "images.npy", machine.images)
    file = np.load(tmp_path / "images.npy", mmap_mode="r")
    monkeypatch.setattr(ReadAhead, "__call__", lambda self, *given: asked.append(given))
    machine.write("images", file)
    for _ in range(8):
        machine.check()
    for call in asked:
        assert call[0] is file
        np.testing.assert_array_equal(call[1], machine.order)
        assert call[3] == N
    # The thread may be further ahead.
    assert [each[2] for each in asked[:8]] == [*range(0, 7 * N, N), 0]


def test_a_new_order_drops_what_was_gathered_ahead(machine):
    machine.check()
    machine.order = np.random.default_rng(5).permutation(28).astype(np.int32)
    machine.write("order", machine.order)
    for _ in range(2 * SLOTS):
        machine.check()


def test_a_written_step_is_gone_to(machine):
    for step in (5, 2, 2, 6):
        machine.go_to(step)
        machine.check()
        machine.check()


def test_the_caller_may_change_the_order_afterwards(machine):
    order = machine.order.copy()
    machine.write("order", order)
    order[:] = -1
    machine.check()


def test_another_data_set_is_taken(machine):
    machine.check()
    machine.images = machine.images[::-1]
    machine.write("images", machine.images)
    machine.check()


def test_what_goes_wrong_in_the_thread_is_raised_at_the_step(machine):
    machine.check()
    machine.write("images", machine.images[:0])
    with pytest.raises(IndexError):
        machine.check()


def test_data_tensors_live_here_and_others_do_not(machine):
    assert machine.feeds.holds(machine.graph["images"])
    assert not machine.feeds.holds(machine.graph["step"])
    np.testing.assert_array_equal(machine.feeds.read(machine.graph["labels"]), machine.labels)


def test_a_copy_waits_until_the_batch_before_in_its_slot_is_taken(machine):
    """The device may be slow: a slot must not be overwritten before the step has read it."""
    for _ in range(SLOTS + 1):
        machine.check()
    feed = machine.feeds._feeds["train"]
    waited = feed._copies.waited
    assert all(any(event is slot.taken for event in waited) for slot in feed._slots)
    assert all(slot.taken.recorded >= 1 for slot in feed._slots)


def test_what_is_forgotten_is_not_gathered(machine):
    feed, gate = machine.feeds._feeds["train"], Event()
    machine.check()
    feed.restart()
    feed._thread.submit(gate.wait)
    feed._fill()
    asked = [sent for _, sent in feed._ahead]
    feed.restart()
    gate.set()
    assert len(asked) == SLOTS
    assert all(sent.cancelled() for sent in asked)


@given(st.integers(1, 300), st.integers(1, 4), st.integers(1, 40), st.booleans(), st.integers(0, 3))
def test_the_parts_of_a_batch_do_not_overlap(n, channels, side, floats, wide):
    op = next(op for op in section(1, n, (channels, side, side), floats, wide).ops)
    packed = Packed(np.zeros(Packed.nbytes(op), np.uint8), op)
    assert packed.images.dtype == (np.float32 if floats else np.uint8)
    assert packed.labels.shape == ((n, wide) if wide else (n,))
    packed.images[...] = 1
    for value, part in enumerate((packed.labels, packed.order, packed.rows), 2):
        part[...] = value
    assert (packed.images == 1).all()
    assert [set(np.array(p).flat) for p in (packed.labels, packed.order, packed.rows)] == [
        {2},
        {3},
        {4},
    ]


def test_an_executable_feeds_its_sections_from_host_memory(bound, sections):
    """Every step finds its batch, each section at its own place, in any order of calls."""
    graphs = sections("lenet")
    executable, _ = bound(graphs, streamed=True)
    train, evaluate = graphs["train"], graphs["evaluate"]
    draw = np.random.default_rng(1)
    images = draw.integers(0, 256, (640, 1, 28, 28), dtype=np.uint8)
    order, held = draw.permutation(640).astype(np.int32), np.arange(640, dtype=np.int32)
    held[-7:] = -1
    executable.run("train")  # before there is data, as a search for plans does
    executable.write(train["images"], images)
    executable.write(train["labels"], held)
    executable.write(train["order"], order)
    executable.write(evaluate["order"], held)
    feeds = executable._store.feeds

    def rows(section, steps):
        executable.run(section, steps)
        return np.array(feeds.staging(section).rows)

    np.testing.assert_array_equal(rows("train", 3), order[2 * 64 : 3 * 64])
    np.testing.assert_array_equal(rows("evaluate", 2), held[128:256])
    np.testing.assert_array_equal(rows("train", 1), order[3 * 64 : 4 * 64])
    executable.write(train["step"], np.array([8], np.int64))
    np.testing.assert_array_equal(rows("train", 1), order[8 * 64 : 9 * 64])
    np.testing.assert_array_equal(feeds.staging("train").images, images[order[8 * 64 : 9 * 64]])
    np.testing.assert_array_equal(executable.read(train["images"]), images)
    assert train["images"] not in executable._store.data


def test_sections_that_share_a_counter_go_on_where_the_other_stopped(fake_cuda):
    """The phases of a training are sections of their own with one counter and one order."""
    step = [0]
    graph = section()
    feeds = Feeds({"train": graph, "later": graph}, lambda tensor: step[0], fake_cuda)
    order = np.arange(7 * N, dtype=np.int32)
    feeds.write(graph["images"], np.zeros((COUNT, *SHAPE), np.uint8))
    feeds.write(graph["labels"], np.zeros(COUNT, np.int32))
    feeds.write(graph["order"], order)
    for name in ("train", "train", "later", "train", "later", "later"):
        feeds.load(name)
        at = step[0] * N
        np.testing.assert_array_equal(feeds.staging(name).rows, order[at : at + N])
        step[0] += 1
    feeds.close()

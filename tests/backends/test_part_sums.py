"""The sum over the parts of a batch: a fixed tree, whoever adds which of its branches."""

from __future__ import annotations

import numpy as np
import pytest
from dnnstack.backends.base import Backend, Options
from dnnstack.backends.select import open_backend
from dnnstack.graph.graph import Graph, Tensor
from dnnstack.graph.ops import Accumulate, Advance, KeepStatistics, MoveStatistics
from numpy.typing import NDArray

Numbers = NDArray[np.float32]
PARTS = (1, 2, 3, 4, 5, 6, 7, 8, 11, 13, 16)
SHAPES = ((3, 5), (700,), (2, 1, 3, 3))


@pytest.fixture(params=["numpy", "cpu"])
def device(request):
    return open_backend(request.param, 1, print)


def tree(terms: list[Numbers]) -> Numbers:
    """The largest power of two of them, then the rest, each by itself, then both together."""
    if len(terms) == 1:
        return terms[0]
    left = 1 << ((len(terms) - 1).bit_length() - 1)
    return np.asarray(tree(terms[:left]) + tree(terms[left:]), np.float32)


def section(parts: int, scale: float) -> Graph:
    graph = Graph("sum", 1, training=True)
    graph.results["step"] = graph.tensor("step", (1,), "int64", "state")
    weights = [Tensor(f"w{i}", shape, "float32", "parameter") for i, shape in enumerate(SHAPES)]
    given = [graph.tensor(f"g{i}", shape, "float32", "input") for i, shape in enumerate(SHAPES)]
    graph.results.update({tensor.name: tensor for tensor in given})
    levels = range(Accumulate.levels(parts))
    held = [
        tuple(Tensor(f"accumulated.{level}/{w.name}", w.shape, role="state") for w in weights)
        for level in levels
    ]
    graph.results.update({tensor.name: tensor for tensor in held[0]})
    pending = tuple(tensor for level in held[1:] for tensor in level)
    graph.add(
        Accumulate(
            gradients=tuple(given),
            step=graph["step"],
            sums=held[0],
            pending=pending,
            parts=parts,
            scale=scale,
        )
    )
    graph.add(Advance(step=graph["step"]))
    return graph


def terms(parts: int) -> list[list[Numbers]]:
    """Of every part its gradients, of such sizes that every order has its own roundings."""
    draw = np.random.default_rng(parts)
    sizes = 10.0 ** draw.integers(-3, 4, parts)
    return [
        [(size * draw.standard_normal(shape)).astype(np.float32) for shape in SHAPES]
        for size in sizes
    ]


def summed(device: Backend, parts: int, every: list[list[Numbers]], scale: float) -> list[Numbers]:
    """After a whole batch that was not finished before, as after a restored step."""
    graph = section(parts, scale)
    executable = device.compile({"sum": graph}, Options())
    executable.write(graph["step"], np.array([parts * 3], np.int64))
    for part in [*every[: parts // 2], *every]:
        if part is every[0]:
            executable.write(graph["step"], np.array([parts * 4], np.int64))
        for i, gradient in enumerate(part):
            executable.write(graph[f"g{i}"], gradient)
        executable.run("sum")
    found = [executable.read(graph[f"accumulated.0/w{i}"]) for i in range(len(SHAPES))]
    executable.close()
    return found


@pytest.mark.parametrize("parts", PARTS)
def test_parts_are_summed_in_a_tree(device, parts):
    scale = float(np.float32(1.0 / parts))
    every = terms(parts)
    found = summed(device, parts, every, scale)
    for i, total in enumerate(found):
        scaled = [np.float32(scale) * part[i] for part in every]
        np.testing.assert_array_equal(total, tree(scaled))


@pytest.mark.parametrize(("parts", "ranks"), [(4, 2), (8, 2), (8, 4), (6, 3), (12, 3), (5, 5)])
def test_sums_of_neighbours_sum_to_the_same_bits(device, parts, ranks):
    """A rank has parts / ranks neighbours, a power of two; the tree of the ranks is the rest."""
    every = terms(parts)
    whole = summed(device, parts, every, 0.5)
    own = parts // ranks
    each = [summed(device, own, every[at : at + own], 0.5) for at in range(0, parts, own)]
    for i, total in enumerate(whole):
        np.testing.assert_array_equal(total, tree([sums[i] for sums in each]))


@pytest.mark.parametrize("parts", PARTS)
def test_sums_wait_on_one_level_for_each_doubling(parts):
    (op,) = (op for op in section(parts, 1.0).ops if isinstance(op, Accumulate))
    waiting = [op.place(step) for step in range(parts)]
    assert [begun - ended for begun, ended in waiting][-1] == 0
    needed = 1 + max(begun - ended for begun, ended in waiting)
    assert len(op.slots()) == Accumulate.levels(parts) == needed


def test_statistics_move_by_every_part_in_order(device):
    """r = r / 2 + value / 2 for 3, then 5, from 1, is 2, then 3.5."""
    graph = Graph("moved", 1, training=True)
    kept = graph.tensor("kept", (2, 3), "float32", "state")
    running = tuple(Tensor(name, (n,), role="state") for name, n in (("mean", 1), ("var", 2)))
    rule = {"momentum": (0.5, 0.5), "weight": (0.5, 1.0)}
    graph.add(MoveStatistics(kept=kept, running=running, **rule))
    executable = device.compile({"moved": graph}, Options())
    executable.write(kept, np.array([[3, 1, 2], [5, 4, 8]], np.float32))
    for tensor in running:
        executable.write(tensor, np.ones(tensor.shape, np.float32))
    executable.run("moved")
    assert [executable.read(tensor).tolist() for tensor in running] == [[3.5], [4.75, 9.25]]
    executable.close()


def test_a_part_keeps_its_values_in_its_row(device):
    graph = Graph("kept", 1, training=True)
    values = tuple(graph.tensor(f"v{n}", (n,), "float32", "input") for n in (1, 2))
    step = graph.tensor("step", (1,), "int64", "state")
    kept = graph.tensor("kept", (3, 3), "float32", "state")
    graph.add(KeepStatistics(values=values, step=step, kept=kept, parts=3))
    executable = device.compile({"kept": graph}, Options())
    executable.write(step, np.array([3 * 7 + 1], np.int64))
    executable.write(kept, np.zeros(kept.shape, np.float32))
    executable.write(values[0], np.array([1], np.float32))
    executable.write(values[1], np.array([2, 3], np.float32))
    executable.run("kept")
    assert executable.read(kept).tolist() == [[0, 0, 0], [1, 2, 3], [0, 0, 0]]
    executable.close()

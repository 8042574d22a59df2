"""Arrays of activations that are given out again, and those that are not."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import numpy as np
import pytest
from dnnstack.backends.cuda.binding.buffer import Buffer
from dnnstack.backends.cuda.binding.reuse import SLACK, Reuse
from dnnstack.backends.cuda.libraries.layout import Layout, plain
from dnnstack.graph.graph import Graph, Tensor
from dnnstack.graph.ops import Activation

SHAPE = (2, 3, 4, 5)


def tensor(name: str, shape=SHAPE, **more) -> Tensor:
    return Tensor(name, shape, section="train", **more)


def chain(*names: str, shape=SHAPE) -> list[Activation]:
    """Each is computed from the one before."""
    made = [tensor(name, shape) for name in names]
    return [Activation(x=x, y=y, kind="relu") for x, y in itertools.pairwise(made)]


class Binding:
    """Binds each operation by a launch, or by none, in ``layouts`` of outputs."""

    def __init__(self, ops, results=(), layouts=None, silent=(), on=True, rows=()):
        graph = Graph("train", 1)
        graph.results.update({each: tensor(each) for each in results})
        self.waits, steps, self.buffers, layouts = 0, [], {}, layouts or {}
        reuse = Reuse(graph, ops if on else (), self.zeros, self.wait)
        for op in reuse.counted(ops, steps):
            name = op.y.name
            layout = layouts.get(name, plain(op.y.shape))
            self.buffers[name] = reuse.room(op.y, layout)
            if name in rows:
                reuse.join(tensor(f"rows of {name}", (2, 60)), self.buffers[name])
            steps.append(SimpleNamespace(call=None))
            if name not in silent:
                steps.append(SimpleNamespace(call=SimpleNamespace(op=op)))

    def wait(self) -> None:
        self.waits += 1

    @staticmethod
    def zeros(layout: Layout) -> Buffer:
        return Buffer(np.zeros(layout.size, layout.item), layout)

    def place(self, name: str) -> int:
        return self.buffers[name].array.ctypes.data


def test_what_is_no_longer_read_is_given_out_again() -> None:
    found = Binding(chain(*"abcde"))
    # c is made while b is read; d while c is.
    assert found.place("d") == found.place("b") != found.place("c") == found.place("e")
    assert found.waits == 2


@pytest.mark.parametrize(
    "how",
    [
        {"on": False},
        {"results": "b"},
        # Another kernel may do the work of what reads b.
        {"silent": "c"},
        {"rows": "b"},
        {"layouts": {"b": Layout(SHAPE, (2, 8, 4, 5))}},
        {"layouts": {"d": Layout(SHAPE, SHAPE, dtype="bfloat16")}},
    ],
    ids=str,
)
def test_what_may_be_needed_is_not(how) -> None:
    found = Binding(chain(*"abcd"), **how)
    assert found.place("d") != found.place("b")
    assert found.waits == 0


def test_another_kernel_is_waited_for_so_long_and_no_longer() -> None:
    names = [chr(ord("a") + i) for i in range(SLACK + 5)]
    found = Binding(chain(*names), silent=("c",))
    users = [name for name in names[2:] if found.place(name) == found.place("b")]
    # c is made at place 1.
    assert users[0] == names[1 + SLACK + 2]


def test_padding_lies_alike() -> None:
    padded = Layout(SHAPE, (2, 8, 4, 5))
    found = Binding(chain(*"abcd"), layouts={"b": padded, "d": padded})
    assert found.place("d") == found.place("b")
    found = Binding(chain(*"abcd"), layouts={"d": padded})
    assert found.waits == 0


def test_the_smallest_that_is_large_enough() -> None:
    def op(x: str, y: Tensor) -> Activation:
        return Activation(x=tensor(x), y=y, kind="relu")

    small, large = (2, 3, 4, 4), (2, 3, 5, 5)
    # By d, both b and c are free; by f, both b and d are, but d is too small.
    ops = [
        *(op("a", tensor("b", large)), op("a", tensor("c"))),
        *(op("b", tensor("g", role="gradient")), op("c", tensor("h", role="gradient"))),
        *(op("g", tensor("d", small)), op("d", tensor("i", role="gradient"))),
        op("i", tensor("f", large)),
    ]
    ops[2] = Activation(x=tensor("b", large), y=ops[2].y, kind="relu")
    ops[5] = Activation(x=tensor("d", small), y=ops[5].y, kind="relu")
    found = Binding(ops)
    assert found.place("d") == found.place("c")
    assert found.buffers["d"].array.size == 96
    assert found.place("f") == found.place("b") != found.place("c")


def test_rows_and_other_roles_have_their_own() -> None:
    assert Binding(chain(*"abcde", shape=(2, 60))).waits == 0
    ops = [Activation(x=op.x, y=tensor(op.y.name, role="gradient"), kind="relu")
           for op in chain(*"abcde")]  # fmt: skip
    assert Binding(ops).waits == 0

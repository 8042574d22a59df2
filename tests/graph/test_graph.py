from __future__ import annotations

from dataclasses import FrozenInstanceError

import pytest
from dnnstack.common.errors import ShapeError
from dnnstack.graph.graph import Graph, In, InOut, Op, Origin, Out, Tensor
from dnnstack.graph.ops import Activation, Advance, BiasAdd


def relu(graph: Graph, x: Tensor, name: str) -> Tensor:
    y = graph.tensor(name, x.shape)
    graph.add(Activation(x=x, y=y, kind="relu"))
    return y


@pytest.fixture
def graph() -> Graph:
    return Graph("train", 2)


@pytest.fixture
def x(graph: Graph) -> Tensor:
    return graph.tensor("x", (2, 3), role="input")


def test_operations_carry_their_origin(graph: Graph, x: Tensor) -> None:
    with graph.at("relu_1", "forward"):
        y = relu(graph, x, "y")
        with graph.at("relu_2", "backward"):
            relu(graph, y, "z")
        relu(graph, y, "w")
    phases = [op.origin[0] for op in graph.ops]
    forward = Origin("relu_1", "forward")
    assert phases == [forward, Origin("relu_2", "backward"), forward]
    assert graph.ops[0].label() == "Activation(relu_1)"


def test_reading_before_writing(graph: Graph) -> None:
    late = graph.tensor("late", (2, 3))
    with pytest.raises(ShapeError, match="reads 'late' before it is computed"):
        relu(graph, late, "y")


def test_writing_twice(graph: Graph, x: Tensor) -> None:
    y = relu(graph, x, "y")
    with pytest.raises(ShapeError, match="writes 'y' a second time"):
        graph.add(Activation(x=x, y=y, kind="relu"))


def test_defining_twice(graph: Graph, x: Tensor) -> None:
    with pytest.raises(ShapeError, match=r"graph 'train': tensor 'x' \(2, 3\) is defined twice"):
        graph.tensor("x", (2, 3))


def test_shared_tensors_may_be_defined_again_alike(graph: Graph) -> None:
    first = graph.tensor("step", (1,), "int64", "state")
    assert graph.tensor("step", (1,), "int64", "state") == first
    assert first.section == ""
    with pytest.raises(ShapeError, match="defined twice"):
        graph.tensor("step", (2,), "int64", "state")


def test_sections_keep_their_activations_apart(graph: Graph, x: Tensor) -> None:
    assert Graph("evaluate", 2).tensor("x", (2, 3), role="input") != x


def test_shapes_are_checked(graph: Graph, x: Tensor) -> None:
    bias = graph.tensor("b", (4,), role="parameter")
    message = r"BiasAdd\(dense_1\): shapes do not fit: x \(2, 3\), b \(4,\)"
    with graph.at("dense_1", "forward"), pytest.raises(ShapeError, match=message):
        graph.add(BiasAdd(x=x, b=bias, y=graph.tensor("y", (2, 3))))


def test_prune_keeps_what_results_and_updates_need(graph: Graph, x: Tensor) -> None:
    a = relu(graph, x, "a")
    b = relu(graph, a, "b")
    relu(graph, b, "nobody")
    relu(graph, a, "nobody_either")
    graph.add(Advance(step=graph.tensor("step", (1,), "int64", "state")))
    graph.results["b"] = b
    graph.prune()
    assert [op.writes()[0].name for op in graph.ops] == ["a", "b", "step"]


def test_producer_and_consumers(graph: Graph, x: Tensor) -> None:
    y = relu(graph, x, "y")
    relu(graph, y, "z")
    relu(graph, y, "w")
    assert graph.producer(x) is None
    assert graph.producer(y) is graph.ops[0]
    assert graph.consumers(y) == graph.ops[1:]
    assert [t.name for t in graph.tensors()] == ["x", "y", "z", "w"]
    relu(graph, y, "v")
    assert graph.consumers(y) == graph.ops[1:]
    v = graph.ops[-1].writes()[0]
    assert graph.producer(v) is graph.ops[-1]
    graph.results = {"y": y}
    graph.prune()
    assert graph.producer(v) is None
    assert graph.consumers(y) == []


def test_tensor_sizes() -> None:
    tensor = Tensor("x", (2, 3, 4), "int64")
    assert (tensor.size, tensor.nbytes) == (24, 192)


def test_rewriting_keeps_what_a_section_is_for(graph: Graph) -> None:
    trained = Graph("train", 2, training=True, seed=7)
    assert (graph.training, graph.seed) == (False, 0)
    rewritten = trained.with_ops([])
    assert (rewritten.training, rewritten.seed) == (True, 7)


class Mixed(Op):
    """One field of every kind."""

    some: tuple[In, ...]
    y: Out
    optional: In | None = None
    state: InOut
    name_of_input: str = "In"


class Turned(Mixed):
    inputs = ("optional", "some")


def test_fields_say_what_is_read_and_written() -> None:
    a, b, c, d = (Tensor(name, (1,)) for name in "abcd")
    names = Mixed.inputs, Mixed.outputs, Mixed.updates
    assert names == (("some", "optional"), ("y",), ("state",))
    op = Mixed(some=(a, b), y=c, state=d)
    assert (op.reads(), op.writes()) == ((a, b, d), (c, d))
    turned = Turned(some=(a,), y=c, state=d, optional=b)
    assert (turned.reads(), turned.writes()) == ((b, a, d), (c, d))
    with pytest.raises(FrozenInstanceError):
        op.y = a  # type: ignore[misc]


def test_another_list_is_one_of_the_same_section() -> None:
    graph = Graph("train", 2, training=True, seed=5)
    graph.results["y"] = relu(graph, graph.tensor("x", (2, 3), role="input"), "y")
    other = graph.with_ops(graph.ops)
    kept = ("name", "batch_size", "training", "seed", "ops", "results")
    assert {key: getattr(other, key) for key in kept} == {key: getattr(graph, key) for key in kept}
    assert graph.with_ops(()).ops == []

from __future__ import annotations

from dnnstack.graph.graph import Graph, Tensor
from dnnstack.graph.ops import Advance, ClipByNorm, GlobalNorm, Reshape, SgdUpdate
from dnnstack.layers.initializers import ZEROS
from dnnstack.layers.layer import Parameter
from dnnstack.optimizers.sgd import Sgd
from dnnstack.training.sections import Composition, kept

from ..support import composed

WEIGHT = Parameter(Tensor("dense_1.weight", (3, 4), "float32", "parameter"), "kernel", ZEROS, 4, 3)
BIAS = Parameter(Tensor("dense_1.bias", (3,), "float32", "parameter"), "bias", ZEROS, 4, 3)
PARAMETERS = (WEIGHT, BIAS)


def graph_of(optimizer: Composition) -> tuple[Graph, dict[Parameter, Tensor]]:
    """The update alone, its gradients written from outside."""
    graph = Graph("train", 1)
    given = {}
    for p in PARAMETERS:
        tensor = p.tensor
        given[p] = graph.tensor(f"{tensor.name}.given", tensor.shape, role="input")
        graph.add(Reshape(x=given[p], y=graph.gradient(tensor)))
    graph.results["step"] = graph.tensor("step", (1,), "int64", "state")
    return composed.updated(graph, optimizer, PARAMETERS, 4)(0), given


def test_momentum_is_state_by_the_parameters_name() -> None:
    assert kept(Composition(Sgd()), PARAMETERS, ()) == ()
    buffers = kept(Composition(Sgd(momentum=0.9)), PARAMETERS, ())
    assert [b.name for b in buffers] == ["momentum/dense_1.weight", "momentum/dense_1.bias"]
    assert [b.shape for b in buffers] == [(3, 4), (3,)]
    assert {b.role for b in buffers} == {"state"}


def test_operations() -> None:
    plain, _ = graph_of(Composition(Sgd()))
    assert [type(op) for op in plain.ops[2:]] == [SgdUpdate, Advance]
    clipped, _ = graph_of(Composition(Sgd(), clip_norm=1.0))
    assert [type(op) for op in clipped.ops[2:]] == [GlobalNorm, ClipByNorm, SgdUpdate, Advance]


def test_a_network_without_parameters_is_not_updated() -> None:
    graph = Graph("train", 1)
    graph.results["step"] = graph.tensor("step", (1,), "int64", "state")
    graph = composed.updated(graph, Composition(Sgd(), clip_norm=1.0), (), 4)(0)
    assert [type(op) for op in graph.ops] == [Advance]
    assert graph["rates"].shape == (4,)

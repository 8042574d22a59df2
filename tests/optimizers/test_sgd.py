from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from dnnstack.backends.base import Array, Options
from dnnstack.backends.reference.backend import ReferenceBackend
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
RATES = np.array([0.1, 0.05, 0.2, 0.01], np.float32)


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


def written_out(
    chosen: Composition, start: dict[Parameter, Array], gradients: list[dict[Parameter, Array]]
) -> dict[Parameter, Array]:
    """Step by step as PyTorch's documentation of torch.optim.SGD has it, in plain float64."""
    optimizer = chosen.rule
    assert isinstance(optimizer, Sgd)
    theta = {p: value.copy() for p, value in start.items()}
    b: dict[Parameter, Array] = {}
    for t, given in enumerate(gradients):
        g_all = {p: g.copy() for p, g in given.items()}
        if chosen.clip_norm is not None:
            norm = np.sqrt(sum((g**2).sum() for g in g_all.values()))
            if norm > chosen.clip_norm:
                g_all = {p: g / norm * chosen.clip_norm for p, g in g_all.items()}
        for p, g in g_all.items():
            if optimizer.weight_decay_on == "all" or p is WEIGHT:
                g = g + optimizer.weight_decay * theta[p]
            if optimizer.momentum:
                b[p] = g if t == 0 else optimizer.momentum * b[p] + g
                g = g + optimizer.momentum * b[p] if optimizer.nesterov else b[p]
            theta[p] = theta[p] - float(RATES[t]) * g
    return theta


CHOICES = [
    Composition(Sgd(momentum, nesterov, weight_decay=decay, weight_decay_on=on), clip_norm=clip)  # type: ignore[arg-type]
    for momentum, nesterov, decay, on, clip in product(
        (0.0, 0.9), (False, True), (0.0, 0.1), ("all", "weights"), (None, 0.7, 1e3)
    )
    if momentum or not nesterov
]


@pytest.mark.parametrize("optimizer", CHOICES, ids=repr)
def test_update(optimizer: Composition) -> None:
    rng = np.random.default_rng(8)
    start = {p: rng.standard_normal(p.tensor.shape) for p in PARAMETERS}
    gradients = [{p: rng.standard_normal(p.tensor.shape) for p in PARAMETERS} for _ in RATES]
    graph, given = graph_of(optimizer)
    executable = ReferenceBackend(1).compile({"train": graph}, Options("fp64"))
    executable.write(graph["rates"], RATES)
    for p in PARAMETERS:
        executable.write(p.tensor, start[p])
    for values in gradients:
        for p in PARAMETERS:
            executable.write(given[p], values[p])
        executable.run("train")
    want = written_out(optimizer, start, gradients)
    for p in PARAMETERS:
        np.testing.assert_allclose(executable.read(p.tensor), want[p], rtol=1e-12, atol=1e-14)


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

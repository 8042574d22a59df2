"""Optimizers that are a formula, over the parameters of whole nets."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from dnnstack.backends.base import Array, Backend, Options
from dnnstack.backends.reference.backend import ReferenceBackend
from dnnstack.common.errors import BackendUnavailableError, ShapeError
from dnnstack.graph.graph import Graph
from dnnstack.graph.ops import ElementwiseUpdate
from dnnstack.layers.build import LayerSpec, build_layers
from dnnstack.layers.losses.cross_entropy import CrossEntropyLoss
from dnnstack.optimizers.groups import Group, stretches
from dnnstack.training.network import Network
from dnnstack.training.preprocessing import Preprocessing
from dnnstack.training.sections import Composition, kept

from ..support import composed
from ..support.update_formulas import FORMULAS, AdagradUpdate, ByFormula

# Five channels: a convolution's filters are padded in many layouts. Tanh has no kink.
STACK = [
    LayerSpec("conv2d", options={"filters": 5, "kernel_size": 3}),
    LayerSpec("tanh"),
    LayerSpec("avg_pool2d"),
    LayerSpec("conv2d", options={"filters": 9, "kernel_size": 2}),
    LayerSpec("tanh"),
    LayerSpec("flatten"),
    LayerSpec("dense", options={"units": 4}),
]
SHAPE, BATCH, COUNT, STEPS = (3, 9, 9), 6, 12, 4
# The biases are trained from the third step on.
GROUPS = (
    Group(kinds=("bias",), freeze_until=1.0, weight_decay=0.0),
    Group(names=("conv2d_2.*",), lr_factor=0.5),
)


def graphs(optimizer: Composition) -> tuple[Network, dict[str, Graph]]:
    network = Network(build_layers(STACK, SHAPE), CrossEntropyLoss(), SHAPE, 4)
    scaling = Preprocessing.standardize([0.5] * 3, [0.25] * 3)
    found = {}
    for first in stretches(optimizer.groups, 2, STEPS):
        graph = composed.train_graph(
            network, BATCH, "data", COUNT, 2, STEPS, scaling, optimizer, first_step=first
        )
        found[graph.name] = graph
    return network, found


def trained(backend: Backend, options: Options, optimizer: Composition) -> dict[str, Array]:
    """Parameters and state after a few steps of a net."""
    network, sections = graphs(optimizer)
    executable = backend.compile(sections, options)
    rng = np.random.default_rng(5)
    parameters = network.parameters()
    for parameter in parameters:
        values = 0.3 * rng.standard_normal(parameter.tensor.shape)
        executable.write(parameter.tensor, values.astype(np.float32))
    images = rng.integers(0, 256, (COUNT, *SHAPE)).astype(np.uint8)
    labels, order = rng.integers(0, 4, COUNT).astype(np.int32), np.arange(COUNT, dtype=np.int32)
    rates = np.linspace(0.05, 0.02, STEPS).astype(np.float32)
    for graph in sections.values():
        given = {"images": images, "labels": labels, "order": order, "rates": rates}
        for name, values in given.items():
            executable.write(graph[name], values)
    starts = stretches(optimizer.groups, 2, STEPS)
    for step in range(STEPS):
        at = max(i for i, first in enumerate(starts) if first <= step)
        executable.run(list(sections)[at])
    tensors = [*(p.tensor for p in parameters), *kept(optimizer, parameters, ())]
    return {tensor.name: executable.read(tensor) for tensor in tensors}


@pytest.mark.parametrize("name", FORMULAS)
def test_onednn_trains_as_float64_does(name: str) -> None:
    from dnnstack.backends.onednn.backend import OneDnnBackend

    try:
        onednn = OneDnnBackend(1)
    except BackendUnavailableError as error:
        pytest.skip(str(error))
    rule = ByFormula(chosen=FORMULAS[name], weight_decay=0.01)
    optimizer = Composition(rule, GROUPS)
    want = trained(ReferenceBackend(1), Options("fp64", fusion=False), optimizer)
    got = trained(onednn, Options("fp32", tune=False), optimizer)
    families = {key.partition("/")[0] for key in want if "/" in key}
    assert families == set(FORMULAS[name].families)
    for key, values in want.items():
        size = max(1.0, float(np.abs(values).max()))
        np.testing.assert_allclose(got[key], values, rtol=0, atol=1e-4 * size, err_msg=key)


def test_what_an_update_is_called_and_costs() -> None:
    optimizer = Composition(ByFormula(chosen=AdagradUpdate(), weight_decay=0.01))
    (graph,) = graphs(optimizer)[1].values()
    (op,) = (op for op in graph.ops if isinstance(op, ElementwiseUpdate))
    assert op.name == "AdagradUpdate"
    assert op.flops() == 8 * op.size()
    assert op.bytes() == 4 * 5 * op.size()


@pytest.mark.parametrize("field", ["start", "states", "gradients"])
def test_one_of_everything_for_each_parameter(field: str) -> None:
    (graph,) = graphs(Composition(ByFormula(chosen=AdagradUpdate())))[1].values()
    (op,) = (op for op in graph.ops if isinstance(op, ElementwiseUpdate))
    with pytest.raises(ShapeError, match=r"^AdagradUpdate\(.*: shapes do not fit"):
        replace(op, **{field: getattr(op, field)[1:]}).check()

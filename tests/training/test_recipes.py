"""Whole recipes, read from configs, against the same in PyTorch: every loss, and where they end.

They are Keller Jordan's airbench94 and its Muon variant (github.com/KellerJordan/cifar10-airbench)
on a net of the same parts: a frozen first convolution with a bias that trains at first, batch norm
with a trained offset alone, a head; ten steps of six pictures.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from dnnstack.backends.base import Array, Backend, Options
from dnnstack.backends.reference.backend import ReferenceBackend
from dnnstack.configs import parse_config
from dnnstack.datasets import DatasetInfo
from dnnstack.optimizers.groups import stretches
from dnnstack.training.assemble import build_network
from dnnstack.training.plan import make_plan
from dnnstack.training.preprocessing import Preprocessing
from dnnstack.training.sections import Stretch, composition, stretch_at
from numpy.typing import NDArray

from ..support import composed
from ..support.stored import beside, cases

PICTURE, CLASSES, COUNT, BATCH, STEPS = (2, 6, 6), 5, 24, 6, 10
SCALE = 1 / 64

HEAD = beside(__file__, "recipes_head.yaml")

SGD = beside(__file__, "recipes_sgd.yaml")

MUON = beside(__file__, "recipes_muon.yaml")

RECIPES = {"sgd": SGD + HEAD, "muon": MUON + HEAD}
PARAMETERS = {
    "whiten.weight": (3, 2, 2, 2),
    "whiten.bias": (3,),
    "conv2d_2.weight": (4, 3, 3, 3),
    "batch_norm_1.bias": (4,),
    "head.weight": (5, 16),
}


def start(name: str) -> NDArray[np.float64]:
    """The first values of a parameter."""
    shape = PARAMETERS[name]
    place = list(PARAMETERS).index(name)
    return 0.4 * np.sin(1.7 * np.arange(np.prod(shape)) + place).reshape(shape)


def images() -> NDArray[np.uint8]:
    i = np.arange(COUNT * int(np.prod(PICTURE)))
    return ((7 * i * i + 13 * i + i // 5) % 256).astype(np.uint8).reshape(COUNT, *PICTURE)


def labels() -> NDArray[np.int32]:
    return (np.arange(COUNT, dtype=np.int32) * 3) % CLASSES


# From PyTorch 2.13 in float64, with torch.optim.SGD and the recipes' own Muon and lookahead.
LOSSES = cases(__file__, "losses")
ENDS = cases(__file__, "ends")


def train(name: str, backend: Backend, options: Options) -> tuple[list[float], dict[str, Array]]:
    """The loss of every step, and all that was learned."""
    config = parse_config(RECIPES[name], "recipe.yaml")
    classes = tuple(map(str, range(CLASSES)))
    network = build_network(config, DatasetInfo("recipe", PICTURE, classes, None, None))
    plan = make_plan(config, COUNT)
    assert (plan.steps_per_epoch, plan.total_steps) == (4, STEPS)
    rule, length = composition(config), (plan.steps_per_epoch, plan.total_steps)
    scaling = Preprocessing((SCALE,) * 2, (0.0,) * 2)
    step = composed.step_of(network, BATCH, "recipe", COUNT, *length, scaling, rule)
    firsts = stretches(rule.groups, *length)
    phases = [Stretch(first, *step.graphs(first), rule.parts) for first in firsts]
    assert [phase.first for phase in phases] == [0, 4]
    sections = {phase.train.name: phase.train for phase in phases}
    executable = backend.compile(sections, options)
    fresh = network.initial_values(1)
    fresh.update({p.tensor: start(p.tensor.name) for p in network.parameters()})
    statistics = tuple(statistic.tensor for statistic in network.running_statistics())
    for tensor, values in fresh.items():
        executable.write(tensor, np.asarray(values, np.float32))
    for average, value in composed.averages(rule, network.parameters(), statistics).items():
        executable.write(average, np.asarray(fresh[value], np.float32))
    written = {
        "images": images(),
        "labels": labels(),
        "order": np.arange(COUNT, dtype=np.int32),
        "rates": plan.rates,
        **plan.tables,
    }
    for graph in sections.values():
        for key, array in written.items():
            if graph.results.get(key) in graph.tensors():
                executable.write(graph[key], array)
    losses = []
    for step in range(STEPS):
        phase, _ = stretch_at(phases, step)
        phase.run(executable, 1)
        losses.append(float(executable.read(phase.train["loss"])[0]))
    learned = {tensor.name: executable.read(tensor) for tensor in network.learned()}
    executable.close()
    return losses, learned


def onednn() -> Backend:
    from dnnstack.backends.onednn.backend import OneDnnBackend

    return OneDnnBackend(1)


BACKENDS: dict[str, tuple[Callable[[], Backend], Options, float]] = {
    "numpy, fp64": (lambda: ReferenceBackend(1), Options("fp64"), 2e-6),
    "numpy, fp32": (lambda: ReferenceBackend(1), Options(), 2e-4),
    "cpu": (onednn, Options(tune=False), 2e-4),
}


@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.parametrize("backend", BACKENDS)
def test_recipe(name, backend):
    make, options, tolerance = BACKENDS[backend]
    losses, learned = train(name, make(), options)
    np.testing.assert_allclose(losses, LOSSES[name], rtol=tolerance)
    for key, wanted in ENDS[name].items():
        found = learned[key].ravel()[:3]
        np.testing.assert_allclose(found, wanted, rtol=0, atol=tolerance, err_msg=key)

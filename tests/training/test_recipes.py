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
from dnnstack.training.sections import composition
from dnnstack.training.stretches import Stretch, stretch_at
from numpy.typing import NDArray

from ..support import composed

PICTURE, CLASSES, COUNT, BATCH, STEPS = (2, 6, 6), 5, 24, 6, 10
SCALE = 1 / 64

HEAD = """
data: {dataset: mnist, batch_size: 6, validation: 0}
layers:
  - conv2d: {filters: 3, kernel_size: 2, name: whiten}
  - gelu
  - conv2d: {filters: 4, kernel_size: 3, padding: same, use_bias: false}
  - max_pool2d
  - batch_norm: {scale: false, eps: 1e-12, momentum: 0.4}
  - gelu
  - flatten
  - dense: {units: 5, use_bias: false, name: head}
loss: {type: cross_entropy, label_smoothing: 0.2, reduction: sum}
train: {epochs: 2.5}
"""

SGD = """
optimizer:
  type: sgd
  lr: 0.01
  momentum: 0.85
  nesterov: true
  weight_decay: 0.02
  groups:
    - {parameters: whiten.weight, frozen: true}
    - {parameters: whiten.bias, freeze_after_epoch: 1}
    - {kind: shift, lr_factor: 64, weight_decay: 0.0003125}
  lookahead: {every: 3}
schedule: {type: piecewise, at_fractions: [0, 0.23, 1], factors: [0.2, 1, 0.07]}
"""

MUON = """
optimizer:
  type: muon
  lr: 0.24
  momentum: 0.6
  iterations: 3
  rescale: true
  rest: {type: sgd, lr: 0.01, momentum: 0.85, nesterov: true, weight_decay: 0.02}
  groups:
    - {parameters: whiten.weight, frozen: true}
    - parameters: whiten.bias
      lr: 0.005
      freeze_after_epoch: 1
      schedule: {type: poly, max_epochs: 1}
    - {parameters: head.*, lr: 0.03}
schedule: {type: poly}
"""

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
LOSSES = {
    "sgd": [
        *(12.911751472, 8.242329391, 11.958292951, 11.031756007, 9.559488013),
        *(9.859410119, 9.673434707, 9.073858644, 9.800523558, 9.792974181),
    ],
    "muon": [
        *(12.911751472, 8.957511576, 12.004327322, 12.626816325, 8.583899619),
        *(8.025548311, 8.042646387, 8.244269981, 7.923833987, 7.318513735),
    ],
}
ENDS = {
    "sgd": {
        "whiten.bias": [0.333896325, 0.075388214, -0.313472311],
        "conv2d_2.weight": [0.403118177, -0.216451058, -0.298330737],
        "batch_norm_1.bias": [-3.728535894, -2.788126249, -1.798243135],
        "head.weight": [-0.271379834, -0.208320247, 0.320495193],
        "batch_norm_1.running_mean": [0.624222296, 0.465101141, 0.388725991],
    },
    "muon": {
        "whiten.bias": [0.312858098, 0.147528915, -0.357624403],
        "conv2d_2.weight": [0.363169794, -0.082467277, -0.187903603],
        "batch_norm_1.bias": [-0.045344501, -0.426945668, -0.00515448],
        "head.weight": [-0.096670955, -0.191062534, 0.172635463],
        "batch_norm_1.running_mean": [0.819789443, 0.575013303, 0.438998017],
    },
}


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

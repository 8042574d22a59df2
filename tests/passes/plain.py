"""A plain section for the tests of passes: a convolution, batch norm, dropout, a dense layer."""

from __future__ import annotations

from dnnstack.graph.graph import Tensor
from dnnstack.layers.build import LayerSpec, build_layers
from dnnstack.layers.losses.cross_entropy import CrossEntropyLoss
from dnnstack.optimizers.groups import Group
from dnnstack.optimizers.rules import Rule
from dnnstack.optimizers.sgd import Sgd
from dnnstack.passes.section import Section
from dnnstack.training.network import Network
from dnnstack.training.preprocessing import Preprocessing
from dnnstack.training.sections import Composition, Step

SHAPE, BATCH, EPOCH, TOTAL = (1, 3, 3), 4, 2, 8
SPECS = (
    LayerSpec("conv2d", options={"filters": 2, "kernel_size": 2, "use_bias": False}),
    LayerSpec("batch_norm", options={"momentum": 0.3}),
    LayerSpec("dropout"),
    LayerSpec("flatten"),
    LayerSpec("dense", options={"units": 2}),
)
NAMES = (
    *("conv2d_1.weight", "batch_norm_1.weight", "batch_norm_1.bias"),
    *("dense_1.weight", "dense_1.bias"),
)


def network() -> Network:
    return Network(build_layers(SPECS, SHAPE), CrossEntropyLoss(), SHAPE, 2)


def plain(groups: tuple[Group, ...] = (), rule: Rule | None = None) -> Section:
    scaling = Preprocessing((1.0,), (0.0,))
    composition = Composition(Sgd() if rule is None else rule, groups)
    step = Step(network(), BATCH, "toy", 16, EPOCH, TOTAL, scaling, composition, 0)
    graph = step.plain_graph("train", step.network)
    return composition.plain(graph, step.network.parameters(), TOTAL, EPOCH)


def parameter(name: str, *shape: int) -> Tensor:
    return Tensor(name, shape, "float32", "parameter")


WEIGHTS = tuple(
    parameter(name, *shape)
    for name, shape in zip(NAMES, ((2, 1, 2, 2), (2,), (2,), (2, 8), (2,)), strict=True)
)


def kept(family: str, of: Tensor) -> Tensor:
    return Tensor(f"{family}/{of.name}", of.shape, "float32", "state")

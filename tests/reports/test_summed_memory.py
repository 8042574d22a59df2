"""What ``summary`` says of memory is what the executables of the CPU hold, tensor by tensor.

Padding, copies in other layouts and tensors that take each other's place are the backend's own and
not counted. All is in float32: summary counts four bytes for a number of any precision.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import chain
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dnnstack.backends.base import Backend, Options
from dnnstack.backends.onednn.executable import OneDnnExecutable
from dnnstack.backends.reference.executable import ReferenceExecutable
from dnnstack.backends.select import open_backend
from dnnstack.configs import RunConfig, load_config, packaged_configs
from dnnstack.datasets import ImageSet
from dnnstack.graph.graph import Graph, Tensor
from dnnstack.graph.ops import Add, Reshape
from dnnstack.reports.summary import Memory, summarize
from dnnstack.training.assemble import build_network, describe_data
from dnnstack.training.augmentation import views_of
from dnnstack.training.normalization import preprocessing
from dnnstack.training.plan import make_plan
from dnnstack.training.sections import samples_needed, saved_tensors
from dnnstack.training.session import Session
from dnnstack.training.setup import Setup

from ..support.formulas import drawn_targets
from ..support.stored import tuples

BACKENDS = ("numpy", "onednn")
# Of their sizes NumPy would compute for minutes: what it holds before a step is compared.
LARGE = {"alexnet.yaml", "resnet18.yaml", "resnet50.yaml", "vgg16.yaml", "vgg16-bn.yaml"}
LARGE |= {"mobilenet-v2.yaml", "vit-tiny.yaml"}
# Batches that these need, or are.
WHOLE = {"lenet5-1998.yaml", "mlp-xor.yaml", "perceptron-nand.yaml", "perceptron.yaml"}
WHOLE |= {"linear-regression.yaml", "logistic.yaml", "mlp-regression.yaml"}
WHOLE |= {"toy-gradients.yaml", "toy-unroll.yaml"}
GROUPS = "optimizer.groups="
VARIED = tuples(__file__, "varied")


def setup_of(config: RunConfig) -> Setup:
    """A training on so few samples as the config allows, all of them black."""
    info = describe_data(config)
    few = samples_needed(config)
    count = few if info.train_count is None else min(max(few, 64), info.train_count)
    labels = np.arange(count, dtype=np.int32) % len(info.classes)
    if info.kind != "class":
        labels = drawn_targets(info.kind, (count, len(info.classes)), np.random.default_rng(1))
    pictures = np.zeros((count, *info.shape), np.float32 if info.floats else np.uint8)
    data = ImageSet("made/train", pictures, labels, info.classes, kind=info.kind)
    network, plan = build_network(config, info), make_plan(config, count)
    return Setup(config, network, preprocessing(config, info), plan, data)


@pytest.fixture(params=BACKENDS)
def device(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def opened(device: str) -> Backend:
    return open_backend("numpy" if device == "numpy" else "cpu", 1, print)


def overrides(device: str, *more: str) -> list[str]:
    # NumPy fuses what only a GPU runs as one, and keeps what lies between the parts.
    fusion = str(device != "numpy").lower()
    run = f"run={{precision: fp32, fusion: {fusion}, threads: 1, tune: false}}"
    return [run, *more]


def cut(name: str) -> list[str]:
    """Batches of a few pictures, and as few held back to validate on."""
    if name in WHOLE:
        return []
    validates = load_config(name).config.data.validation
    return [
        "data.batch_size=4",
        "data.evaluation_batch_size=3",
        f"data.validation={3 if validates else 0}",
    ]


def held_by(executable: Any, graph: Graph) -> dict[Tensor, int]:
    """Bytes of the numbers of what a section holds: its own tensors, and those that all share."""
    if isinstance(executable, ReferenceExecutable):
        own = executable._values.items()
        return {t: value.nbytes for t, value in own if t.section in (graph.name, "")}
    assert isinstance(executable, OneDnnExecutable)
    binder, store = executable._sections[graph.name], executable._store
    # What is left to the sum that alone reads it is counted, though never written.
    for tensor in binder.unscaled:
        (reader,) = graph.consumers(tensor)
        assert isinstance(reader, Add)
        assert tensor not in binder.memories
    arrays = (*binder.arrays.items(), *store.arrays.items())
    memories = (*binder.memories.items(), *store.memories.items())
    # A layout of blocks holds more numbers than the tensor has.
    found = {
        **{tensor: array.nbytes for tensor, array in arrays},
        **{tensor: 4 * prod(memory.descriptor.shape) for tensor, memory in memories},
        **{tensor: tensor.nbytes for tensor in binder.unscaled},
    }
    return {t: nbytes for t, nbytes in found.items() if t.section in (graph.name, "")}


def allocated(executable: Any, graphs: Iterable[Graph], statistics: Sequence[Tensor]) -> Memory:
    """The executable's own account, by the roles of tensors; shared ones count once."""
    sums = dict.fromkeys(Memory.__dataclass_fields__, 0)
    seen: set[Tensor] = set()
    for graph in graphs:
        phases = ("data", "forward", "loss")
        forward = {t for op in graph.ops if op.origin[0].phase in phases for t in op.writes()}
        views = {op.y for op in graph.ops if isinstance(op, Reshape)}
        for tensor, nbytes in held_by(executable, graph).items():
            if tensor not in seen and tensor not in views:
                kind = kind_of(tensor, statistics, tensor in forward)
                seen.add(tensor)
                if kind is not None:
                    sums[kind] += nbytes
    return Memory(**sums)


def kind_of(tensor: Tensor, statistics: Sequence[Tensor], forward: bool) -> str | None:
    if tensor in statistics:
        return "statistics"
    if tensor.role == "activation":
        return "activations" if forward else "activation_gradients"
    if tensor.role == "state" and tensor.dtype != "float32":
        return None  # counters and sums of metrics
    return {"parameter": "parameters", "gradient": "gradients", "state": "optimizer"}.get(
        tensor.role
    )


def training_memory(config: RunConfig, device: str, compute: bool = True) -> Memory:
    """What a session of the config holds: all that is shared, and the own of its largest step."""
    session = Session(setup_of(config), opened(device))
    statistics = session.network.running()
    try:
        phases = [
            [session.executable.graphs[g.name] for g in p.graphs()] for p in session.stretches
        ]
        if device == "numpy":
            if compute:
                session.initialize()
            for phase in session.stretches if compute else ():
                phase.go_to(session.executable, phase.first)
                session.executable.write(
                    phase.train["order"], np.zeros(phase.train["order"].size, np.int32)
                )
                phase.run(session.executable, 1)
        held = allocated(session.executable, chain.from_iterable(phases), statistics)
        steps = [allocated(session.executable, graphs, statistics) for graphs in phases]
        shared = {kind: getattr(held, kind) for kind in ("parameters", "statistics", "optimizer")}
        return max((replace(step, **shared) for step in steps), key=lambda need: need.total)
    finally:
        session.close()


@pytest.mark.parametrize("name", packaged_configs())
def test_a_packaged_config_takes_what_is_said(name: str, device: str) -> None:
    config = load_config(name, overrides(device, *cut(name))).config
    said = summarize(config, Path(name)).training
    compute = name not in LARGE
    held = training_memory(config, device, compute)
    if device == "numpy" and not compute:
        assert (held.optimizer, said.total > 0) == (said.optimizer, True)
    else:
        assert held == said
        # A gradient that is a view of another tensor is not counted twice.
        gradients = said.gradients + said.activation_gradients
        assert min(said.parameters, gradients, said.activations) > 0


@pytest.mark.parametrize("varied", VARIED)
def test_parts_freezing_and_averages_take_what_is_said(varied: str, device: str) -> None:
    changes = overrides(device, "data.batch_size=8", "data.validation=8", *VARIED[varied])
    config = load_config("lenet.yaml", changes).config
    assert training_memory(config, device) == summarize(config, Path("lenet.yaml")).training


@pytest.mark.parametrize("name", [name for name in packaged_configs() if name not in LARGE])
def test_an_evaluation_takes_what_is_said(name: str, device: str) -> None:
    config = load_config(name, overrides(device, *cut(name))).config
    said = summarize(config, Path(name)).evaluation
    setup, batch = setup_of(config), config.data.evaluation_batch_size
    network, scaling, data = setup.network, setup.scaling, setup.data
    views = views_of(config.evaluate.tta, config.evaluate.tta_share)
    graph = network.evaluate_graph(batch, "made", len(data), 1, scaling, views)
    options = Options(precision=config.run.precision, fusion=config.run.fusion)
    executable = opened(device).compile({graph.name: graph}, options)
    if device == "numpy":
        for tensor in network.learned():
            executable.write(tensor, np.zeros(tensor.shape, np.float32))
        executable.write(graph["images"], data.images)
        executable.write(graph["labels"], data.labels)
        executable.write(graph["order"], np.zeros(batch, np.int32))
        executable.run(graph.name)
    found = allocated(executable, executable.graphs.values(), network.running())
    executable.close()
    assert found == said


def test_a_checkpoint_is_as_large_as_what_is_said_to_last() -> None:
    """Of every config at its own size, the largest too."""
    for name in packaged_configs():
        config = load_config(name).config
        said = summarize(config, Path(name)).training
        saved = saved_tensors(config, build_network(config, describe_data(config)))
        kept = sum(tensor.nbytes for tensor in saved)
        assert kept == said.parameters + said.statistics + said.optimizer, name

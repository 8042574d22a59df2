"""What is told of a training's sections before it is the same as what the training compiles."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from dnnstack.backends.base import Options
from dnnstack.backends.cuda.backend import CudaBackend
from dnnstack.backends.cuda.memory_plan import MemoryPlan, plan_memory
from dnnstack.configs import RunConfig, load_config, packaged_configs
from dnnstack.datasets import DatasetInfo, ImageSet
from dnnstack.graph.graph import Graph
from dnnstack.graph.rewrites import rewritten
from dnnstack.reports.summary import summarize
from dnnstack.training.assemble import build_network, describe_data
from dnnstack.training.normalization import preprocessing
from dnnstack.training.plan import make_plan
from dnnstack.training.sections import expected_sections
from dnnstack.training.session import Session
from dnnstack.training.setup import Setup

from ..support.stored import tuples

FREEZE = "optimizer.groups=[{parameters: conv2d_1.*, freeze_after_epoch: 2}]"
VARIED = tuples(__file__, "varied")


KINDS = {
    "plain": {"train", "evaluate"},
    "parts": {"train", "update", "evaluate"},
    "frozen later": {"train", "evaluate"},
    "averaged": {"train", "evaluate"},
    "all": {"train", "update", "evaluate"},
    "no validation": {"train"},
}


class Stopped(Exception):
    """Raised by a backend that has seen what it was to compile."""


def compiled(config: RunConfig, info: DatasetInfo) -> dict[str, Graph]:
    """The sections that a session hands to its backend; 10,000 samples where nobody knows."""
    seen: dict[str, Graph] = {}

    def compile_(sections: dict[str, Graph], options: Options) -> Any:
        seen.update(sections)
        raise Stopped

    network, count = build_network(config, info), info.train_count or 10_000
    # Nobody looks into the pictures: all are the same byte.
    pictures = np.broadcast_to(np.uint8(0), (count, *info.shape))
    data = ImageSet("train", pictures, np.zeros(count, np.int32), info.classes)
    backend: Any = SimpleNamespace(name="none", pieces=1, compile=compile_)
    scaling, plan = preprocessing(config, info), make_plan(config, count)
    with pytest.raises(Stopped):
        Session(Setup(config, network, scaling, plan, data), backend)
    return seen


def gpu_plan(config: RunConfig, sections: dict[str, Graph]) -> MemoryPlan:
    rewrites = CudaBackend.rewrites if config.run.fusion else {}
    graphs = {name: rewritten(graph, rewrites) for name, graph in sections.items()}
    return plan_memory(graphs, config.run.precision, config.data.residency == "stream")


@pytest.mark.parametrize("name", packaged_configs())
def test_a_packaged_config_is_summed_up_as_it_is_compiled(name):
    config = load_config(name).config
    found = summarize(config, Path(name))
    info = describe_data(config)
    want = gpu_plan(config, compiled(config, info))
    if info.train_count is None:
        assert replace(found.gpu, data=0) == replace(want, data=0)
    else:
        assert found.gpu == want


@pytest.mark.parametrize("varied", VARIED)
def test_parts_freezing_and_averages_are_summed_up_as_they_are_compiled(varied):
    config = load_config("lenet.yaml", VARIED[varied]).config
    info, found = describe_data(config), summarize(config, Path("lenet.yaml"))
    sections = compiled(config, info)
    assert found.gpu == gpu_plan(config, sections)
    network = build_network(config, info)
    expected = expected_sections(config, network, preprocessing(config, info), info)
    assert [g.ops for g in expected.graphs().values()] == [g.ops for g in sections.values()]
    assert list(expected.graphs()) == list(sections)
    assert {name.partition("-")[0] for name in sections} == KINDS[varied]
    assert sum(name.startswith("train") for name in sections) == 1 + (FREEZE in VARIED[varied])
    # Every parameter of LeNet is trained at first.
    parameters = sum(p.tensor.nbytes for p in network.parameters())
    assert found.training.gradients == parameters
    assert found.gpu.gradients >= parameters
    # The momentum, sums over the four parts on two levels, averages.
    kinds = 1 + 2 * ("train.accumulate=4" in VARIED[varied]) + (varied in ("averaged", "all"))
    assert found.training.optimizer == kinds * parameters


@pytest.mark.parametrize(("known", "held"), [(30, 30), (None, 20)])
def test_validation_samples_of_its_own_are_counted_before_they_are_read(known, held):
    own = "{image_folder: {train: p, validation: v, size: 28, mode: grey, classes: 10}}"
    data = f"data={{dataset: {own}, batch_size: 64, evaluation_batch_size: 10}}"
    config = load_config("lenet.yaml", [data]).config
    if known is None:
        config = load_config("lenet.yaml", [data, "data.evaluation_batch_size=20"]).config
    info = replace(describe_data(config), train_count=64, validation_count=known)
    network, scaling = build_network(config, info), preprocessing(config, info)
    sections = expected_sections(config, network, scaling, info)
    orders = [graph["order"].size for graph in (sections.stretches[0].train, sections.evaluate)]
    assert orders == [64, held]
    assert sections.evaluate["images"].shape[0] == 64 + held


def test_an_unknown_size_counts_as_a_batch_and_what_is_held_back():
    for validation in ("0", "10", "0.25", "0.001"):
        config = load_config("lenet.yaml", [f"data.validation={validation}"]).config
        info = describe_data(config)
        unknown = DatasetInfo(info.name, info.shape, info.classes, None, None)
        network, scaling = build_network(config, info), preprocessing(config, info)
        sections = expected_sections(config, network, scaling, unknown)
        assert (sections.evaluate is None) == (validation == "0")
        assert sections.stretches[0].train["order"].size >= config.data.batch_size

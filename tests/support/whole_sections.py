"""The sections of whole trainings, as a backend gets them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from dnnstack.configs import load_config, parse_config
from dnnstack.datasets import ImageSet
from dnnstack.graph.graph import Graph
from dnnstack.training.assemble import build_network, describe_data
from dnnstack.training.normalization import preprocessing
from dnnstack.training.plan import make_plan
from dnnstack.training.session import Session
from dnnstack.training.setup import Setup
from numpy.typing import NDArray

from .formulas import drawn_targets
from .random_nets import pictures

FEW = ("data.batch_size=4", "data.evaluation_batch_size=3", "run.tune=false")
LARGE = {
    "lenet.yaml": 300,
    "lenet-best.yaml": 128,
    "mlp.yaml": 1000,
    "digits.yaml": 129,
    "cifar10-quick.yaml": 200,
    "cifar10-resnet9.yaml": 512,
    "cifar10-airbench-muon.yaml": 1000,
}
# Trainings that were drawn once, of which each has something that the others lack.
DRAWN: dict[str, dict[str, Any]] = json.loads(
    (Path(__file__).parent / "drawn_nets.json").read_text("utf-8")
)


class Found(Exception):
    """What a session would have compiled."""


class Recorder:
    """A backend that compiles nothing."""

    name = "recorder"
    pieces = 1

    def compile(self, sections: Mapping[str, Graph], options: object) -> Any:
        raise Found(sections)


def packaged_session(name: str, backend: Any, *overrides: str, count: int = 12) -> Session:
    """A training on a few pictures of noise; truth tables have no more than four."""
    config = load_config(name, [*FEW, *overrides]).config
    if config.data.dataset.type != "table":
        config = load_config(name, [*FEW, "data.validation=4", *overrides]).config
    info = describe_data(config)
    draw = np.random.default_rng(5)
    count = 4 if config.data.dataset.type == "table" else count
    images: NDArray[Any] = draw.integers(0, 256, (count, *info.shape), dtype=np.uint8)
    if info.floats:
        images = draw.normal(size=images.shape).astype(np.float32)
    labels = drawn_targets(info.kind, (count, len(info.classes)), draw)
    data = ImageSet(f"{info.name}/train", images, labels, info.classes, kind=info.kind)
    plan = make_plan(config, count)
    network = build_network(config, info)
    return Session(Setup(config, network, preprocessing(config, info), plan, data), backend)


def packaged_sections(name: str, *overrides: str) -> dict[str, Graph]:
    """Those of a config that ships, before any rewrite."""
    return _recorded(lambda backend: packaged_session(name, backend, *overrides))


def large_sections(name: str) -> dict[str, Graph]:
    """The same with a batch of LARGE, for which grids and sums are cut in other ways."""
    batch = LARGE[name]
    sizes = (f"data.batch_size={batch}", f"data.evaluation_batch_size={batch + 1}")
    count = batch + 4
    return _recorded(lambda backend: packaged_session(name, backend, *sizes, count=count))


def drawn_sections(name: str) -> dict[str, Graph]:
    """Those of a training that was drawn once."""
    drawn = DRAWN[name]
    config = parse_config(json.dumps(drawn["config"]), "drawn.yaml")
    info, data = pictures(tuple(drawn["shape"]), drawn["classes"], drawn["count"], 1)
    network, plan = build_network(config, info), make_plan(config, len(data))
    setup = Setup(config, network, preprocessing(config, info), plan, data)
    return _recorded(lambda backend: Session(setup, backend))


def _recorded(make: Any) -> dict[str, Graph]:
    try:
        make(Recorder())
    except Found as found:
        return dict(found.args[0])
    raise AssertionError("nothing was compiled")

"""Random trainings in which all that a run adds to a step comes together: parts, ranks, averages.

A seed says what is drawn, by random numbers of our own, so that digests of what comes out can be
kept: those in ``passes/lists.json`` are of the lists that the training had before it was composed
of passes. ``python -m tests.support.mixtures`` writes them anew, after a change that is meant.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from dnnstack.backends.base import Options
from dnnstack.backends.reference.backend import ReferenceBackend
from dnnstack.common import random
from dnnstack.common.errors import ConfigError, ShapeError
from dnnstack.configs import RunConfig
from dnnstack.datasets import DatasetInfo, ImageSet
from dnnstack.graph.graph import Graph, Op
from dnnstack.training.assemble import build_network
from dnnstack.training.plan import make_plan
from dnnstack.training.preprocessing import Preprocessing
from dnnstack.training.ranks.shard import Shard, check
from dnnstack.training.sections import Sections, saved_tensors
from dnnstack.training.setup import Setup
from dnnstack.training.share import RankShare

T = TypeVar("T")
SHAPE, CLASSES, COUNT = (2, 8, 6), 6, 64
INFO = DatasetInfo("drawn", SHAPE, tuple(map(str, range(CLASSES))), COUNT, None)
SCALING = Preprocessing((1 / 255, 1 / 128), (-0.4, 0.1))
Layer = str | dict[str, Any]


class Draw:
    """Choices that follow from a seed."""

    def __init__(self, seed: int) -> None:
        self._key = random.key(seed, "mixture", "")
        self._count = 0

    def below(self, count: int) -> int:
        self._count += 1
        return int(random.uniform(self._key, self._count, 1)[0] * count)

    def one(self, values: Sequence[T]) -> T:
        return values[self.below(len(values))]

    def happens(self, percent: int) -> bool:
        return self.below(100) < percent


def _conv(draw: Draw, way: str, **more: Any) -> Layer:
    options: dict[str, Any] = {
        "filters": draw.one([2, 4]),
        "kernel_size": draw.one([1, 3]),
        "padding": "same",
        "use_bias": draw.happens(50),
        "stride": draw.one([1, 1, 2]) if way else 1,
        "algorithm": draw.one(["auto", "im2col"]),
    }
    if way == "space" or (way == "units" and draw.happens(60)):
        options["parallel"] = {"split": "space" if way == "space" else "filters"}
    return {"conv2d": {**options, **more}}


def _pictures(draw: Draw, way: str) -> list[Layer]:
    found: list[Layer] = []
    for _ in range(1 + draw.below(3)):
        found.append(_conv(draw, way))
        if draw.happens(70):
            found.append(draw.one(["relu", "tanh", "prelu", "lrn", "leaky_relu"]))
        if way == "space":
            continue
        if draw.happens(60):
            found.append(
                {
                    "batch_norm": {
                        "momentum": draw.one([0.1, 0.3]),
                        "scale": draw.happens(70),
                        "center": draw.happens(70),
                    }
                }
            )
        if draw.happens(30):
            found.append({"dropout": {"rate": 0.3}})
    if way == "space":
        if draw.happens(40):
            found.append({"max_pool2d": {"pool_size": 2, "parallel": {"split": "space"}}})
        return found
    if draw.happens(40):
        body: dict[str, Any] = {"filters": 4, "kernel_size": 3, "padding": "same"}
        if way == "units" and draw.happens(50):
            body["parallel"] = {"split": "filters"}
        body_layers = [{"conv2d": body}, "batch_norm"]
        found.append({"residual": {"body": body_layers, "shortcut": "projection"}})
    if draw.happens(25):
        narrow = _conv(draw, way, stride=1)
        found.append({"concat": {"branches": [[narrow], ["relu"] if draw.happens(50) else []]}})
    return found


def _features(draw: Draw, way: str) -> list[Layer]:
    found: list[Layer] = []
    for _ in range(draw.below(3)):
        options: dict[str, Any] = {"units": draw.one([4, 8]), "use_bias": draw.happens(70)}
        if way == "units" and draw.happens(60):
            options["parallel"] = {"split": "units"}
        dense: Layer = {"dense": options}
        found += [{"sequential": {"layers": [dense]}} if draw.happens(20) else dense, "relu"]
        if draw.happens(30):
            found.append({"dropout": {"rate": 0.3}})
    last: dict[str, Any] = {"units": CLASSES}
    if way == "units" and draw.happens(40):
        last["parallel"] = {"split": "units"}
    return [*found, {"dense": last}]


def _optimizer(draw: Draw, names: Sequence[str]) -> dict[str, Any]:
    kind = draw.one(["sgd", "sgd", "adam", "adamw", "adagrad", "muon"])
    found: dict[str, Any] = {"type": kind, "lr": 0.01, "weight_decay": draw.one([0.0, 0.01])}
    found["weight_decay_on"] = draw.one(["all", "weights"])
    if kind == "sgd":
        found["momentum"] = draw.one([0.0, 0.9])
    if kind == "muon":
        found["rest"] = {"type": draw.one(["sgd", "adam"]), "lr": draw.one([0.01, 0.02])}
        del found["weight_decay_on"]
    if draw.happens(50):
        found["clip_norm"] = 1.0
    groups: list[dict[str, Any]] = []
    left = [*names]
    for _ in range(draw.below(4)):
        if len(left) < 2:
            break
        name = left.pop(draw.below(len(left)))
        group: dict[str, Any] = {"parameters": [name]}
        if draw.happens(50):
            group |= draw.one([{"lr_factor": 2.0}, {"lr": 0.02}, {"schedule": {"type": "cosine"}}])
        if draw.happens(30):
            group["weight_decay"] = 0.5
        begin = draw.one([0, 0, 1, 2])
        if begin:
            group["freeze_until_epoch"] = begin
        if draw.happens(40):
            group["freeze_after_epoch"] = begin + draw.one([1, 2])
        if len(group) == 1:
            group["frozen"] = True
        groups.append(group)
    if groups:
        found["groups"] = groups
    if draw.happens(30):
        found["lookahead"] = {"every": 2}
    average = draw.below(5)
    if average == 1:
        found["ema"] = {"decay": 0.9}
    if average > 2:
        found["swa"] = {"start_step": 2}
    return found


def _compression(draw: Draw, averaged: bool) -> dict[str, Any]:
    """Averages of weights that share their values are refused."""
    pruned = {"prune": {"keep": draw.one([{"*.weight": 0.5}, {"conv2d_1.weight": 0.5}])}}
    shared = {"share": {"bits": draw.one([{"*.weight": 2}, {"conv2d_1.weight": 3}])}}
    ways: list[dict[str, Any]] = [{}, {}, pruned, shared, {**pruned, **shared}]
    return draw.one(ways[:3] if averaged else ways)


def mixture(seed: int) -> tuple[dict[str, Any], RankShare, int]:
    """A config as plain data, what a rank computes of it, and the pieces of its sums."""
    draw = Draw(seed)
    way = draw.one(["", "", "units", "space"])
    server = not way and draw.happens(15)
    layers = [*_pictures(draw, way), "flatten", *_features(draw, way)]
    base = {
        "name": "drawn",
        "seed": draw.below(1000),
        "layers": layers,
        "optimizer": {"type": "sgd", "lr": 0.1},
        "train": {"max_steps": 12},
    }
    ranks = 1 if server else draw.one([1, 2, 3]) if way != "units" else 2
    parts = 1 if server else draw.one([1, 1, 2, 4]) * (ranks if way != "space" else 1)
    base["data"] = {"dataset": "strokes", "batch_size": parts * draw.one([2, 4]), "validation": 4}
    network = build_network(RunConfig.model_validate(base), INFO)
    if draw.happens(20):
        able = [layer.name for layer in network.layers if layer.parameters()]
        if len(able) > 1:
            base["freeze"] = [draw.one(able)]
    network = build_network(RunConfig.model_validate(base), INFO)
    names = [p.tensor.name for p in network.parameters() if not p.frozen]
    base["optimizer"] = _optimizer(draw, names)
    if not server:
        averaged = bool({"ema", "lookahead", "swa"} & base["optimizer"].keys())
        base |= _compression(draw, averaged)
    base["train"] = {"max_steps": 40, "accumulate": parts}
    if draw.happens(40):
        base["data"]["augment"] = draw.one(
            [["random_flip"], ["alternating_flip", {"random_crop": {"padding": 1}}]]
        )
    if draw.happens(30):
        base["schedule"] = {"type": "cosine", "min_lr": 0.001}
    if draw.happens(20):
        base["evaluate"] = {"tta": "mirror"}
    base["loss"] = draw.one(
        [
            {"type": "cross_entropy"},
            {"type": "cross_entropy", "reduction": "sum"},
            {"type": "hinge"},
        ]
    )
    if server:
        base["parallel"] = {"mode": "async", "servers": draw.one([1, 2])}
    elif draw.happens(40):
        base["parallel"] = {"buckets": draw.one([2, 3])}
    return base, RankShare(draw.below(ranks), ranks), draw.one([1, 1, 3])


class _Idle(ReferenceBackend):
    """Keeps what it is given to compile."""

    def compile(self, sections: Mapping[str, Graph], options: Options | None = None) -> Any:
        self.sections = dict(sections)
        return super().compile(sections, options)


def setup_of(seed: int) -> tuple[Setup, int]:
    plain, share, pieces = mixture(seed)
    config = RunConfig.model_validate(plain)
    network = build_network(config, INFO)
    images = np.zeros((COUNT, *SHAPE), np.uint8)
    data = ImageSet("drawn/train", images, np.zeros(COUNT, np.int32), INFO.classes)
    return Setup(config, network, SCALING, make_plan(config, COUNT), data, share=share), pieces


def _shown(op: Op) -> str:
    """Its fields but those that have their default value, so that a new one changes nothing."""
    given = ((f.name, getattr(op, f.name)) for f in fields(op) if getattr(op, f.name) != f.default)
    return f"  {type(op).__name__}: " + ", ".join(f"{name}={value}" for name, value in given)


def listed(graph: Graph) -> list[str]:
    """What the section is called, its results and its operations."""
    results = [f"  {name}: {graph.results[name]}" for name in sorted(graph.results)]
    frame = f"{graph.name} of {graph.batch_size}, training {graph.training}"
    return [frame, *results, *map(_shown, graph.ops)]


def lines(seed: int) -> list[str]:
    """The operations of all sections of a drawn training, and what a checkpoint of it holds.

    Of one that is refused the message alone.
    """
    try:
        setup, pieces = setup_of(seed)
        sections = setup.sections(pieces)
    except (ConfigError, ShapeError) as error:
        return [f"{type(error).__name__}: {error}"]
    found = [
        *(
            f"{each.first} {each.parts} Share(rank={each.share.rank}, ranks={each.share.ranks}) "
            f"{each.own}"
            for each in sections.stretches
        ),
        *(line for graph in sections.graphs().values() for line in listed(graph)),
        *_measured(sections),
        *sorted(map(str, saved_tensors(setup.config, setup.network))),
    ]
    if setup.config.is_asynchronous:
        assert setup.config.parallel is not None
        servers = setup.config.parallel.servers
        try:
            check(setup, servers)
            for server in range(servers):
                backend = _Idle(1)
                Shard(setup, backend, server, servers)
                found += [line for graph in backend.sections.values() for line in listed(graph)]
        except ConfigError as error:
            found.append(str(error))
    return found


def _measured(sections: Sections) -> list[str]:
    if sections.renewal is None:
        return []
    renewed = sections.renewal
    move = renewed.move
    values = zip(move.spans(), move.weight, move.momentum, strict=True)
    factors = [f"{average} {place} {weight / m}" for (average, place), weight, m in values]
    return [f"{move.kept} {renewed.steps} {renewed.first}", *factors]


def digest(seed: int) -> str:
    """The first letters of the hash of all lines."""
    return sha256("\n".join(lines(seed)).encode()).hexdigest()[:16]


if __name__ == "__main__":
    kept = Path(__file__).parents[1] / "passes" / "lists.json"
    found = {str(seed): digest(seed) for seed in range(80)}
    kept.write_text(json.dumps(found, indent=1) + "\n", "utf-8")

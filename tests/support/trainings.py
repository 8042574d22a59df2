"""Small trainings in memory, and what they end with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from dnnstack.backends.base import Backend, Executable, Options
from dnnstack.configs import RunConfig
from dnnstack.graph.graph import Graph
from dnnstack.layers.losses import LOSSES
from dnnstack.training.assemble import build_network, describe_data, load_data
from dnnstack.training.listener import Summary
from dnnstack.training.normalization import preprocessing
from dnnstack.training.plan import make_plan
from dnnstack.training.records.formats.checkpoint import Checkpoint, read_checkpoint
from dnnstack.training.session import Session
from dnnstack.training.setup import Setup
from dnnstack.training.trainer import train

from .formulas import drawn_targets

NOWHERE = Path("unused")


class Counting:
    """A backend that notes the executables it has made, and which of them were closed."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self.made: list[Executable] = []
        self.closed: list[int] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    def compile(self, sections: Mapping[str, Graph], options: Options | None = None) -> Executable:
        made = self._backend.compile(sections, options)
        close, number = made.close, len(self.made)

        def noted() -> None:
            self.closed.append(number)
            close()

        made.close = noted  # type: ignore[method-assign]
        self.made.append(made)
        return made


def same(one: Checkpoint, other: Checkpoint) -> None:
    assert one.state == other.state
    assert one.arrays.keys() == other.arrays.keys()
    for name, array in one.arrays.items():
        np.testing.assert_array_equal(array, other.arrays[name], err_msg=name)


def session_of(config: RunConfig, backend: Backend) -> Session:
    """On the config's data; where its loss takes no classes, with targets of its own kind."""
    info = describe_data(config)
    data = load_data(config, "train", NOWHERE)
    kind = LOSSES[config.loss.type].kinds[0]
    if kind != "class":
        targets = drawn_targets(kind, (len(data), len(data.classes)), np.random.default_rng(1))
        info, data = replace(info, kind=kind), replace(data, labels=targets, kind=kind)
    network = build_network(config, info)
    plan = make_plan(config, len(data))
    session = Session(Setup(config, network, preprocessing(config, info), plan, data), backend)
    session.initialize()
    return session


def end_of(summary: Summary) -> Checkpoint:
    assert summary.checkpoint is not None
    return read_checkpoint(summary.checkpoint)


def go(config: RunConfig, backend: Backend) -> Checkpoint:
    return end_of(train(config, backend, NOWHERE))

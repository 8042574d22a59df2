"""Trainings on few drawn digits, whose data is looked at."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from dnnstack.backends.base import Backend
from dnnstack.configs import RunConfig
from dnnstack.datasets import describe, load
from dnnstack.training.assemble import build_network
from dnnstack.training.normalization import preprocessing
from dnnstack.training.plan import make_plan
from dnnstack.training.session import Session
from dnnstack.training.setup import Setup

Tiny = Callable[..., RunConfig]


MEASURED = "data.normalize=measured"
OPTIONS = {"train_count": 200, "test_count": 20}


def with_session(config: RunConfig, backend: Backend, use: Callable[[Session], None]) -> None:
    info = describe("strokes", options=OPTIONS)
    data = load("strokes", "train", root=Path("unused"), options=OPTIONS)
    network, scaling = build_network(config, info), preprocessing(config, info)
    session = Session(Setup(config, network, scaling, make_plan(config, len(data)), data), backend)
    try:
        session.initialize()
        use(session)
    finally:
        session.close()

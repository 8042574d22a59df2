"""Small trainings in memory, and what they end with."""

from __future__ import annotations

from pathlib import Path

from dnnstack.backends.base import Backend
from dnnstack.configs import RunConfig
from dnnstack.training.assemble import build_network, describe_data, load_data, preprocessing
from dnnstack.training.listener import Summary
from dnnstack.training.plan import make_plan
from dnnstack.training.records.checkpoint import Checkpoint, read_checkpoint
from dnnstack.training.session import Session
from dnnstack.training.setup import Setup
from dnnstack.training.trainer import train

NOWHERE = Path("unused")


def session_of(config: RunConfig, backend: Backend) -> Session:
    info = describe_data(config)
    network = build_network(config, info)
    data = load_data(config, "train", NOWHERE)
    plan = make_plan(config, len(data))
    session = Session(Setup(config, network, preprocessing(config, info), plan, data), backend)
    session.initialize()
    return session


def end_of(summary: Summary) -> Checkpoint:
    assert summary.checkpoint is not None
    return read_checkpoint(summary.checkpoint)


def go(config: RunConfig, backend: Backend) -> Checkpoint:
    return end_of(train(config, backend, NOWHERE))

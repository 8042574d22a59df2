"""The other ranks: they do what rank 0 says, and nothing else can be seen of them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ...backends.base import Backend
from ...backends.collectives import join
from ...backends.tuning import UNEQUAL, Tuning
from ...common.errors import DnnstackError
from ...common.typed_json import from_json
from ...configs import RunConfig, parse_config
from ...datasets import Downloads
from ...datasets.columns import Columns
from ..assemble import build_network, describe_data, load_data
from ..network_size import check_memory
from ..normalization import of_trained_rows
from ..plan import make_plan
from ..preprocessing import Preprocessing
from ..records.formats.state import Snapshot
from ..session import Session
from ..setup import Setup
from ..share import ALONE, RankShare
from ..splits import divide
from .leader import SAME, dealt_out, gathered, marks, put
from .post import Lost, Post
from .servers import serve, servers_of
from .shard import Shard
from .team import Team
from .worker import Worker, delay_of
from .world import RanksError


def follow(
    team: Team,
    config: RunConfig,
    backend: Backend,
    data_root: Path,
    downloads: Downloads | None = None,
) -> None:
    """Train as rank 0 says, until it ends: ToldElsewhere if it says why, else RanksError."""
    if not config.is_asynchronous:
        join(team)
    with team.together():
        info = describe_data(config, data_root)
    data = team.in_turn(lambda: load_data(config, "train", data_root, downloads))
    with team.together():
        pass
    told = json.loads(team.hear())
    with team.together():
        known = told["columns"] and from_json(json.dumps(told["columns"]), Columns)
        if data.columns is not None and known is not None:
            same, data = known.unsettled() == data.columns.unsettled(), replace(data, columns=known)
            known = None if same else known
        if known is not None or told["bits"] not in (None, data.bits):
            # A resumed training keeps the columns or the depth that it began with.
            known = known or told["bits"]
            info = describe_data(config, data_root, known)
            data = load_data(config, "train", data_root, downloads, known)
        # Its precision may be another than that of the config, as may be what was measured.
        computed = parse_config(told["config"], "the config of rank 0", ("run.tune=false",))
        scaling = Preprocessing(*(tuple(told["scaling"][key]) for key in ("scale", "shift")))
        if told["taken"] is None:
            parts = divide(computed, data.labels, data.held)
        else:
            info = replace(info, classes=tuple(told["taken"]["classes"]))
            rows, labels, *own = told["taken"]["places"]
            rows, *own = (np.array(each, np.int32) for each in (rows, *own))
            labels = np.array(labels, data.labels.dtype)
            data, parts = data.taken(rows, labels, info.classes), (own[0], own[1])
        data = of_trained_rows(data, parts[0])
        network = build_network(config, info)
        check_memory(network, backend)
        plan = make_plan(computed, len(data), True, parts)
        share = ALONE if config.is_asynchronous else RankShare(team.rank, team.size)
        setup = Setup(computed, network, scaling, plan, data, share=share)
        session = Session(setup, backend, Tuning(**told["tuning"]))
        # What rank 0 has told already, such as an operation without a kernel, is no difference.
        unequal = [notice for notice in session.executable.notices if UNEQUAL in notice]
        if unequal:
            raise RanksError(*unequal)
    team.agree(marks(session), SAME)
    team.begins()
    try:
        if config.is_asynchronous:
            _serve_or_work(team, session, backend)
            # MPI counts messages that a lost rank has left.
            team.muted = True
        else:
            _obey(team, session, backend)
    except (DnnstackError, Lost) as error:
        raise RanksError(f"{team.named(team.rank)}: {error}") from None
    session.close()
    join(None)
    team.parted = True


def _serve_or_work(team: Team, session: Session, backend: Backend) -> None:
    """Hold a part of the parameters, or compute gradients, until rank 0 closes its session."""
    config = session.setup.config
    servers = servers_of(config)
    if team.rank < servers:
        serve(session, Shard(session.setup, backend, team.rank, servers), team)
        return
    Worker(session, Post(team), servers, delay_of(config, team.rank - servers)).work()


def _obey(team: Team, session: Session, backend: Backend) -> None:
    """Do what rank 0 says until it closes its session."""

    delay = delay_of(session.setup.config, team.rank)

    def run(steps: int) -> None:
        time.sleep(steps * delay)
        with team.answering(backend):
            session.run(steps)

    def renew(first: int, count: int) -> None:
        with team.answering(backend):
            session.renew_part(first, count)

    done: dict[str, Callable[..., Any]] = {
        "put": lambda step: put(session, team, _room(session, step), session.put),
        "set_rate_factor": session.set_rate_factor,
        "run": run,
        "validate": lambda first, count: dealt_out(session, team, first, count),
        "renew": renew,
        "check": lambda: gathered(session, team, session.arrays()),
    }
    while (told := json.loads(team.hear()))["do"] != "close":
        done[told.pop("do")](**told)


def _room(session: Session, step: int) -> Snapshot:
    """A snapshot to be filled."""
    arrays = {name: np.empty(shape, np.float32) for name, shape in session.shapes().items()}
    return Snapshot(step, np.zeros(3), arrays)

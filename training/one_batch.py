"""One batch alone: a session whose every tensor can be read, or that trains on nothing else."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..backends.base import Backend
from ..backends.tuning import Tuning
from ..datasets.loader import Index
from .orders import EpochOrders
from .records.formats.state import Snapshot
from .sections import Sections
from .session import Session
from .setup import Setup, class_weights


class _Whole(Setup):
    """One whose graphs keep all that they compute."""

    def sections(self, pieces: int = 1) -> Sections:
        found = super().sections(pieces)
        for graph in found.graphs().values():
            graph.results |= {t.name: t for op in graph.ops for t in op.writes()}
        return found


def first_samples(setup: Setup, count: int) -> Index:
    """The first ``count`` samples to train on, or fewer if an epoch has fewer."""
    plan, data = setup.plan, setup.config.data
    labels = setup.data.labels if data.balance else None
    with closing(EpochOrders(plan, setup.config.seed, labels, data.shuffle is not False)) as orders:
        return orders.of(0)[:count]


def on_batch(
    setup: Setup,
    rows: Index,
    backend: Backend,
    arrays: dict[str, NDArray[np.float32]],
    steps: int = 1,
    whole: bool = False,
    tuning: Tuning | None = None,
    **run: Any,
) -> Session:
    """A session before its first step, which trains on the samples ``rows`` alone, in one part.

    Every step has the mean rate of the training. arrays: those of ``Setup.fresh``. ``whole``:
    without fusion, and so that every tensor can be read. run: changes of the config's ``run``.
    """
    config, plan, data = setup.config, setup.plan, setup.data
    weights = class_weights(config, data, plan.train) or None
    run |= {"fusion": False, "tune": False} if whole else {}
    changes = {
        "run": config.run.model_copy(update=run),
        "data": config.data.model_copy(update={"shuffle": False, "balance": None, "fold": None}),
        "loss": config.loss.model_copy(update={"class_weights": weights}),
        "train": config.train.model_copy(update={"accumulate": 1}),
        "optimizer": config.optimizer.model_copy(update={"swa": None}),
        "parallel": None,
    }
    length = max(plan.total_steps, steps)
    alone = replace(
        plan,
        train=np.tile(np.arange(len(rows), dtype=np.int32), plan.steps_per_epoch),
        validation=np.zeros(0, np.int32),
        batch_size=len(rows),
        total_steps=length,
        rates=np.full(length, plan.rates.mean(), np.float32),
        tables={k: np.full(length, v.mean(), np.float32) for k, v in plan.tables.items()},
    )
    made, taken = _Whole if whole else Setup, data.taken(rows, data.labels[rows], data.classes)
    config = config.model_copy(update=changes)
    chosen = made(config, setup.network, setup.scaling, alone, taken)
    session = Session(chosen, backend, tuning)
    session.put(Snapshot(0, np.zeros(3), arrays))
    return session

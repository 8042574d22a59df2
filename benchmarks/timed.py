"""Trainings of whole recipes, timed as the author of airbench does it, in this process.

After a warm-up, with the data on the device: whitening, training, and the evaluation of the judged
pictures with all their views; not loading, compiling or drawing the other initial values.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any

import numpy as np

# Steps that one captured graph of dnnstack's holds.
TOGETHER = 8


@dataclass
class Trainings:
    """dnnstack's own sessions on all of ``train``, judged on ``judged``, which is no part of it."""

    backend: Any
    train: Any
    judged: Any

    def __post_init__(self) -> None:
        images = np.concatenate([self.train.images, self.judged.images])
        labels = np.concatenate([self.train.labels, self.judged.labels])
        # What nobody can change need not be copied to the device again.
        images.setflags(write=False)
        # The judged pictures are behind the training set, as validation.
        self._data = replace(self.train, images=images, labels=labels)

    def session(self, config: Any, tuning: Any = None) -> Any:
        """A session of a config; ``tuning``: that of an earlier one of the same shapes."""
        from dnnstack.datasets import describe
        from dnnstack.training.assemble import build_network, preprocessing
        from dnnstack.training.plan import make_plan
        from dnnstack.training.session import Session
        from dnnstack.training.setup import Setup

        info = describe(config.data.dataset.type)
        network, scaling = build_network(config, info), preprocessing(config, info)
        plan = replace(
            # Planned without validation, so that all training pictures are trained on.
            make_plan(config, len(self.train)),
            validation=np.arange(len(self.train), len(self._data), dtype=np.int32),
            evaluation_batch_size=config.data.evaluation_batch_size,
        )
        return Session(Setup(config, network, scaling, plan, self._data), self.backend, tuning)

    def run(self, config: Any, tuning: Any = None) -> dict[str, Any]:
        """Train once; accuracy, seconds and their parts. ``config``: without validation samples."""
        begin = perf_counter()
        session = self.session(config, tuning)
        started = perf_counter() - begin
        try:
            session.initialize()
            fresh = session.snapshot()
            warm_up(session)
            session.put(fresh)
            begin = perf_counter()
            self._whiten(session)
            whitened = perf_counter()
            while session.step < session.plan.total_steps:
                done = session.step % session.plan.steps_per_epoch
                left = session.plan.total_steps - session.step
                session.run(min(session.plan.steps_per_epoch - done, left), wait=False)
            # Reading waits for what was launched.
            session.sums()
            trained = perf_counter()
            found = session.validate()
            end = perf_counter()
            table = session.executable.tuning
        finally:
            session.close()
        parts = {
            "whitening": whitened - begin,
            "training": trained - whitened,
            "evaluation": end - trained,
        }
        return {
            "accuracy": found.accuracy,
            "correct": found.correct,
            "count": found.count,
            "steps": session.plan.total_steps,
            "seconds": end - begin,
            "parts": parts,
            "compiling": started,
            "tuning": table,
        }

    def _whiten(self, session: Any) -> None:
        from dnnstack.common.machine import available_threads
        from dnnstack.layers.whitening import Whiten

        for each in session.network.parameters():
            if isinstance(each.initializer, Whiten):
                pictures = session.first_pictures(each.initializer.samples)
                shape, threads = each.tensor.shape, available_threads()
                filters = each.initializer.from_pictures(shape, pictures, threads)
                session.executable.write(each.tensor, filters)


def warm_up(session: Any) -> None:
    """Run every section as the timed part does, for what first runs is captured.

    A GPU's graphs hold eight steps where so many are asked for, else one.
    """
    for steps in (min(TOGETHER, session.plan.steps_per_epoch), 1):
        session.run(steps)
        for phase in session.stretches[1:]:
            phase.run(session.executable, steps)
    session.validate()

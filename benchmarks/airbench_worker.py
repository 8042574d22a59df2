"""One peer of airbench.py in a process of its own: it trains once for each seed that it is told.

A line on standard input is a seed; the answer is a JSON line: accuracy, seconds and their parts.
Before the first, a warm-up is answered by the versions.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

CONFIGS = {"sgd": "cifar10-airbench.yaml", "muon": "cifar10-airbench-muon.yaml"}
# Pictures of a training and a test set, and of a batch where that is another.
SIZES, TINY, TINY_BATCH = (50_000, 10_000), (160, 50), 16
# Steps that one captured graph of dnnstack's holds.
TOGETHER = 8


def pictures(options: dict[str, Any]) -> tuple[Any, Any]:
    """Training and test set as dnnstack loads them, or noise of their size."""
    from dnnstack.datasets import ImageSet, data_root, load

    if not options["noise"]:
        root = data_root(Path(options["data"]) if options["data"] else None, None)
        train, test = (load("cifar10", split, root=root) for split in ("train", "test"))
        return train, test
    draw = np.random.default_rng(1)
    made = []
    for split, count in zip(("train", "test"), TINY if options["tiny"] else SIZES, strict=True):
        images = draw.integers(0, 256, (count, 3, 32, 32), np.uint8)
        labels = draw.integers(0, 10, count).astype(np.int32)
        made.append(ImageSet(f"noise/{split}", images, labels, tuple("0123456789")))
    return made[0], made[1]


class Ours:
    """dnnstack's own training session; the test set is behind the training set, as validation."""

    def __init__(self, options: dict[str, Any], train: Any, test: Any) -> None:
        from dnnstack.backends.select import open_backend

        self._options = options
        self._count = len(train)
        images = np.concatenate([train.images, test.images])
        labels = np.concatenate([train.labels, test.labels])
        self._data = replace(train, images=images, labels=labels)
        self._backend = open_backend("cuda" if options["device"] == "cuda" else "cpu")
        self._tuning: Any = None

    def versions(self) -> str:
        found = self._backend.versions().items()
        return ", ".join(f"{name} {version}" for name, version in found)

    def _config(self, seed: int) -> Any:
        from dnnstack.configs import load_config

        tune = {"none": "false", "auto": "auto", "search": "true"}[self._options["tune"]]
        changed = [f"seed={seed}", f"run.tune={tune}", "data.evaluation_batch_size=2000"]
        if self._options["device"] == "cuda":
            changed.append(f"run.precision={self._options['precision']}")
        if self._options["tiny"]:
            changed += [f"data.batch_size={TINY_BATCH}", "data.evaluation_batch_size=50"]
            changed += ["train={max_steps: 35}"]
        return load_config(CONFIGS[self._options["recipe"]], changed).config

    def train(self, seed: int) -> dict[str, Any]:
        from dnnstack.common.machine import available_threads
        from dnnstack.datasets import describe
        from dnnstack.layers.whitening import Whiten
        from dnnstack.training.assemble import build_network, preprocessing
        from dnnstack.training.plan import make_plan
        from dnnstack.training.preprocessing import Prepared
        from dnnstack.training.session import Session
        from dnnstack.training.setup import Setup

        config = self._config(seed)
        info = describe("cifar10")
        network = build_network(config, info)
        scaling = preprocessing(config, info)
        total = len(self._data)
        plan = make_plan(config, self._count)
        # Planned without validation, so that all training pictures are trained on.
        plan = replace(
            plan,
            validation=np.arange(self._count, total, dtype=np.int32),
            evaluation_batch_size=config.data.evaluation_batch_size,
        )
        session = Session(
            Setup(config, network, scaling, plan, self._data), self._backend, self._tuning
        )
        try:
            self._tuning = session.executable.tuning
            session.initialize()
            self._warm_up(session)
            session.initialize()

            begin = perf_counter()
            first = next(p for p in network.parameters() if isinstance(p.initializer, Whiten))
            rows = plan.train[: first.initializer.samples]
            chosen = Prepared(self._data.images, rows, scaling)
            filters = first.initializer.from_pictures(
                first.tensor.shape, chosen, available_threads()
            )
            session.executable.write(first.tensor, filters)
            whitened = perf_counter()
            while session.step < plan.total_steps:
                done = session.step % plan.steps_per_epoch
                left = plan.total_steps - session.step
                session.run(min(plan.steps_per_epoch - done, left))
            trained = perf_counter()
            found = session.validate()
            end = perf_counter()
        finally:
            session.close()
        assert found is not None
        parts = {
            "whitening": whitened - begin,
            "training": trained - whitened,
            "evaluation": end - trained,
        }
        return {"accuracy": found.accuracy, "seconds": end - begin, "parts": parts}

    def _warm_up(self, session: Any) -> None:
        """Run every section as the timed part does, for what first runs is captured.

        A GPU's graphs hold eight steps where so many are asked for, else one.
        """
        for steps in (min(TOGETHER, session.plan.steps_per_epoch), 1):
            session.run(steps)
            for phase in session.stretches[1:]:
                phase.run(session.executable, steps)
        session.validate()


def make(options: dict[str, Any]) -> Any:
    train, test = pictures(options)
    if options["peer"] == "dnnstack":
        return Ours(options, train, test)
    from airbench_torch import Theirs

    batch = TINY_BATCH if options["tiny"] else {"sgd": 1024, "muon": 2000}[options["recipe"]]
    return Theirs(options, train, test, batch)


def main() -> None:
    options = json.loads(sys.argv[1])
    # Whatever prints does so to the log; answers go to what was standard output.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def answer(**fields: Any) -> None:
        answers.write(json.dumps(fields) + "\n")
        answers.flush()

    try:
        peer = make(options)
        peer.train(0)
        answer(versions=peer.versions())
        for line in sys.stdin:
            answer(seed=int(line), **peer.train(int(line)))
    except BaseException as error:
        traceback.print_exc()
        answer(error=f"{type(error).__name__}: {error}"[:400])


if __name__ == "__main__":
    main()

"""One peer of airbench.py in a process of its own: it trains once for each seed that is asked for.

{"seed": 1} is answered by accuracy, seconds, their parts, and the versions; see processes.py.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from processes import serve

CONFIGS = {"sgd": "cifar10-airbench.yaml", "muon": "cifar10-airbench-muon.yaml"}
# Pictures of a training and a test set, and of a batch where that is another.
SIZES, TINY, TINY_BATCH = (50_000, 10_000), (160, 50), 16
# Steps that one captured graph of dnnstack's holds.
TOGETHER = 8


def pictures(options: dict[str, Any]) -> tuple[Any, Any]:
    """Training and test set as dnnstack loads them, or noise of their size."""
    from dnnstack.datasets import ImageSet, data_root, load

    if not options["noise"]:
        root = data_root(Path(options["data_dir"]) if options["data_dir"] else None, None)
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
    """dnnstack's own training session on all of ``train``, judged on ``test``, no part of it."""

    def __init__(self, options: dict[str, Any], train: Any, test: Any) -> None:
        from dnnstack.backends.select import open_backend

        self._options, self._count, self._tuning = options, len(train), None
        self._backend = open_backend("cuda" if options["device"] == "cuda" else "cpu")
        images = np.concatenate([train.images, test.images])
        labels = np.concatenate([train.labels, test.labels])
        # What nobody can change need not be copied to the device again.
        images.setflags(write=False)
        # The judged pictures are behind the training set, as validation.
        self._data = replace(train, images=images, labels=labels)

    def versions(self) -> str:
        found = self._backend.versions().items()
        return ", ".join(f"{name} {version}" for name, version in found)

    def _session(self, seed: int) -> Any:
        from dnnstack.configs import load_config
        from dnnstack.datasets import describe
        from dnnstack.training.assemble import build_network
        from dnnstack.training.normalization import preprocessing
        from dnnstack.training.plan import make_plan
        from dnnstack.training.session import Session
        from dnnstack.training.setup import Setup

        tune = {"none": "false", "auto": "auto", "search": "true"}[self._options["tune"]]
        changed = [f"seed={seed}", f"run.tune={tune}", "data.evaluation_batch_size=2000"]
        if self._options["device"] == "cuda":
            changed.append(f"run.precision={self._options['precision']}")
        if self._options["tiny"]:
            changed += [f"data.batch_size={TINY_BATCH}", "data.evaluation_batch_size=50"]
            changed += ["train={max_steps: 35}"]
        config = load_config(CONFIGS[self._options["recipe"]], changed).config
        info = describe(config.data.dataset.type)
        network, scaling = build_network(config, info), preprocessing(config, info)
        plan = replace(
            # Planned without validation, so that all training pictures are trained on.
            make_plan(config, self._count),
            validation=np.arange(self._count, len(self._data), dtype=np.int32),
            evaluation_batch_size=config.data.evaluation_batch_size,
        )
        setup = Setup(config, network, scaling, plan, self._data)
        return Session(setup, self._backend, self._tuning)

    def train(self, seed: int) -> dict[str, Any]:
        session = self._session(seed)
        try:
            session.initialize()
            fresh = session.snapshot()
            warm_up(session)
            session.put(fresh)
            begin = perf_counter()
            whiten(session)
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
            self._tuning = session.executable.tuning
        finally:
            session.close()
        parts = {
            "whitening": whitened - begin,
            "training": trained - whitened,
            "evaluation": end - trained,
        }
        return {"accuracy": found.accuracy, "seconds": end - begin, "parts": parts}


def whiten(session: Any) -> None:
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


def make(options: dict[str, Any]) -> Any:
    train, test = pictures(options)
    if options["peer"] == "dnnstack":
        return Ours(options, train, test)
    from airbench_torch import Theirs

    batch = TINY_BATCH if options["tiny"] else {"sgd": 1024, "muon": 2000}[options["recipe"]]
    return Theirs(options, train, test, batch)


def main() -> None:
    options = json.loads(sys.argv[1])
    peer: Any = None

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        nonlocal peer
        peer = peer or make(options)
        return {**peer.train(request["seed"]), "versions": peer.versions()}

    serve(answer)


if __name__ == "__main__":
    main()

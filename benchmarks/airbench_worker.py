"""One peer of airbench.py in a process of its own: it trains once for each seed that it is told.

A line on standard input is a seed; the answer is a JSON line: accuracy, seconds and their parts.
Before the first, a warm-up is answered by the versions.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from pathlib import Path
from typing import Any

import numpy as np

CONFIGS = {"sgd": "cifar10-airbench.yaml", "muon": "cifar10-airbench-muon.yaml"}
# Pictures of a training and a test set, and of a batch where that is another.
SIZES, TINY, TINY_BATCH = (50_000, 10_000), (160, 50), 16


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
    """dnnstack's own training session."""

    def __init__(self, options: dict[str, Any], train: Any, test: Any) -> None:
        from dnnstack.backends.select import open_backend
        from timed import Trainings

        self._options = options
        self._backend = open_backend("cuda" if options["device"] == "cuda" else "cpu")
        self._trainings = Trainings(self._backend, train, test)
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
        done = self._trainings.run(self._config(seed), self._tuning)
        self._tuning = done["tuning"]
        return {key: done[key] for key in ("accuracy", "seconds", "parts")}


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

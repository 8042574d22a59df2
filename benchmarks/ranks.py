"""What the sum over ranks takes of a training step on a CPU, beside one process with all cores.

    python3 benchmarks/ranks.py --config lenet.yaml --ranks 2

Rounds take turns: some steps by all ranks, each with its share of the cores, then some by the first
rank alone with all cores, while the others sleep. Before each sum the ranks meet, so that waiting
for the slowest is not counted as the sum. Pictures are made up, of the config's size.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from dataclasses import replace
from statistics import median, quantiles
from time import perf_counter

import numpy as np
from dnnstack.backends.base import Array
from dnnstack.backends.collectives import join
from dnnstack.backends.select import open_backend
from dnnstack.common.machine import available_threads
from dnnstack.configs import load_config
from dnnstack.datasets import ImageSet
from dnnstack.training.assemble import build_network, describe_data
from dnnstack.training.plan import make_plan
from dnnstack.training.preprocessing import Preprocessing
from dnnstack.training.ranks import world
from dnnstack.training.ranks.team import Team
from dnnstack.training.session import Session
from dnnstack.training.setup import Setup
from dnnstack.training.share import ALONE, Share
from dnnstack.training.shared_parts import shared_out

STEPS = 20


class Timed(Team):
    """Ranks that meet before they add up, and count the seconds of both."""

    waited = spent = 0.0

    def sum(self, values: Array) -> None:
        begin = perf_counter()
        self.collect(np.zeros(1))
        met = perf_counter()
        super().sum(values)
        self.waited += met - begin
        self.spent += perf_counter() - met


def compiled(name: str, share: Share, threads: int) -> Session:
    config = load_config(name, ["run.tune=false", "data.validation=0", "train.epochs=1000"]).config
    config, _ = shared_out(config, share.ranks, None)
    info = describe_data(config)
    count = 16 * config.data.batch_size
    draw = np.random.default_rng(0)
    pictures = draw.integers(0, 256, (count, *info.shape), np.uint8)
    labels = draw.integers(0, len(info.classes), count).astype(np.int32)
    data = ImageSet("made up", pictures, labels, info.classes)
    scaling = Preprocessing.standardize([0.5] * info.shape[0], [0.25] * info.shape[0])
    plan = replace(make_plan(config, count), steps_per_epoch=count // config.data.batch_size)
    network = build_network(config, info)
    setup = Setup(config, network, scaling, plan, data, share=share)
    session = Session(setup, open_backend("cpu", threads, print))
    session.initialize()
    return session


def seconds(session: Session) -> float:
    """Of a step, over some."""
    begin = perf_counter()
    for _ in range(STEPS):
        session.run(1)
    return (perf_counter() - begin) / STEPS


def measured(name: str, rounds: int) -> None:
    team = Timed(120.0)
    join(team)
    cores = available_threads()
    shared = compiled(name, Share(team.rank, team.size), max(1, cores // team.node_size))
    alone = compiled(name, ALONE, cores) if team.rank == 0 else None
    steps, waits, sums, others = [], [], [], []
    for number in range(rounds + 1):
        team.waited = team.spent = 0.0
        step = seconds(shared)
        # The others sleep in here until the first has done its own steps.
        if alone is not None:
            other = seconds(alone)
        team.exchange("")
        # The first round is for the caches.
        if number and alone is not None:
            steps.append(step)
            waits.append(team.waited / STEPS)
            sums.append(team.spent / STEPS)
            others.append(other)
    team.parted = True
    if alone is None:
        return
    shares = [part / (step - wait) for part, step, wait in zip(sums, steps, waits, strict=True)]
    print(f"{name}: {team.size} ranks, {cores} cores, {rounds} rounds of {STEPS} steps")
    for title, values in (
        ("step of the ranks, ms", [1e3 * value for value in steps]),
        ("of it waiting, ms", [1e3 * value for value in waits]),
        ("of it the sum, ms", [1e3 * value for value in sums]),
        ("share of the sum, %", [100 * value for value in shares]),
        ("step of one process, ms", [1e3 * value for value in others]),
        (
            "one process / ranks",
            [other / step for other, step in zip(others, steps, strict=True)],
        ),
    ):
        low, _, high = quantiles(values, n=4)
        print(f"  {title:<26} {median(values):7.2f}   ({low:.2f} to {high:.2f})")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--config", default="lenet.yaml")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=15)
    given = parser.parse_args()
    if world.started() > 1:
        measured(given.config, given.rounds)
        return 0
    command = [str(world.launcher()), "-n", str(given.ranks), sys.executable, *sys.argv]
    return subprocess.run(command, env=dict(os.environ, OPENBLAS_NUM_THREADS="1")).returncode


if __name__ == "__main__":
    sys.exit(main())

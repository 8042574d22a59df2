"""Training steps of several ranks beside one process, taking turns.

    python3 benchmarks/ranks.py --config lenet.yaml --ranks 2
    python3 benchmarks/ranks.py --device cuda --config cifar10-resnet9.yaml --batch 512

A round times some steps with a batch for each rank, with one batch for all, and of the first rank
alone, with all cores, while the others wait. On GPUs also steps of each by itself at one time: what
sums that take no time would leave. On a CPU the ranks meet before each sum, so that waiting for the
slowest is not counted as the sum. Pictures are made up, of the config's size.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from math import prod
from statistics import median, quantiles
from time import perf_counter

import numpy as np
from dnnstack.backends.base import Array
from dnnstack.backends.collectives import join
from dnnstack.backends.cuda.executable import OFTEN
from dnnstack.backends.select import open_backend
from dnnstack.backends.tuning import Tuning
from dnnstack.cli.ranks import joined
from dnnstack.common.machine import available_threads
from dnnstack.configs import load_config
from dnnstack.datasets import ImageSet
from dnnstack.training.assemble import build_network, describe_data
from dnnstack.training.normalization import preprocessing
from dnnstack.training.plan import make_plan
from dnnstack.training.preprocessing import Preprocessing
from dnnstack.training.ranks import world
from dnnstack.training.ranks.team import Team
from dnnstack.training.session import Session
from dnnstack.training.setup import Setup
from dnnstack.training.share import ALONE, RankShare, shared_out

# Steps of an epoch, unless their pictures take more bytes; and at least.
STEPS, LARGE, FEW = 1024, 1_700_000_000, 64
# Seconds of steps in one timing.
SECONDS = 0.3
# Steps that come before the first timing: so many that graphs of many steps have been captured, but
# no more than these seconds hold.
WARM, LONG_ENOUGH = OFTEN + 512, 2.0


class Timed(Team):
    """Ranks on CPUs that meet before they add up, and count the seconds of both."""

    waited = spent = 0.0

    def sum(self, values: Array) -> None:
        begin = perf_counter()
        self.collect(np.zeros(1))
        met = perf_counter()
        super().sum(values)
        self.waited += met - begin
        self.spent += perf_counter() - met


def say(team: Team, text: str) -> None:
    if team.rank == 0:
        print(text, flush=True)


def compiled(
    given: argparse.Namespace, share: RankShare, batch: int, threads: int, tuning: Tuning | None
) -> Session:
    """A training of this process's share of batches of pictures that are made up."""
    changes = [f"data.batch_size={batch}", "data.validation=0", "train.epochs=null"]
    changes += ["train.max_steps=400000", "schedule=fixed"]
    config = load_config(given.config, [*given.set, *changes]).config
    config, _ = shared_out(config, share.ranks, None)
    info = describe_data(config)
    # So many that whole timings lie within an epoch.
    count = max(FEW * batch, min(STEPS * batch, LARGE // prod(info.shape)))
    draw = np.random.default_rng(0)
    few = draw.integers(0, 256, (10_000, *info.shape), np.uint8)
    labels = draw.integers(0, len(info.classes), count).astype(np.int32)
    data = ImageSet("made up", np.resize(few, (count, *info.shape)), labels, info.classes)
    scaling = Preprocessing.standardize([0.5] * info.shape[0], [0.25] * info.shape[0])
    if not config.data.normalize.measured:
        scaling = preprocessing(config, info)
    plan, network = make_plan(config, count), build_network(config, info)
    setup = Setup(config, network, scaling, plan, data, share=share)
    session = Session(setup, open_backend(given.device, threads, print), tuning)
    session.initialize()
    return session


def together(
    team: Team, given: argparse.Namespace, batch: int, share: RankShare, threads: int
) -> Session:
    """The same on all ranks, with the choices of the first."""
    session, told = None, ""
    if team.rank == 0:
        session = compiled(given, share, batch, threads, None)
        told = json.dumps(session.executable.tuning.to_json())
    found = team.exchange(told)[0]
    if session is None:
        session = compiled(given, share, batch, threads, Tuning(**json.loads(found)))
    team.exchange("")
    return session


def run(session: Session, steps: int) -> None:
    """So many steps, over the ends of epochs."""
    length = session.plan.steps_per_epoch
    while steps:
        now = min(steps, length - session.step % length)
        session.run(now)
        steps -= now


def seconds(session: Session, steps: int) -> float:
    """Of a step, over some of an epoch."""
    length = session.plan.steps_per_epoch
    steps, left = min(steps, length), length - session.step % length
    if left < steps:
        run(session, left)
    begin = perf_counter()
    run(session, steps)
    return (perf_counter() - begin) / steps


def warmed(team: Team, session: Session, alone: bool) -> int:
    """How many steps are enough for a timing, after those that capture and fill caches."""

    def agreed(steps: float) -> int:
        """As many on all ranks, by the first."""
        return int(steps) if alone else int(team.collect(np.array([steps], np.float64))[0][0])

    run(session, 9)
    run(session, agreed(min(WARM, max(1.0, LONG_ENOUGH / seconds(session, 9)))))
    return agreed(max(1.0, SECONDS / seconds(session, agreed(min(256, session.step // 4)))))


def measured(team: Team, given: argparse.Namespace) -> None:
    batch = given.batch or load_config(given.config, given.set).config.data.batch_size
    name = f"{given.config} {batch} {' '.join(given.set)}{' by NCCL' * given.nccl}".strip()
    cores, on_gpus, first = available_threads(), given.device == "cuda", team.rank == 0
    share, each = RankShare(team.rank, team.size), max(1, cores // team.node_size)
    begin = perf_counter()
    weak = together(team, given, batch * team.size, share, each)
    strong = together(team, given, batch, share, each)
    alone = compiled(given, ALONE, batch, cores, None) if on_gpus or first else None
    say(team, f"{name}: {team.size} ranks, compiled in {perf_counter() - begin:.1f} s")
    counts = [warmed(team, session, False) for session in (weak, strong)]
    # The others sleep in here until the first has done its own steps.
    counts.append(warmed(team, alone, True) if alone is not None else 0)
    columns: dict[str, list[float]] = {}

    def add(title: str, value: float) -> None:
        columns.setdefault(title, []).append(value)

    for _ in range(given.rounds):
        team.exchange("")
        each_batch = seconds(weak, counts[0])
        team.exchange("")
        before = strong.step
        if isinstance(team, Timed):
            team.waited = team.spent = 0.0
        one_batch = seconds(strong, counts[1])
        if isinstance(team, Timed):
            # More steps than were timed, where an epoch ended meanwhile.
            spent, waited = (t / (strong.step - before) for t in (team.spent, team.waited))
            add("the same, waiting, us", 1e6 * waited)
            add("the same, the sum, us", 1e6 * spent)
            add("share of the sum, %", 100 * spent / (one_batch - waited))
        team.exchange("")
        if on_gpus and alone is not None:
            slowest = float(team.collect(np.array([seconds(alone, counts[2])])).max())
            add("each by itself, us", 1e6 * slowest)
        if first and alone is not None:
            one = seconds(alone, counts[2])
            add("one process, us", 1e6 * one)
            add("a batch for each rank, us", 1e6 * each_batch)
            add("one batch for all, us", 1e6 * one_batch)
            add("pictures/s, a batch for each / one process", team.size * one / each_batch)
            add("pictures/s, one batch for all / one process", one / one_batch)
        team.exchange("")
    for title, values in columns.items():
        low, middle, high = quantiles(values, n=4)
        say(team, f"  {title:<44} {middle:10.3f}   ({low:.3f} to {high:.3f})")
    if first and alone is not None:
        rates = (batch / median(columns["one process, us"]),)
        rates += (team.size * batch / median(columns["a batch for each rank, us"]),)
        say(team, f"  pictures/s {1e6 * rates[0]:,.0f} by one, {1e6 * rates[1]:,.0f} by all")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--config", default="lenet.yaml")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--batch", type=int, help="for one process; default: the config's")
    parser.add_argument("--nccl", action="store_true", help="no sums in each other's memory")
    parser.add_argument("--rounds", type=int, default=9, help="2 or more")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    given = parser.parse_args()
    if world.started() == 1:
        # Multicast of NVLink may put GPUs that others share out of service.
        more = {"OPENBLAS_NUM_THREADS": "1", "NCCL_NVLS_ENABLE": "0", **os.environ}
        more |= {"DNNSTACK_PEER_SUMS": "0"} if given.nccl else {}
        command = [str(world.launcher()), "-n", str(given.ranks), sys.executable, *sys.argv]
        return subprocess.run(command, env=more).returncode
    team = joined(None) if given.device == "cuda" else Timed(world.deadline())
    assert team is not None
    join(team)
    measured(team, given)
    team.exchange("")
    team.parted = True
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Several processes that train together: starting them, and what those but the first do."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

import click

from ..training.signals import WANTED
from . import console, plugins
from .guard import BEGUN, LEFT, guarded
from .options import Decorator, all_of

if TYPE_CHECKING:
    from ..backends.base import Backend
    from ..configs import RunConfig
    from ..training.alone import Company
    from ..training.ranks.team import Team
    from ..training.share import RankShare
    from .asked import Asked

VISIBLE = "CUDA_VISIBLE_DEVICES"
_GPUS = "dnnstack.gpus"
ADVICE = "start all ranks with the same command, on machines with the same program and processor"
BACKEND = "the backend"
# Where a device is chosen automatically, one rank may have a GPU of its own and another none.
OWN_GPU = "to compute on GPUs, a machine needs one for each of its ranks"
SPECIAL = {BACKEND: f"--device cpu makes all compute on the CPU; {OWN_GPU}"}


def _choose_gpus(ctx: click.Context, option: click.Parameter, given: str | None) -> None:
    if given is None:
        return
    numbers = given.split(",")
    if not all(n.isascii() and n.isdigit() for n in numbers) or len(set(numbers)) < len(numbers):
        raise click.BadParameter("is not a list of different numbers, such as 0,1", ctx, option)
    # The launcher and the ranks inherit it.
    os.environ[VISIBLE] = given
    ctx.meta[_GPUS] = given


option: Decorator = all_of(
    click.option(
        "--ranks",
        type=click.IntRange(min=1),
        metavar="N",
        help="Compute by N processes, each of which has its share of every batch; needs the extra "
        "[mpi]. A launcher of MPI or Slurm may start them too: mpiexec -n N dnnstack train ...",
    ),
    click.option(
        "--gpus",
        metavar="LIST",
        callback=_choose_gpus,
        expose_value=False,
        help="The GPUs of this machine that ranks use, one each, such as 0,1; default: the first "
        "ones that CUDA_VISIBLE_DEVICES lets them see.",
    ),
)


def note_idle_gpus(device: str) -> None:
    """Say so if ``--gpus`` was given and the device is none of them."""
    if device != "cuda" and _GPUS in click.get_current_context().meta:
        console.note(f"--gpus has no effect here: the device is {device}, not cuda")


def _take_own_gpu(team: Team) -> None:
    """See one GPU of those that the ranks of this machine see, unless each has its own already."""
    from ..backends.ahead import NVIDIA_DRIVER

    given = os.environ.get(VISIBLE)
    if given is None and NVIDIA_DRIVER.exists():
        os.environ[VISIBLE] = str(team.node_rank)
    elif given and len(seen := given.split(",")) >= team.node_size > 1:
        os.environ[VISIBLE] = seen[team.node_rank]


def is_alone() -> bool:
    """Whether this process was started as the only one."""
    from ..training.ranks import world

    return world.started() == 1


def joined(ranks: int | None, asynchronous: bool = False) -> Team | None:
    """This process as one of several; None if it trains alone.

    Where it is to be several and was not started as such, it becomes their launcher.
    ``asynchronous``: the others go on if one of them dies after the training has begun.
    """
    from ..common.errors import UsageError
    from ..training.ranks import world

    count = world.started()
    if count == 1:
        if ranks is not None:
            world.launch(ranks, sys.argv[1:], WANTED)
        if asynchronous:
            raise UsageError("--async needs several processes: --ranks 5, say")
        return None
    world.check_mpi()
    tell = guarded(world.number(), asynchronous and world.number() > 0)
    from ..training.ranks.team import Team

    team = Team(world.deadline(), partial(tell, BEGUN), partial(tell, LEFT))
    if team.size != count:
        team.parted = True
        raise world.RanksError(
            f"{team.named(team.rank)}: {count} processes were started, but MPI sees {team.size}; "
            "start them by the mpiexec of the same MPI, or by srun --mpi=pmi2"
        )
    if ranks not in (None, team.size):
        with team.together():
            raise UsageError(f"--ranks {ranks}: the launcher has started {team.size} processes")
    _take_own_gpu(team)
    if team.rank:
        for number in WANTED:
            # The first rank decides, and tells the others.
            signal.signal(number, signal.SIG_IGN)
        console.set_loudness(quiet=True)
    return team


def threads(wanted: int | None, team: Team | None) -> int | None:
    """The threads of a rank: by default its share of the cores of its node."""
    from ..common.machine import available_threads

    if team is None or wanted is not None:
        return wanted
    return max(1, available_threads() // team.node_size)


def facts(config: RunConfig, backend: Backend) -> Mapping[str, str]:
    """What must be the same on all ranks, by name."""
    import hashlib
    from importlib.metadata import version

    from ..backends.tuning import code_digest
    from ..configs import effective_yaml

    top = __package__.rpartition(".")[0]
    steps = ("training", "training.ranks")
    packages = ("graph", "graph.ops", "layers", "optimizers", "passes", *steps)
    code = "".join(code_digest(f"{top}.{package}") for package in packages)
    mark = hashlib.sha256(code.encode()).hexdigest()[:12]
    text = hashlib.sha256(effective_yaml(config).encode()).hexdigest()[:12]
    return {
        "dnnstack": f"{version('dnnstack')} (code {mark})",
        BACKEND: backend.name,
        **backend.versions(),
        "the config's mark": text,
        "the number of pieces of a sum": str(backend.pieces),
    }


def described(team: Team, config: RunConfig) -> str:
    """How many ranks there are, where, and what they do."""
    nodes = len(set(team.hosts))
    machines = "this machine" if nodes == 1 else f"{nodes} machines"
    text = f"ranks       {team.size} on {machines}"
    if config.parallel is None or not config.is_asynchronous:
        return text
    servers = config.parallel.servers
    held, left = "s" if servers > 1 else "", team.size - servers
    return f"{text}, {servers} server{held} and {left} worker{'s' if left > 1 else ''}"


def company(
    team: Team | None, config: RunConfig, backend: Backend
) -> Callable[[str], Company | None]:
    """Makes what the first rank trains with; is told where the data of a resumed run was."""
    if team is None:
        return lambda trained_on: None
    from ..training.ranks.leader import Lead
    from ..training.ranks.servers import AsyncLead

    def lead(trained_on: str) -> Company:
        team.agree(facts(config, backend), ADVICE, SPECIAL)
        team.tell(trained_on)
        return AsyncLead(team) if config.is_asynchronous else Lead(team)

    return lead


@contextmanager
def explaining(team: Team | None) -> Iterator[tuple[RankShare, Callable[[int], int]]]:
    """What this process explains, and a function that gives the first one's number to all."""
    import numpy as np

    from ..backends.collectives import join
    from ..training.share import ALONE, RankShare

    if team is None:
        yield ALONE, lambda number: number
        return
    ranks, told = team, np.zeros(1, np.int64)

    def agreed(number: int) -> int:
        told[0] = number
        ranks.spread(told)
        return int(told[0])

    join(team)
    with team.together():
        yield RankShare(team.rank, team.size), agreed
    team.parted = True


def follow(team: Team, asked: Asked) -> int:
    """Train as the first rank says; returns the exit status of this one.

    Exits at once, silently, where the first rank says why this one ends.
    """
    from ..backends.select import open_backend
    from ..common.errors import BackendUnavailableError
    from ..configs import load_config
    from ..training.assemble import data_folder
    from ..training.ranks.follower import follow as obey
    from . import downloading

    with team.together():
        config = load_config(asked.reference, asked.changes, plugins.opened(asked.plugin)).config
        count = threads(config.run.threads, team)
        try:
            backend = open_backend(config.run.device, count, capture=not asked.no_graph)
        except BackendUnavailableError as error:
            raise BackendUnavailableError(f"{error}; {OWN_GPU}") from None
    team.agree(facts(config, backend), ADVICE, SPECIAL)
    root = data_folder(config, asked.data_dir, config.data.root, team.hear())
    obey(team, config, backend, root, downloading.policy(asked.offline))
    return 0

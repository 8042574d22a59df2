"""One of the ranks that gpu_ranks.py starts, one for each GPU: what NCCL takes, and whole steps."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from math import prod
from statistics import median, quantiles
from typing import Any

import numpy as np
from dnnstack.backends.base import Backend
from dnnstack.backends.collectives import added_in_pairs, join
from dnnstack.backends.cuda.binding.small_sums import SWITCH
from dnnstack.backends.cuda.executable import OFTEN
from dnnstack.backends.cuda.libraries import peers
from dnnstack.backends.select import open_backend
from dnnstack.backends.tuning import Tuning
from dnnstack.cli.ranks import joined
from dnnstack.common.machine import available_threads
from dnnstack.configs import load_config
from dnnstack.datasets import ImageSet
from dnnstack.training.assemble import build_network, describe_data, preprocessing
from dnnstack.training.plan import make_plan
from dnnstack.training.preprocessing import Preprocessing
from dnnstack.training.ranks.team import Team
from dnnstack.training.session import Session
from dnnstack.training.setup import Setup
from dnnstack.training.share import ALONE, Share
from dnnstack.training.shared_parts import shared_out

# Bytes of float32 that are added up, and replays of a graph in one timing.
SIZES = (2_000, 500_000, 2_000_000, 8_000_000, 45_000_000, 250_000_000)
PEER_SIZES = (2_000, 500_000, 1_724_160, 4_000_000, 13_000_000, 26_000_000)
REPLAYS = 20
# Steps of an epoch, unless their pictures take more bytes; and at least.
STEPS, LARGE, FEW = 1024, 1_700_000_000, 64
# Seconds of steps in one timing.
SECONDS = 0.3
# Steps that come before the first timing: so many that graphs of many steps have been captured, but
# no more than these seconds hold.
WARM, LONG_ENOUGH = OFTEN + 512, 2.0


def say(team: Team, text: str) -> None:
    if team.rank == 0:
        print(text, flush=True)


# ---------------------------------------------------------------- what there is


def facts(team: Team, device: str) -> None:
    """Versions, and that every rank has a GPU of its own."""
    from mpi4py import MPI, __version__

    library = MPI.Get_library_version().split("\n")[0].strip("\0 ")
    say(team, f"MPI: {library}, mpi4py {__version__}, libraries {_loaded('libmpi')}")
    own = f"rank {team.rank}: pid {os.getpid()}"
    if device == "cuda":
        from dnnstack.backends.cuda.libraries.runtime import cuda_api

        runtime = cuda_api().runtime
        found = runtime.getDeviceProperties(0)
        bus = runtime.deviceGetPCIBusId(0)
        name = found["name"].decode()
        own += f", CUDA_VISIBLE_DEVICES {os.environ.get('CUDA_VISIBLE_DEVICES')}, {name}, bus {bus}"
    for text in team.exchange(own):
        say(team, text)
    if device == "cuda":
        from dnnstack.backends.cuda.libraries.nccl import connection
        from dnnstack.backends.cuda.libraries.runtime import submodule

        begin = time.perf_counter()
        connection(team.size)
        seconds = time.perf_counter() - begin
        nccl = submodule("cuda.nccl")
        say(
            team,
            f"NCCL {nccl.get_version()}, CuPy's binding for {nccl.get_build_version()}, "
            f"NCCL_NVLS_ENABLE {os.environ.get('NCCL_NVLS_ENABLE')}, connected in {seconds:.2f} s, "
            f"libraries {_loaded('libnccl')}",
        )


def _loaded(part: str) -> str:
    with open("/proc/self/maps", encoding="utf-8") as maps:
        paths = {line.split()[-1] for line in maps if part in line}
    return ", ".join(sorted(paths)) or "none"


# ---------------------------------------------------------------- NCCL in a graph


def collectives(team: Team, device: str) -> None:
    """Sums and gathers captured in a graph: that they are right, and microseconds of each."""
    if device != "cuda":
        say(team, "collectives: only on GPUs")
        return
    from dnnstack.backends.cuda.libraries.nccl import connection
    from dnnstack.backends.cuda.libraries.runtime import captured, cuda_api
    from dnnstack.backends.cuda.libraries.runtime import device as opened
    from dnnstack.backends.cuda.libraries.timing import fastest

    cuda, stream, nccl = cuda_api(), opened().stream, connection(team.size)

    def timed(title: str, nbytes: int, calls: list[Callable[[], None]]) -> float:
        with stream:
            graph = captured(calls, stream)
            graph.launch(stream)
            stream.synchronize()
            team.exchange("")
            seconds = fastest(lambda: graph.launch(stream), stream, REPLAYS)
        # Both ranks took part in each; the slower one tells how long it took.
        seconds = float(team.collect(np.array([seconds])).max()) / len(calls)
        rate = f", {nbytes / seconds / 1e9:.1f} GB/s" if nbytes else ""
        say(team, f"{title}: {1e6 * seconds:.1f} us in a graph of {len(calls)}{rate}")
        return seconds

    for nbytes in SIZES:
        count = nbytes // 4
        rows = [_drawn(count, rank) for rank in range(team.size)]
        wanted = rows[0].copy()
        for row in rows[1:]:
            wanted += row
        with stream:
            values = cuda.asarray(rows[team.rank])
            nccl.sum(values.data.ptr, count, stream.ptr)
            stream.synchronize()
            first = bool((values.get() == wanted).all())
            values.set(rows[team.rank])
            stream.synchronize()
            team.exchange("")
            at = values.data.ptr
            graph = captured([lambda at=at, n=count: nccl.sum(at, n, stream.ptr)], stream)
            graph.launch(stream)
            stream.synchronize()
            again = bool((values.get() == wanted).all())
            values.fill(0)
        right = min(team.exchange(f"{first and again}")) == "True"
        say(team, f"sum of {nbytes:,} bytes: bits of a + b {'right' if right else 'WRONG'}")
        number = 20 if nbytes <= 2_000_000 else 4
        calls = [lambda at=at, n=count: nccl.sum(at, n, stream.ptr)] * number
        timed(f"ncclAllReduce of {nbytes:,} bytes", nbytes, calls)

    for nbytes in PEER_SIZES:
        size = peers.size_for(team.size, nbytes)
        found = None if size is None else peers.peers(team.size, size)
        if size is None or found is None:
            say(team, f"each other's memory for {nbytes:,} bytes: NOT REACHED")
            continue
        for workers in (peers.BLOCKS, peers.BESIDE_BLOCKS):
            in_memory(team, nbytes, size, workers, found, timed)

    with stream:
        sums, metrics, statistics = (cuda.zeros(n, "float32") for n in (430_000, 24, 20_000))

    def gathered(array: Any) -> Callable[[], None]:
        each = array.nbytes // team.size
        return lambda: nccl.gather_rows(array.data.ptr, each, stream.ptr)

    def added(begin: int, end: int) -> Callable[[], None]:
        return lambda: nccl.sum(sums[begin:end].data.ptr, end - begin, stream.ptr)

    whole = added(0, sums.size)
    apart = [gathered(metrics), gathered(statistics), whole]

    def grouped(calls: list[Callable[[], None]]) -> Callable[[], None]:
        def launch() -> None:
            nccl._nccl.groupStart()
            for call in calls:
                call()
            nccl._nccl.groupEnd()

        return launch

    def chained(calls: list[Callable[[], None]]) -> Callable[[], None]:
        return lambda: [call() for call in calls] and None

    timed("LeNet's sum alone", sums.nbytes, [whole] * 10)
    timed("metrics alone", 0, [gathered(metrics)] * 10)
    timed("metrics, statistics and sum, one after the other", 0, [chained(apart)] * 10)
    timed("metrics, statistics and sum in a group", 0, [grouped(apart)] * 10)
    pieces = [added(i * 53_750, (i + 1) * 53_750) for i in range(8)]
    timed("LeNet's sum in 8 pieces, one after the other", 0, [chained(pieces)] * 10)
    timed("LeNet's sum in a group of 8", 0, [grouped(pieces)] * 10)


def in_memory(
    team: Team,
    nbytes: int,
    size: int,
    workers: int,
    found: peers.Peers,
    timed: Callable[[str, int, list[Any]], float],
) -> None:
    """The same sums by our own kernel, where every rank writes to the memory of the others."""
    from dnnstack.backends.cuda.libraries.kernels import Kernel, f32, i32
    from dnnstack.backends.cuda.libraries.runtime import captured, cuda_api, device
    from dnnstack.backends.cuda.operations.peers import FILE, FUNCTION, THREADS

    cuda, stream, count = cuda_api(), device().stream, nbytes // 128 * 32
    rows = [_drawn(count, rank) for rank in range(team.size)]
    blocks = (("BLOCKS", peers.BLOCKS), ("WORKERS", workers), ("SIZE", size))
    kernel = Kernel(FILE, FUNCTION, defines=(("RANKS", team.size), *blocks))
    with stream:
        values, addresses = cuda.asarray(rows[team.rank]), cuda.asarray(found.addresses)
        numbers = [values, f32(1), values, *map(i32, (count // 4, count // 4, 0))]
        nothing = [0, 0, 0, i32(0), 0, i32(0)]
        area = i32(workers != peers.BLOCKS)
        given = [*numbers, addresses, i32(team.rank), area, *nothing]
        launch = kernel.launch(stream, (workers,), (THREADS,), given)
        launch()
        stream.synchronize()
        wanted = added_in_pairs(np.stack(rows))
        right = bool((values.get() == wanted).all())
        graph = captured([launch] * 9, stream)
        for turn in range(20):
            values.set(rows[team.rank])
            stream.synchronize()
            # Without waiting for the others: they may be far ahead or behind.
            graph.launch(stream)
            stream.synchronize()
            if turn == 0:
                first = values.get()
            right = right and bool((values.get() == first).all())
        values.fill(0)
    right = min(team.exchange(f"{right}")) == "True"
    title = f"add_over_ranks of {nbytes:,} bytes by {workers} blocks"
    say(team, f"{title}: bits {'right' if right else 'WRONG'}")
    timed(title, nbytes, [launch] * 20)


def _drawn(count: int, rank: int) -> Any:
    """Numbers of many sizes, whose sums are rounded."""
    draw = np.random.default_rng(rank)
    few = draw.standard_normal(min(count, 1 << 20)) * 10.0 ** draw.integers(-4, 5)
    return np.resize(few.astype(np.float32), count)


# ---------------------------------------------------------------- whole steps


def compiled(
    team: Team, given: argparse.Namespace, share: Share, batch: int, tuning: Tuning | None
) -> Session:
    """A training of this process's share of batches of pictures that are made up."""
    wanted = [
        *given.set,
        f"data.batch_size={batch}",
        "data.validation=0",
        "train.epochs=null",
        "train.max_steps=400000",
        "schedule=fixed",
    ]
    config = load_config(given.config, wanted).config
    config, _ = shared_out(config, share.ranks, None)
    info = describe_data(config)
    # So many that whole timings lie within an epoch.
    pictures = min(STEPS * batch, LARGE // prod(info.shape))
    count = given.count or max(FEW * batch, pictures)
    draw = np.random.default_rng(0)
    few = draw.integers(0, 256, (10_000, *info.shape), np.uint8)
    pictures = np.resize(few, (count, *info.shape))
    labels = draw.integers(0, len(info.classes), count).astype(np.int32)
    data = ImageSet("made up", pictures, labels, info.classes)
    scaling = Preprocessing.standardize([0.5] * info.shape[0], [0.25] * info.shape[0])
    if not config.data.normalize.measured:
        scaling = preprocessing(config, info)
    plan = make_plan(config, count)
    network = build_network(config, info)
    setup = Setup(config, network, scaling, plan, data, share=share)
    session = Session(setup, _backend(team, given.device), tuning)
    session.initialize()
    return session


def _backend(team: Team, device: str) -> Backend:
    threads = max(1, available_threads() // team.size)
    return open_backend(device, threads, print)  # type: ignore[arg-type]


def together(team: Team, given: argparse.Namespace, batch: int, share: Share) -> Session:
    """The same on all ranks, with the choices of the first."""
    session = None
    if team.rank == 0:
        session = compiled(team, given, share, batch, None)
        told = json.dumps(session.executable.tuning.to_json())
    found = team.exchange(told if session is not None else "")[0]
    if session is None:
        session = compiled(team, given, share, batch, Tuning(**json.loads(found)))
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
    begin = time.perf_counter()
    run(session, steps)
    return (time.perf_counter() - begin) / steps


def speed(team: Team, given: argparse.Namespace) -> None:
    """Two GPUs beside one, with a fixed batch for each and with a fixed batch for both."""
    batch = given.batch
    more = [*given.set, *(["by NCCL"] if given.nccl else [])]
    name = f"{given.config} {batch} {' '.join(more)}".strip()
    begin = time.perf_counter()
    share = Share(team.rank, team.size)
    weak = together(team, given, batch * team.size, share)
    strong = together(team, given, batch, share)
    alone = together(team, given, batch, ALONE)
    say(team, f"{name}: compiled in {time.perf_counter() - begin:.1f} s")
    sessions = weak, strong, alone
    counts = [warmed(team, session) for session in sessions]
    rounds: list[list[float]] = []
    for _ in range(given.rounds):
        found = []
        for session, count in zip(sessions, counts, strict=True):
            team.exchange("")
            found.append(seconds(session, count))
        # The last is each by itself, but at one time: the slowest says what sums that take no time
        # would leave.
        found[2] = float(team.collect(np.array([found[2]])).max())
        if team.rank == 0:
            rounds.append([*found, seconds(alone, counts[2])])
        team.exchange("")
    alike = sections(team, weak)
    if team.rank:
        return
    parts = list(zip(*rounds, strict=True))
    titles = ("each", "both", "each, without sums", "one GPU")
    shown = ", ".join(
        f"{title} {1e6 * median(part):.1f}" for title, part in zip(titles, parts, strict=True)
    )
    say(team, f"{name}: us a step with the batch for {shown}")
    say(team, f"{name}: us of each section alone: {alike}")
    one, own = (session.executable.tuning.choices for session in (alone, weak))
    differ = [
        f"{key}: {one.get(key)} / {own.get(key)}"
        for key in sorted({*one, *own})
        if one.get(key) != own.get(key)
    ]
    say(team, f"{name}: choices of one GPU / of two: {'; '.join(differ) or 'equal'}")
    _ratio(team, f"{name}: fixed batch a GPU", [team.size * one / w for w, _, _, one in rounds])
    _ratio(team, f"{name}: fixed batch for both", [one / s for _, s, _, one in rounds])
    apart = [team.size * one / slowest for _, _, slowest, one in rounds]
    _ratio(team, f"{name}: a GPU each, without sums", apart)
    rate = given.batch / median(parts[3]), team.size * given.batch / median(parts[0])
    say(team, f"{name}: pictures/s {rate[0]:,.0f} on one GPU, {rate[1]:,.0f} on {team.size}")


def sections(team: Team, session: Session) -> str:
    """Microseconds of each section that ranks have, run many times by itself."""
    found = []
    for graph in session.stretches[0].runs():
        times = []
        for _ in range(4):
            team.exchange("")
            begin = time.perf_counter()
            session.executable.run(graph.name, 256)
            times.append((time.perf_counter() - begin) / 256)
        found.append(f"{graph.name} {1e6 * min(times):.1f}")
    return ", ".join(found)


def warmed(team: Team, session: Session) -> int:
    """How many steps are enough for a timing, after those that capture and fill caches."""

    def agreed(steps: float) -> int:
        """As many on all ranks, by the first."""
        return int(team.collect(np.array([steps], np.float64))[0][0])

    run(session, 1)
    run(session, 64)
    run(session, agreed(min(WARM, max(1.0, LONG_ENOUGH / seconds(session, 16)))))
    return agreed(max(1.0, SECONDS / seconds(session, agreed(min(256, session.step // 4)))))


def _ratio(team: Team, title: str, values: list[float]) -> None:
    low, middle, high = quantiles(values, n=4)
    say(team, f"{title}: {middle:.3f} times one GPU (quartiles {low:.3f} to {high:.3f})")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=("facts", "collectives", "speed"))
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--config", default="lenet.yaml")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--count", type=int, help="pictures; without it enough for long epochs")
    parser.add_argument("--nccl", action="store_true", help="no sums in each other's memory")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--set", action="append", default=[])
    given = parser.parse_args()
    team = joined(None)
    assert team is not None, "to be started by mpiexec"
    join(team)
    if given.nccl:
        os.environ[SWITCH] = "0"
    if given.part == "speed":
        speed(team, given)
    else:
        {"facts": facts, "collectives": collectives}[given.part](team, given.device)
    team.exchange("")
    team.parted = True
    return 0


if __name__ == "__main__":
    sys.exit(main())

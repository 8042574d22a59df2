"""Training steps on a GPU: dnnstack beside PyTorch and JAX, interleaved, in one run.

    python3 benchmarks/gpu_peers.py                                       # everything
    python3 benchmarks/gpu_peers.py --nets lenet-64 mlp-256 --skip compile --minutes 5
    python3 benchmarks/gpu_peers.py --nets resnet20-128 mnist-best --peers dnnstack graph
    git worktree add ../before <commit>
    python3 benchmarks/gpu_peers.py --before ../before --peers dnnstack before --tune none

Same network, batch, momentum SGD with weight decay and learning-rate schedule everywhere, on noise
in the shape of the data set. Every peer runs in a process of its own (gpu_worker.py), which holds
its steps ready; a round times each of them once while the others wait, so that drift meets all
alike. Each peer is built in both layouts and timed in one trial round; the faster goes into the
rounds. Times are medians over rounds, ratios medians over rounds of peer / dnnstack in the same
precision. dnnstack gathers bytes, normalises them and counts its accuracy in every step; the others
find their pictures ready. Needs torch and jax beside dnnstack; what is missing or fails says why.
The peer "before" is dnnstack as another checkout has it, with a cache of its own; --tune none takes
the libraries' choices in both, so that luck in timing them plays no part.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from gpu_worker import MODULES, NETS, OURS, USUAL
from processes import Worker

BEFORE = "before"
# What each peer is built as, the likelier best first: a slow one may run out of time.
LAYOUTS = ("nhwc", "nchw")
VARIANTS: dict[str, tuple[str, ...]] = {
    OURS: ("tf32", "bf16", "tf32/plain"),
    BEFORE: ("tf32", "bf16"),
    "eager": tuple(f"{p}/{layout}" for p in ("tf32", "bf16") for layout in LAYOUTS),
    "graph": tuple(
        f"{p}/{layout}{k}" for p in ("tf32", "bf16") for layout in LAYOUTS for k in ("", "/16")
    ),
    "jax": tuple(f"{p}/{layout}" for p in ("tf32", "bf16") for layout in LAYOUTS),
    "compile": tuple(f"{p}/{layout}" for layout in LAYOUTS for p in ("tf32", "bf16")),
    "compiled graph": tuple(f"{p}/{layout}" for layout in LAYOUTS for p in ("tf32", "bf16")),
}
TITLES = {
    OURS: "dnnstack",
    BEFORE: "dnnstack before",
    "eager": "PyTorch eager, data on the GPU",
    "compile": "torch.compile reduce-overhead",
    "graph": "PyTorch, captured CUDA graph",
    "compiled graph": "torch.compile in a CUDA graph",
    "jax": "JAX, fori_loop",
}
# These compile for long on the CPU alone, so they do it at the same time.
SLOW = ("compile", "compiled graph")


@dataclass
class Peer:
    """A peer's process for one net, and what it has ready."""

    name: str
    net: str
    worker: Worker
    limit: float
    versions: str = ""
    ready: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)

    def build(self, variant: str, deadline: float) -> None:
        self.worker.send(build=variant)
        self.built(variant, deadline)

    def built(self, variant: str, deadline: float) -> None:
        limit = min(self.limit, deadline - time.monotonic())
        answer = self.worker.receive(limit)
        if "error" in answer:
            self.failed[variant] = answer["error"]
            self.say(f"{variant}: {answer['error']}")
        else:
            self.ready.append(variant)
            self.versions = answer["versions"]
            chosen = "".join(f", {name} {taken}" for name, taken in answer["choices"].items())
            self.say(f"{variant}: built in {answer['seconds']:.1f} s{chosen}")

    def time(self, variant: str, steps: int) -> dict[str, Any] | None:
        self.worker.send(time=variant, steps=steps)
        answer = self.worker.receive(self.limit)
        if "error" in answer:
            self.failed[variant] = answer["error"]
            self.ready = [name for name in self.ready if name != variant]
            self.ready = self.ready if self.worker.alive else []
            self.say(f"{variant}: {answer['error']}")
            return None
        return answer

    def say(self, text: str) -> None:
        print(f"  {self.net} {TITLES[self.name]} {text}", file=sys.stderr, flush=True)


def started(name: str, net: str, options: argparse.Namespace, folder: Path) -> Peer:
    """A peer that is ready to be started."""
    script, more = "gpu_worker.py", {}
    if name == BEFORE:
        checkout = options.before.resolve()
        script = str(checkout / "benchmarks" / script)
        cache = str(options.scratch / "before")
        more = {"PYTHONPATH": linked(checkout, options.scratch), "DNNSTACK_CACHE": cache}
    words = (OURS if name == BEFORE else name, net, options.device)
    worker = Worker(script, *words, log=folder / f"{net}-{name}.log", more=more)
    return Peer(name, net, worker, options.limit)


def linked(checkout: Path, folder: Path) -> str:
    """A folder where Python finds the package of a checkout, whatever is installed."""
    package = folder / "path" / "dnnstack"
    if not package.exists():
        package.mkdir(parents=True)
        inner = (each.parent for each in checkout.glob("*/__init__.py"))
        for each in (*inner, *(checkout / "api").glob("*.py")):
            if each.name != "api":
                (package / each.name).symlink_to(each)
    return str(package.parent)


def build(peers: dict[str, Peer], wanted: dict[str, tuple[str, ...]], end: float) -> None:
    """Build every variant; ours first, before the others even start, because it may time its
    choices: their imports would keep the processors busy meanwhile."""
    others = {name: peer for name, peer in peers.items() if name != OURS}
    if OURS in peers:
        peers[OURS].worker.start()
        _built(peers[OURS], wanted[OURS], end)
    for peer in others.values():
        peer.worker.start()
    for name, peer in others.items():
        if name not in SLOW:
            _built(peer, wanted[name], end)
    slow = [peer for name, peer in peers.items() if name in SLOW]
    for variant in dict.fromkeys(v for peer in slow for v in wanted[peer.name]):
        asked = [peer for peer in slow if peer.worker.alive and variant in wanted[peer.name]]
        if time.monotonic() > end - 5:
            for peer in asked:
                peer.say(f"{variant}: not built, the time is up")
            break
        for peer in asked:
            peer.worker.send(build=variant)
        for peer in asked:
            peer.built(variant, end)


def _built(peer: Peer, variants: tuple[str, ...], end: float) -> None:
    for variant in variants:
        if peer.worker.alive or not peer.ready:
            peer.build(variant, end)
        if not peer.worker.alive:
            break


def compare(net: str, options: argparse.Namespace, folder: Path, end: float) -> dict[str, Any]:
    """Build, try, then time all peers of one net in rounds."""
    begin = time.monotonic()
    wanted = {
        name: tuple(v for v in VARIANTS[name] if useful(v, net, options))
        for name in options.peers
        if name not in options.skip and NETS[net].takes(name)
    }
    peers = {name: started(name, net, options, folder) for name in wanted}
    try:
        # The rounds take a fifth of the net's time, measured where time is ample.
        build(peers, wanted, begin + 0.8 * (end - begin))
        chosen: list[tuple[str, str]] = []
        for name, peer in peers.items():
            trial: dict[str, float] = {}
            for variant in list(peer.ready):
                answer = peer.time(variant, options.steps)
                if answer is not None:
                    trial[variant] = answer["us"]
            chosen += [(name, variant) for variant in best_layouts(name, trial)]
        times: dict[tuple[str, str], list[float]] = {key: [] for key in chosen}
        for number in range(options.rounds):
            if number >= 3 and time.monotonic() > end:
                break
            for name, variant in chosen:
                peer = peers[name]
                answer = peer.time(variant, options.steps) if peer.worker.alive else None
                times[name, variant].append(answer["us"] if answer else float("nan"))
        versions = dict.fromkeys(peer.versions for peer in peers.values() if peer.versions)
        failed = {f"{p} {v}": why for p, w in peers.items() for v, why in w.failed.items()}
        return {"times": times, "failed": failed, "versions": list(versions)}
    finally:
        for peer in peers.values():
            peer.worker.stop()


def useful(variant: str, net: str, options: argparse.Namespace) -> bool:
    """Without convolutions the layouts are one."""
    precision = variant.partition("/")[0]
    flat = not NETS[net].convolutional and "nhwc" in variant
    return precision in options.precisions and not flat


def best_layouts(peer: str, trial: dict[str, float]) -> list[str]:
    """Of each precision the fastest variant; all of ours."""
    if peer == OURS:
        return list(trial)
    best: dict[str, str] = {}
    for variant in sorted(trial, key=trial.__getitem__):
        best.setdefault(variant.partition("/")[0], variant)
    return list(best.values())


def show(net: str, result: dict[str, Any]) -> None:
    """A line for each peer and variant: median, range, ratio to ours in the same precision."""
    print(f"\n{net}: microseconds a training step")
    print(f"  {'':32}{'':14}{'median':>10}{'min':>10}{'max':>10}{'ratio':>8}")
    times: dict[tuple[str, str], list[float]] = result["times"]
    for precision in dict.fromkeys(variant.partition("/")[0] for _, variant in times):
        ours, found = times.get((OURS, precision), []), {}
        for (peer, variant), spent in times.items():
            good = [us for us in spent if us == us]
            if variant.partition("/")[0] != precision or not good:
                continue
            pairs = [t / o for t, o in zip(spent, ours, strict=False) if t == t and o == o]
            ratio = f"{median(pairs):.2f}" if pairs else ""
            print(
                f"  {TITLES[peer]:32}{variant.replace('/', ' ', 1):14}"
                f"{median(good):10.1f}{min(good):10.1f}{max(good):10.1f}{ratio:>8}"
            )
            if pairs and peer not in (OURS, BEFORE):
                found[peer] = (median(good), ratio)
        if found:
            first = min(found, key=lambda peer: found[peer][0])
            line = f"  {precision}: fastest peer {TITLES[first]}, {found[first][1]} times ours"
            line += f"; captured graph {found['graph'][1]} times" if "graph" in found else ""
            print(line)
    for name, why in result["failed"].items():
        print(f"  not measured: {name}: {why}")


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nets", nargs="*", default=USUAL, choices=list(NETS))
    parser.add_argument("--peers", nargs="*", default=[OURS, *MODULES], choices=list(VARIANTS))
    parser.add_argument("--skip", nargs="*", default=[], choices=list(MODULES))
    parser.add_argument("--before", type=Path, help="a checkout, the peer 'before'")
    parser.add_argument("--precisions", nargs="*", default=["tf32", "bf16"])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=200, help="in one timing; 200 to 4000")
    parser.add_argument("--minutes", type=float, default=8, help="for everything together")
    parser.add_argument("--limit", type=float, default=90, help="seconds of one answer of a peer")
    parser.add_argument("--tune", choices=["none", "short", "search"], default="short")
    parser.add_argument("--logs", type=Path, help="keep what the peers print in this folder")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if (options.before is None) == (BEFORE in options.peers):
        parser.error("--before DIR and --peers before go together")
    return options


def main() -> None:
    options = parsed()
    os.environ["TUNE"] = options.tune
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    begin = time.monotonic()
    versions: dict[str, None] = {}
    with tempfile.TemporaryDirectory() as folder:
        options.scratch = Path(folder)
        logs = options.logs or options.scratch
        logs.mkdir(parents=True, exist_ok=True)
        os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(Path(folder) / "inductor"))
        for at, net in enumerate(options.nets):
            now = time.monotonic()
            share = (begin + 60 * options.minutes - now) / (len(options.nets) - at)
            if share < 10:
                print(f"{net}: not measured, the time is up", file=sys.stderr)
                continue
            result = compare(net, options, logs, now + share)
            show(net, result)
            sys.stdout.flush()
            versions |= dict.fromkeys(result["versions"])
    print(f"\n{options.rounds} rounds, {options.steps} steps a timing", *versions, sep="\n")
    print(f"\n{time.monotonic() - begin:.0f} s")


if __name__ == "__main__":
    main()

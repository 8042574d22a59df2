"""Training steps on a GPU: dnnstack beside PyTorch and JAX, interleaved, in one run.

    python3 benchmarks/gpu_peers.py                                       # everything
    python3 benchmarks/gpu_peers.py --nets lenet-64 mlp-256 --skip compile --minutes 5
    python3 benchmarks/gpu_peers.py --nets resnet20-128 mnist-best --peers dnnstack graph

Same network, batch, momentum SGD with weight decay and learning-rate schedule everywhere, on noise
in the shape of the data set. Every peer runs in a process of its own (gpu_worker.py), which holds
its steps ready; a round times each of them once while the others wait, so that drift meets all
alike. Each peer is built in both layouts and timed in one trial round; the faster goes into the
rounds. Times are medians over rounds, ratios medians over rounds of peer / dnnstack in the same
precision. dnnstack gathers bytes, normalises them and counts its accuracy in every step; the others
find their pictures ready. Needs torch and jax beside dnnstack; what is missing or fails says why.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from gpu_worker import MODULES, NETS, USUAL

OURS = "dnnstack"
# What each peer is built as, the likelier best first: a slow one may run out of time.
LAYOUTS = ("nhwc", "nchw")
VARIANTS: dict[str, tuple[str, ...]] = {
    OURS: ("tf32", "bf16", "tf32/plain"),
    "eager": tuple(f"{p}/{layout}" for p in ("tf32", "bf16") for layout in LAYOUTS),
    "loader": ("tf32/nchw",),
    "graph": tuple(
        f"{p}/{layout}{k}" for p in ("tf32", "bf16") for layout in LAYOUTS for k in ("", "/16")
    ),
    "jax": tuple(f"{p}/{layout}" for p in ("tf32", "bf16") for layout in LAYOUTS),
    "compile": tuple(f"{p}/{layout}" for layout in LAYOUTS for p in ("tf32", "bf16")),
    "compiled graph": tuple(f"{p}/{layout}" for layout in LAYOUTS for p in ("tf32", "bf16")),
}
TITLES = {
    OURS: "dnnstack",
    "eager": "PyTorch eager, data on the GPU",
    "loader": "PyTorch eager, DataLoader",
    "compile": "torch.compile reduce-overhead",
    "graph": "PyTorch, captured CUDA graph",
    "compiled graph": "torch.compile in a CUDA graph",
    "jax": "JAX, fori_loop",
}
# These compile for long on the CPU alone, so they do it at the same time.
SLOW = ("compile", "compiled graph")
LOADER_STEPS = 60


@dataclass
class Worker:
    """A peer's process for one net."""

    peer: str
    net: str
    device: str
    log: Path
    limit: float
    process: Any = None
    versions: str = ""
    ready: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)

    def start(self) -> None:
        here = Path(__file__).resolve().parent
        command = [sys.executable, str(here / "gpu_worker.py"), self.peer, self.net, self.device]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def send(self, **request: object) -> None:
        try:
            self.process.stdin.write(json.dumps(request).encode() + b"\n")
            self.process.stdin.flush()
        except OSError:
            return

    def receive(self, seconds: float) -> dict[str, Any]:
        """The answer, or an error where none comes in time; the process is ended then."""
        there, _, _ = select.select([self.process.stdout], [], [], max(seconds, 0.0))
        line = self.process.stdout.readline() if there else b""
        if line:
            answer: dict[str, Any] = json.loads(line)
            return answer
        self.stop()
        why = f"no answer in {seconds:.0f} s" if not there else f"the process ended: {self.tail()}"
        return {"error": why}

    def tail(self) -> str:
        lines = self.log.read_text("utf-8", "replace").strip().splitlines()
        return " | ".join(lines[-3:])[-400:]

    def build(self, variant: str, deadline: float) -> None:
        self.send(build=variant)
        self.built(variant, deadline)

    def built(self, variant: str, deadline: float) -> None:
        limit = min(self.limit, deadline - time.monotonic())
        answer = self.receive(limit)
        if "error" in answer:
            self.failed[variant] = answer["error"]
            self.say(f"{variant}: {answer['error']}")
        else:
            self.ready.append(variant)
            self.versions = answer["versions"]
            chosen = "".join(f", {name} {taken}" for name, taken in answer["choices"].items())
            self.say(f"{variant}: built in {answer['seconds']:.1f} s{chosen}")

    def time(self, variant: str, steps: int) -> dict[str, Any] | None:
        self.send(time=variant, steps=steps)
        answer = self.receive(self.limit)
        if "error" in answer:
            self.failed[variant] = answer["error"]
            self.ready = [name for name in self.ready if name != variant] if self.alive else []
            self.say(f"{variant}: {answer['error']}")
            return None
        return answer

    def say(self, text: str) -> None:
        print(f"  {self.net} {TITLES[self.peer]} {text}", file=sys.stderr, flush=True)

    def stop(self) -> None:
        if self.alive:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


def build(
    workers: dict[str, Worker], net: str, wanted: dict[str, tuple[str, ...]], end: float
) -> None:
    """Build every variant; ours first, before the others even start, because it may time its
    choices: their imports would keep the processors busy meanwhile."""
    others = {peer: worker for peer, worker in workers.items() if peer != OURS}
    if OURS in workers:
        workers[OURS].start()
        _built(workers[OURS], wanted[OURS], end)
    for worker in others.values():
        worker.start()
    for peer, worker in others.items():
        if peer not in SLOW:
            _built(worker, wanted[peer], end)
    slow = [worker for peer, worker in workers.items() if peer in SLOW]
    for variant in dict.fromkeys(v for worker in slow for v in wanted[worker.peer]):
        asked = [worker for worker in slow if worker.alive and variant in wanted[worker.peer]]
        if time.monotonic() > end - 5:
            for worker in asked:
                worker.say(f"{variant}: not built, the time is up")
            break
        for worker in asked:
            worker.send(build=variant)
        for worker in asked:
            worker.built(variant, end)


def _built(worker: Worker, variants: tuple[str, ...], end: float) -> None:
    for variant in variants:
        if worker.alive or not worker.ready:
            worker.build(variant, end)
        if not worker.alive:
            break


def compare(net: str, options: argparse.Namespace, folder: Path, end: float) -> dict[str, Any]:
    """Build, try, then time all peers of one net in rounds."""
    begin = time.monotonic()
    wanted = {
        peer: tuple(v for v in VARIANTS[peer] if useful(v, net, options))
        for peer in options.peers
        if peer not in options.skip and NETS[net].takes(peer)
    }
    workers = {
        peer: Worker(peer, net, options.device, folder / f"{net}-{peer}.log", options.limit)
        for peer in wanted
    }
    try:
        # The rounds take a fifth of the net's time, measured where time is ample.
        build(workers, net, wanted, begin + 0.8 * (end - begin))
        chosen: list[tuple[str, str]] = []
        for peer, worker in workers.items():
            trial: dict[str, float] = {}
            for variant in list(worker.ready):
                answer = worker.time(variant, steps_of(peer, options))
                if answer is not None:
                    trial[variant] = answer["us"]
            chosen += [(peer, variant) for variant in best_layouts(peer, trial)]
        times: dict[tuple[str, str], list[float]] = {key: [] for key in chosen}
        for number in range(options.rounds):
            if number >= 3 and time.monotonic() > end:
                break
            for peer, variant in chosen:
                worker = workers[peer]
                answer = worker.time(variant, steps_of(peer, options)) if worker.alive else None
                if answer is None:
                    times[peer, variant].append(float("nan"))
                    continue
                times[peer, variant].append(answer["us"])
                record(options, net=net, peer=peer, variant=variant, round=number, **answer)
        versions = dict.fromkeys(worker.versions for worker in workers.values() if worker.versions)
        failed = {f"{p} {v}": why for p, w in workers.items() for v, why in w.failed.items()}
        return {"times": times, "failed": failed, "versions": list(versions)}
    finally:
        for worker in workers.values():
            worker.stop()


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


def steps_of(peer: str, options: argparse.Namespace) -> int:
    return LOADER_STEPS if peer == "loader" else int(options.steps)


def record(options: argparse.Namespace, **line: object) -> None:
    if options.json is not None:
        with options.json.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


def table(net: str, result: dict[str, Any]) -> list[dict[str, Any]]:
    """A row for each peer and variant: median, range, ratio to ours in the same precision."""
    times: dict[tuple[str, str], list[float]] = result["times"]
    rows = []
    for (peer, variant), spent in times.items():
        precision, _, rest = variant.partition("/")
        good = [us for us in spent if us == us]
        if not good:
            continue
        ours = times.get((OURS, precision), [])
        pairs = [t / o for t, o in zip(spent, ours, strict=False) if t == t and o == o]
        rows.append(
            {
                "net": net,
                "peer": peer,
                "precision": precision,
                "variant": rest,
                "median_us": median(good),
                "min_us": min(good),
                "max_us": max(good),
                "rounds": len(good),
                "ratio": median(pairs) if pairs else None,
            }
        )
    return rows


def show(net: str, rows: list[dict[str, Any]], result: dict[str, Any]) -> None:
    print(f"\n{net}: microseconds a training step")
    print(f"  {'':32}{'':14}{'median':>10}{'min':>10}{'max':>10}{'ratio':>8}")
    for precision in dict.fromkeys(row["precision"] for row in rows):
        members = [row for row in rows if row["precision"] == precision]
        for row in members:
            ratio = "" if row["ratio"] is None else f"{row['ratio']:.2f}"
            print(
                f"  {TITLES[row['peer']]:32}{precision + ' ' + row['variant']:14}"
                f"{row['median_us']:10.1f}{row['min_us']:10.1f}{row['max_us']:10.1f}{ratio:>8}"
            )
        peers = [row for row in members if row["peer"] != OURS and row["ratio"] is not None]
        if peers:
            first = min(peers, key=lambda row: float(row["median_us"]))
            line = f"  {precision}: fastest peer {TITLES[first['peer']]}"
            line += f", {first['ratio']:.2f} times ours"
            graph = [row for row in peers if row["peer"] == "graph"]
            line += f"; captured graph {graph[0]['ratio']:.2f} times" if graph else ""
            print(line)
    for name, why in result["failed"].items():
        print(f"  not measured: {name}: {why}")


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nets", nargs="*", default=USUAL, choices=list(NETS))
    parser.add_argument("--peers", nargs="*", default=list(VARIANTS), choices=list(VARIANTS))
    parser.add_argument("--skip", nargs="*", default=[], choices=list(MODULES))
    parser.add_argument("--precisions", nargs="*", default=["tf32", "bf16"])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=200, help="in one timing; 200 to 4000")
    parser.add_argument("--minutes", type=float, default=8, help="for everything together")
    parser.add_argument("--limit", type=float, default=90, help="seconds of one answer of a peer")
    parser.add_argument("--tune", choices=["none", "short", "search"], default="short")
    parser.add_argument("--json", type=Path, help="append every timing to this file")
    parser.add_argument("--logs", type=Path, help="keep what the peers print in this folder")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda", help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    options = parsed()
    os.environ["TUNE"] = options.tune
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    begin = time.monotonic()
    done: list[tuple[str, list[dict[str, Any]], dict[str, Any]]] = []
    with tempfile.TemporaryDirectory() as folder:
        logs = options.logs or Path(folder)
        logs.mkdir(parents=True, exist_ok=True)
        os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(Path(folder) / "inductor"))
        for at, net in enumerate(options.nets):
            now = time.monotonic()
            share = (begin + 60 * options.minutes - now) / (len(options.nets) - at)
            if share < 10:
                print(f"{net}: not measured, the time is up", file=sys.stderr)
                continue
            result = compare(net, options, logs, now + share)
            rows = table(net, result)
            for row in rows:
                record(options, **row)
            # At once, and all together again at the end.
            show(net, rows, result)
            sys.stdout.flush()
            done.append((net, rows, result))
    print(f"\n{'=' * 86}\nrounds {options.rounds}, {options.steps} steps a timing")
    for text in dict.fromkeys(text for _, _, result in done for text in result["versions"]):
        print(text)
    for net, rows, result in done:
        show(net, rows, result)
    print(f"\n{time.monotonic() - begin:.0f} s")


if __name__ == "__main__":
    main()

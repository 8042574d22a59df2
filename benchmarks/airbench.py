"""airbench94 on CIFAR-10: dnnstack's shipped recipes beside PyTorch, accuracy and seconds.

    python3 benchmarks/airbench.py --data-dir ~/data --runs 15
    python3 benchmarks/airbench.py --recipes sgd --peers dnnstack eager --runs 3 --minutes 3

The recipes are cifar10-airbench.yaml (sgd) and cifar10-airbench-muon.yaml (muon), and the same
written for PyTorch in airbench_torch.py. Timed as their author does it, after a warm-up, with the
data on the device: whitening, training, and the evaluation of the test set with its six views;
not loading, compiling or drawing the other initial values. Every peer runs in a process of its own
(airbench_worker.py); a round is one training with each of them, seed 1 first. ``--noise`` takes
random pictures: seconds mean the same, accuracies nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from statistics import mean, median, stdev
from typing import Any

from processes import Worker

OURS = "dnnstack"
PEERS = (OURS, "eager", "compile")
RECIPES = ("sgd", "muon")
TITLES = {OURS: "dnnstack", "eager": "PyTorch eager", "compile": "torch.compile"}


class Peer:
    """A process that trains one recipe when it is told a seed."""

    def __init__(self, name: str, recipe: str, options: argparse.Namespace, folder: Path) -> None:
        self.name, self.failed, self.versions = name, "", ""
        self.runs: list[dict[str, Any]] = []
        passed = json.dumps({"peer": name, "recipe": recipe, **vars(options)}, default=str)
        log = folder / f"{recipe}-{name}.log"
        self.worker = Worker("airbench_worker.py", passed, log=log)
        self.worker.start()

    def train(self, seed: int) -> dict[str, Any]:
        """Its figures; after a failure none."""
        self.worker.send(seed=seed)
        answer = self.worker.receive()
        self.failed = answer.get("error", "")
        self.versions = answer.pop("versions", self.versions)
        return answer


def compare(recipe: str, options: argparse.Namespace, folder: Path, end: float) -> list[Peer]:
    """All runs of one recipe; rounds begin until ``end``."""
    peers: list[Peer] = []
    try:
        # One after the other: what is timed while it warms up must not be disturbed.
        for name in options.peers:
            begin = time.monotonic()
            peers.append(Peer(name, recipe, options, folder))
            peers[-1].train(0)
            spent = time.monotonic() - begin
            say(f"{recipe} {name}: {peers[-1].failed or 'warm'}, {spent:.0f} s")
        longest = 0.0
        for seed in range(1, options.runs + 1):
            begin = time.monotonic()
            if begin + longest > end:
                say(f"{recipe}: the time is up after {seed - 1} of {options.runs} runs")
                break
            shown = []
            for peer in peers:
                if not peer.failed and not (found := peer.train(seed)).get("error"):
                    peer.runs.append({"seed": seed, **found})
                    shown.append(f"{peer.name} {100 * found['accuracy']:.2f}%")
                    shown[-1] += f" {found['seconds']:.3f} s"
            say(f"{recipe} seed {seed}: {', '.join(shown)}")
            longest = max(longest, time.monotonic() - begin)
    finally:
        for peer in peers:
            peer.worker.stop()
    return peers


def say(text: str) -> None:
    print(f"  {text}", file=sys.stderr, flush=True)


def show(recipe: str, peers: list[Peer]) -> None:
    """A line a peer; the seconds' parts are medians."""
    print(f"\n{recipe}: accuracy on the test set in percent, seconds of one training")
    print(f"  {'':16}{'runs':>5}{'mean':>8}{'dev.':>7}{'median s':>10}{'min s':>8}{'ratio':>7}")
    ours = next((peer for peer in peers if peer.name == OURS and peer.runs), None)
    for peer in peers:
        if not peer.runs:
            print(f"  {TITLES[peer.name]:16} not measured: {peer.failed or 'no time'}")
            continue
        accuracies = [100 * run["accuracy"] for run in peer.runs]
        spent = [run["seconds"] for run in peer.runs]
        deviation = f"{stdev(accuracies):7.2f}" if len(accuracies) > 1 else f"{'':7}"
        ratio = median(spent) / median(r["seconds"] for r in ours.runs) if ours else 0.0
        parts = ", ".join(
            f"{name} {median(run['parts'][name] for run in peer.runs):.3f}"
            for name in peer.runs[0]["parts"]
        )
        print(
            f"  {TITLES[peer.name]:16}{len(spent):5}{mean(accuracies):8.2f}{deviation}"
            f"{median(spent):10.3f}{min(spent):8.3f}{ratio:7.2f}  {parts}"
        )


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--recipes", nargs="*", default=list(RECIPES), choices=RECIPES)
    parser.add_argument("--peers", nargs="*", default=list(PEERS), choices=PEERS)
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("--minutes", type=float, default=4, help="for everything together")
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--noise", action="store_true", help="random pictures, to time alone")
    parser.add_argument("--precision", default="bf16", help="of dnnstack; PyTorch's is fp16")
    parser.add_argument("--tune", choices=["none", "auto", "search"], default="auto")
    parser.add_argument("--mode", default="max-autotune", help="of torch.compile")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda", help=argparse.SUPPRESS)
    parser.add_argument("--tiny", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    options = parsed()
    # What whitens has threads of its own.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    begin = time.monotonic()
    done = []
    with tempfile.TemporaryDirectory() as folder:
        for at, recipe in enumerate(options.recipes):
            now = time.monotonic()
            share = (begin + 60 * options.minutes - now) / (len(options.recipes) - at)
            peers = compare(recipe, options, Path(folder), now + share)
            done.append((recipe, peers))
            show(recipe, peers)
            sys.stdout.flush()
    versions = [peer.versions for _, peers in done for peer in peers]
    print("\n" + "\n".join(dict.fromkeys(text for text in versions if text)))


if __name__ == "__main__":
    main()

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
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import mean, median, stdev
from typing import Any

OURS = "dnnstack"
PEERS = (OURS, "eager", "compile")
RECIPES = ("sgd", "muon")
TITLES = {OURS: "dnnstack", "eager": "PyTorch eager", "compile": "torch.compile"}


class Worker:
    """A process that trains one recipe with one peer when it is told a seed."""

    def __init__(self, peer: str, recipe: str, options: argparse.Namespace, folder: Path) -> None:
        self.peer, self.recipe = peer, recipe
        self.runs: list[dict[str, Any]] = []
        self.failed = ""
        self.versions = ""
        self._log = folder / f"{recipe}-{peer}.log"
        passed = {
            "peer": peer,
            "recipe": recipe,
            "device": options.device,
            "data": str(options.data_dir) if options.data_dir else None,
            "noise": options.noise,
            "tiny": options.tiny,
            "precision": options.precision,
            "tune": options.tune,
            "mode": options.mode,
        }
        script = Path(__file__).with_name("airbench_worker.py")
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, str(script), json.dumps(passed)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
            )

    def wait(self) -> None:
        """Until it is warm."""
        self.versions = self._answer().get("versions", "")

    def train(self, seed: int) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{seed}\n".encode())
        self._process.stdin.flush()
        if answer := self._answer():
            self.runs.append(answer)

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        answer = dict(json.loads(line)) if line else {}
        if not line or "error" in answer:
            self._process.wait()
            last = self._log.read_text("utf-8", "replace").strip().splitlines()[-3:]
            self.failed = answer.get("error") or " | ".join(last) or "the process ended"
            return {}
        return answer

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()


def compare(recipe: str, options: argparse.Namespace, folder: Path, end: float) -> list[Worker]:
    """All runs of one recipe; rounds begin until ``end``."""
    workers: list[Worker] = []
    try:
        # One after the other: what is timed while it warms up must not be disturbed.
        for peer in options.peers:
            begin = time.monotonic()
            workers.append(Worker(peer, recipe, options, folder))
            workers[-1].wait()
            say(f"{recipe} {peer}: {workers[-1].failed or 'warm'}, {seconds_since(begin)}")
        longest = 0.0
        for seed in range(1, options.runs + 1):
            begin = time.monotonic()
            if begin + longest > end:
                say(f"{recipe}: the time is up after {seed - 1} of {options.runs} runs")
                break
            for worker in workers:
                if not worker.failed:
                    worker.train(seed)
            shown = [f"{w.peer} {shown_run(w.runs[-1])}" for w in workers if not w.failed]
            say(f"{recipe} seed {seed}: {', '.join(shown)}")
            longest = max(longest, time.monotonic() - begin)
    finally:
        for worker in workers:
            worker.stop()
    return workers


def say(text: str) -> None:
    print(f"  {text}", file=sys.stderr, flush=True)


def seconds_since(begin: float) -> str:
    return f"{time.monotonic() - begin:.0f} s"


def shown_run(run: dict[str, Any]) -> str:
    return f"{100 * run['accuracy']:.2f}% {run['seconds']:.3f} s"


def show(recipe: str, workers: list[Worker]) -> None:
    """A line a peer; the seconds' parts are medians."""
    print(f"\n{recipe}: accuracy on the test set in percent, seconds of one training")
    print(f"  {'':16}{'runs':>5}{'mean':>8}{'dev.':>7}{'median s':>10}{'min s':>8}{'ratio':>7}")
    ours = next((w for w in workers if w.peer == OURS and w.runs), None)
    for worker in workers:
        if not worker.runs:
            print(f"  {TITLES[worker.peer]:16} not measured: {worker.failed or 'no time'}")
            continue
        accuracies = [100 * run["accuracy"] for run in worker.runs]
        spent = [run["seconds"] for run in worker.runs]
        deviation = f"{stdev(accuracies):7.2f}" if len(accuracies) > 1 else f"{'':7}"
        ratio = median(spent) / median(r["seconds"] for r in ours.runs) if ours else 0.0
        parts = ", ".join(
            f"{name} {median(run['parts'][name] for run in worker.runs):.3f}"
            for name in worker.runs[0]["parts"]
        )
        print(
            f"  {TITLES[worker.peer]:16}{len(spent):5}{mean(accuracies):8.2f}{deviation}"
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
    parser.add_argument("--json", type=Path, help="append every run to this file")
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
            workers = compare(recipe, options, Path(folder), now + share)
            done.append((recipe, workers))
            show(recipe, workers)
            sys.stdout.flush()
            for worker in workers if options.json else ():
                with options.json.open("a", encoding="utf-8") as file:
                    for run in worker.runs:
                        line = {"recipe": recipe, "peer": worker.peer, **run}
                        file.write(json.dumps(line) + "\n")
    versions = [worker.versions for _, workers in done for worker in workers]
    print("\n" + "\n".join(dict.fromkeys(text for text in versions if text)))


if __name__ == "__main__":
    main()

"""A day's work in small: does anything grow with what was done before?

    python3 benchmarks/soak.py [--small] [--device cuda] [--scenario resumes]

10,000 checkpoints, 1,000 epochs, 100,000 predictions and 1,000 resumes of a small network, each
kind in one process of its own. A hundred times on the way, between two operations, it is noted:
resident memory, descriptors, threads (the system's, not only Python's), files and bytes below the
scenario's folder (the logs of a run, which have a line for each event, are counted separately) and,
on a GPU, device memory. A line of JSON for each scenario tells the slope of memory over the
second half of the operations: the median of the slopes between all pairs of samples, which a single
jump of the allocator does not move. Counts are compared by their lowest values in the second and in
the last quarter, because a thread or a file that goes away may still be there in a sample.

Exit status 1 if something grew: a count at all, bytes by more than the digits of larger numbers in
the files, memory by more than ``BOUNDS`` and than the ``NOISE`` of an allocator. ``--small`` does
a few per cent of it.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import itertools
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

FULL = {"checkpoints": 10_000, "epochs": 1_000, "predictions": 100_000, "resumes": 1_000}
SMALL = {"checkpoints": 300, "epochs": 60, "predictions": 2_000, "resumes": 24}
# KB of memory per 1,000 operations. One copy kept of what an operation handles would be 200,000 for
# checkpoints (200 KB each), 3,000 for pictures of 28 x 28 numbers, and more for whole sessions.
BOUNDS = {"checkpoints": 100, "epochs": 500, "predictions": 10, "resumes": 2_000}
# KB in half of the operations.
NOISE = 1024
DIGITS = 1000
SAMPLES = 100
LOGS = {"log.jsonl", "metrics.csv"}
COUNTS = ("descriptors", "threads", "files", "bytes")

CONFIG = """
name: soak
seed: 7
data:
  dataset: {strokes: {train_count: 256, test_count: 20}}
  batch_size: 64
  validation: 64
layers: [flatten, {dense: {units: 32}}, relu, {dense: {units: 10}}, softmax]
optimizer: {type: sgd, lr: 0.01, momentum: 0.9}
train: {log_every: 100}
checkpoint: {keep: 3, best: false}
"""


@dataclass
class Meter:
    """Samples of what a process holds. ``device``: gives the bytes used of a GPU's memory."""

    folder: Path
    total: int
    device: Callable[[], int] | None = None
    samples: list[dict[str, int]] = field(default_factory=list)
    opened: list[Counter[str]] = field(default_factory=list)
    _next: int = 0

    def done(self, count: int) -> None:
        """Take a sample if one is due after ``count`` operations."""
        if count < self._next and count != self.total:
            return
        self._next = count + max(1, self.total // SAMPLES)
        for thread in threading.enumerate():
            if thread.name == "checkpoint":
                # The write that is under way has a thread, descriptors and files.
                thread.join()
        # Sessions that lie in cycles keep files of theirs until the collector happens to run.
        gc.collect()
        opened = _opened()
        status = dict(
            line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines()
        )
        sample = {
            "operations": count,
            "rss_kb": int(status["VmRSS"].split()[0]),
            "descriptors": opened.total(),
            "threads": int(status["Threads"]),
            "files": 0,
            "bytes": 0,
            "log_bytes": 0,
        }
        for name, size in _files(self.folder):
            sample["files"] += 1
            sample["log_bytes" if name in LOGS else "bytes"] += size
        if self.device is not None:
            sample["device_kb"] = self.device() // 1024
        self.samples.append(sample)
        self.opened.append(opened)

    def came_and_went(self) -> dict[str, int]:
        """What the descriptors are of which one sample has more than another."""
        every = set().union(*self.opened)
        counts = {name: [each[name] for each in self.opened] for name in every}
        return {name: max(n) - min(n) for name, n in sorted(counts.items()) if max(n) > min(n)}


def _opened() -> Counter[str]:
    """What the descriptors of this process name, and how often; of a pipe that it is one."""
    found: Counter[str] = Counter()
    for number in os.listdir("/proc/self/fd"):
        name = "the listing itself"
        with contextlib.suppress(FileNotFoundError):
            name = os.readlink(f"/proc/self/fd/{number}").partition(":[")[0]
        found[name] += 1
    return found


def _files(folder: Path) -> Iterator[tuple[str, int]]:
    for where, _, names in os.walk(folder):
        for name in names:
            try:
                yield name, os.lstat(os.path.join(where, name)).st_size
            except FileNotFoundError:
                continue  # a file of a checkpoint that was replaced meanwhile


def slope(points: list[tuple[int, int]]) -> float:
    """The median slope between all pairs of points (x, y) (Theil and Sen), 0 for fewer than two."""
    pairs = itertools.combinations(points, 2)
    return median([(y2 - y1) / (x2 - x1) for (x1, y1), (x2, y2) in pairs] or [0.0])


def figures(scenario: str, samples: list[dict[str, int]], seconds: float) -> dict[str, Any]:
    """What the samples say; ``grew`` names what is not flat."""
    half = samples[len(samples) // 2 :]
    second, last = samples[len(samples) // 4 : len(samples) // 2], samples[-len(samples) // 4 :]
    found: dict[str, Any] = {"scenario": scenario, "operations": samples[-1]["operations"]}
    found["seconds"] = round(seconds, 1)
    grew = []
    for name in ("rss_kb", "device_kb"):
        if name in samples[0]:
            rise = slope([(s["operations"], s[name]) for s in half])
            found[name] = [half[0][name], half[-1][name]]
            found[f"{name}_per_1000"] = round(1000 * rise, 2)
            noise = rise * (half[-1]["operations"] - half[0]["operations"]) <= NOISE
            grew += [name] * (1000 * rise > BOUNDS[scenario] and not noise)
    for name in COUNTS:
        before, after = (min(s[name] for s in part) for part in (second, last))
        found[name] = [before, after]
        grew += [name] * (after > before + (DIGITS if name == "bytes" else 0))
    first, newest = samples[0], samples[-1]
    written = newest["log_bytes"] - first["log_bytes"]
    operations = newest["operations"] - first["operations"]
    found["log_bytes_per_operation"] = round(max(written, 0) / operations, 1)
    found["grew"] = grew
    return found


def soak(scenario: str, count: int, device: str, folder: Path) -> dict[str, Any]:
    """Do ``count`` operations in this process, below ``folder``; returns their figures."""
    os.environ["DNNSTACK_CACHE"] = str(folder / "cache")
    from dnnstack.backends.select import open_backend

    backend = open_backend(device, 1)  # type: ignore[arg-type]
    memory = None
    if backend.name == "cuda":
        from dnnstack.backends.cuda.libraries.runtime import cuda_api

        def memory() -> int:
            if os.environ.get(SHARED):
                return int(cuda_api().pool.held_bytes())
            free, total = cuda_api().runtime.memGetInfo()
            return total - free

    meter = Meter(folder, count, memory)
    begin = time.perf_counter()
    SCENARIOS[scenario](backend, count, folder, meter)
    found = figures(scenario, meter.samples, time.perf_counter() - begin)
    return {**found, "came_and_went": meter.came_and_went()}


def _config(folder: Path, *overrides: str) -> Any:
    from dnnstack.configs import parse_config

    return parse_config(CONFIG, "soak.yaml", [f"run.dir={folder / 'runs'}", *overrides])


def _checkpoints(backend: Any, count: int, folder: Path, meter: Meter) -> None:
    """One training that saves after every step."""
    from dnnstack.training.listener import Listener
    from dnnstack.training.trainer import train

    class Counting(Listener):
        def saving(self, step: int, path: Path) -> None:
            meter.done(step)

    config = _config(folder, f"train.max_steps={count}", "checkpoint.every_steps=1")
    train(config, backend, folder, listener=Counting())


def _epochs(backend: Any, count: int, folder: Path, meter: Meter) -> None:
    """One training; every epoch has three steps, a validation and a checkpoint."""
    from dnnstack.training.listener import Listener
    from dnnstack.training.records.formats.state import Metrics
    from dnnstack.training.trainer import train

    class Counting(Listener):
        epochs = 0

        def validated(self, step: int, metrics: Metrics, best: bool, seconds: float) -> None:
            self.epochs += 1
            meter.done(self.epochs)

    train(_config(folder, f"train.epochs={count}"), backend, folder, listener=Counting())


def _predictions(backend: Any, count: int, folder: Path, meter: Meter) -> None:
    """Calls of ``predict`` with up to 1,000 pictures each, which are read from 20 files."""
    from dnnstack.common.errors import DatasetError
    from dnnstack.datasets import as_image
    from dnnstack.training.assemble import load_data
    from dnnstack.training.inference.forward import Forward
    from dnnstack.training.inference.predict import predict
    from dnnstack.training.inference.trained import Trained
    from dnnstack.training.records.formats.checkpoint import read_checkpoint
    from dnnstack.training.trainer import train

    config = _config(folder, "train.max_steps=3")
    ended = train(config, backend, folder)
    assert ended.checkpoint is not None
    trained = Trained.of(read_checkpoint(ended.checkpoint))
    paths = [folder / f"{i}.png" for i in range(20)]
    for path, image in zip(paths, load_data(config, "test", folder).images, strict=True):
        as_image(image).save(path)
    done = 0
    while done < count:
        some = itertools.islice(itertools.cycle(paths), min(1000, count - done))
        with contextlib.closing(Forward(trained, backend)) as forward:
            for answer in predict(forward, some, 3):
                if isinstance(answer, DatasetError):
                    raise answer
                done += 1
                meter.done(done)


def _resumes(backend: Any, count: int, folder: Path, meter: Meter) -> None:
    """Trainings that are stopped after every step and resumed, 50 times each.

    A longer one would show the memory that reading its log takes, which grows with the log.
    """
    import shutil

    from dnnstack.training.listener import Listener, Progress
    from dnnstack.training.records.resume import open_resume
    from dnnstack.training.trainer import train

    class Stopping(Listener):
        step = 0

        def progressed(self, progress: Progress) -> None:
            self.step = progress.step

    config = _config(folder, "train.max_steps=60", "checkpoint.every_steps=1")
    run: Path | None = None
    step = 0
    for done in range(count + 1):
        if run is not None and done % 50 == 0:
            shutil.rmtree(run)
            run, step = None, 0
        heard, step = Stopping(), step + 1
        source = None if run is None else open_resume(run, lambda text: None)
        until = partial(lambda heard, step: heard.step >= step, heard, step)
        how: dict[str, Any] = {"resume": source, "listener": heard}
        ended = train(config, backend, folder, stop_requested=until, **how)
        if (ended.state, ended.step) != ("interrupted", step):
            raise SystemExit(f"resume {done} ended after step {ended.step}: {ended.state}")
        run = ended.run
        meter.done(done)


# Set where other processes use the same GPU; then only the memory that CuPy holds is counted.
SHARED = "DNNSTACK_SOAK_SHARED"
SCENARIOS = {
    "checkpoints": _checkpoints,
    "epochs": _epochs,
    "predictions": _predictions,
    "resumes": _resumes,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scenario", action="append", choices=SCENARIOS)
    parser.add_argument("--small", action="store_true", help="a few per cent of the operations")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda", "numpy"))
    parser.add_argument("--worker", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    counts = SMALL if options.small else FULL
    if options.worker:
        name, folder = options.worker
        print(json.dumps(soak(name, counts[name], options.device, Path(folder))))
        return
    grew = False
    for name in options.scenario or SCENARIOS:
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, __file__, "--worker", name, folder]
            command += ["--device", options.device, *["--small"] * options.small]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        found = json.loads(done.stdout.splitlines()[-1])
        print(json.dumps(found), flush=True)
        grew = grew or bool(found["grew"])
    raise SystemExit(1 if grew else 0)


if __name__ == "__main__":
    main()

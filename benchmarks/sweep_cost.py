"""What a sweep of equal trials costs, compared with as many trainings one after the other.

    python3 benchmarks/sweep_cost.py --data-dir ~/data
    python3 benchmarks/sweep_cost.py --device cuda --trials 16 --steps 860 --workers 4 --seconds 600

Each round times N calls of `dnnstack train`, one `dnnstack train --seeds N`, which trains them one
after the other in one process, and one `dnnstack sweep` over these seeds, with as many processes as
it chooses by itself or as --workers says. All of them train the same runs. The order changes from
round to round, and the first round serves to warm up. Then the start of a trial in a process that
has trained one with another rate before: the time from the call to the first step, and that of
compiling and setting up, which is a part of it. With --starts-only these alone.
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
from statistics import median
from typing import Any

WAYS = ("calls", "seeds", "sweep")
_STARTS = 6
_PARTS = (
    ("to the first step", "begin", "stepped"),
    ("compiling and setting up", "prepared", "started"),
)


def changes(options: argparse.Namespace) -> list[str]:
    """The settings of a training of some steps, which is validated once."""
    return [
        f"train={{max_steps: {options.steps}}}",
        "name=cost",
        "seed=1",
        "data.split_seed=1",
        *options.overrides,
    ]


def command(options: argparse.Namespace, name: str, folder: Path, *rest: str) -> list[str]:
    given = [word for change in changes(options) for word in ("--set", change)]
    given += ["--data-dir", str(options.data_dir)] if options.data_dir else []
    where = ("--device", options.device, "--runs-dir", str(folder), "--offline", "-q")
    return [sys.executable, "-m", "dnnstack.cli", name, *given, *where, *rest]


def commands(options: argparse.Namespace, way: str, folder: Path) -> list[list[str]]:
    count, config = options.trials, options.config
    if way == "calls":
        seeds = (("--set", f"seed={seed}") for seed in range(1, count + 1))
        return [command(options, "train", folder, "--config", config, *seed) for seed in seeds]
    if way == "seeds":
        return [command(options, "train", folder, "--config", config, "--seeds", str(count))]
    search = {"sampler": "grid", "keys": {"seed": [*range(1, count + 1)]}}
    text = Path(config).read_text(encoding="utf-8") + f"\nsearch: {json.dumps(search)}\n"
    (folder / "cost.yaml").write_text(text, encoding="utf-8")
    workers = ["--workers", str(options.workers)] if options.workers else []
    workers += ["--together"] * options.together
    return [command(options, "sweep", folder, "--config", str(folder / "cost.yaml"), *workers)]


def timed(options: argparse.Namespace, way: str) -> tuple[float, float]:
    """Seconds of the clock, and of all processors."""
    with tempfile.TemporaryDirectory() as name:
        lines = commands(options, way, Path(name))
        before, begin = os.times(), time.perf_counter()
        for line in lines:
            done = subprocess.run(line, capture_output=True, text=True, check=False)
            if done.returncode:
                raise SystemExit(f"{' '.join(line)}\n{done.stderr}")
        seconds, after = time.perf_counter() - begin, os.times()
    used = after.children_user + after.children_system
    return seconds, used - before.children_user - before.children_system


def starts(options: argparse.Namespace) -> list[dict[str, float]]:
    """Milliseconds of each start in one process, the first one included; rates differ."""
    from dnnstack.backends.keeping import Keeping
    from dnnstack.backends.select import open_backend
    from dnnstack.configs import load_config
    from dnnstack.fitting import fit
    from dnnstack.training.groups.shelf import Shelf
    from dnnstack.training.listener import Listener, Progress, Started

    class Watch(Listener):
        def __init__(self) -> None:
            self.at: dict[str, tuple[float, float]] = {}
            self.reach("begin")

        def reach(self, name: str) -> None:
            self.at.setdefault(name, (time.perf_counter(), time.process_time()))

        def prepared(self) -> None:
            self.reach("prepared")

        def started(self, started: Started) -> None:
            self.reach("started")

        def progressed(self, progress: Progress) -> None:
            self.reach("stepped")

    found = []
    with tempfile.TemporaryDirectory() as folder:
        loaded = load_config(options.config, [*changes(options), "train={max_steps: 2}"])
        threads = loaded.config.run.threads or (1 if options.device != "cuda" else None)
        backend, shelf = Keeping(open_backend(options.device, threads)), Shelf()
        for number in range(_STARTS):
            own = [f"optimizer.lr={0.01 + number / 1000}", f"run.dir={folder}"]
            settings = [*changes(options), "train={max_steps: 2}", *own]
            watch = Watch()
            fit(
                load_config(loaded, settings), backend, None, listener=watch,
                stop_requested=lambda: False, data_dir=options.data_dir, downloads=None, load=shelf,
            )  # fmt: skip
            found.append({})
            for what, begin, end in _PARTS:
                for place, clock in enumerate(("", ", of processors")):
                    spent = watch.at[end][place] - watch.at[begin][place]
                    found[-1][what + clock] = 1e3 * spent
            line = ", ".join(f"{name} {value:.1f} ms" for name, value in found[-1].items())
            print(f"start {number + 1}: {line}", flush=True)
    return found


def rounds(options: argparse.Namespace) -> list[dict[str, tuple[float, float]]]:
    found: list[dict[str, tuple[float, float]]] = []
    end, longest = time.monotonic() + options.seconds, 0.0
    for number in range(options.rounds + 1):
        begin = time.monotonic()
        if number and begin + longest > end:
            print("no time is left for another round", flush=True)
            break
        ways = WAYS[number % 3 :] + WAYS[: number % 3]
        row = {}
        for way in ways:
            row[way] = timed(options, way)
            wall, used = row[way]
            print(f"round {number}, {way}: {wall:.2f} s, {used:.2f} s of processors", flush=True)
        longest = max(longest, time.monotonic() - begin)
        if number:
            found.append(row)
    return found


def show(options: argparse.Namespace, found: list[dict[str, tuple[float, float]]]) -> None:
    for place, name in enumerate(("seconds", "seconds of processors")):
        for way in WAYS[:2]:
            ratios = [row["sweep"][place] / row[way][place] for row in found]
            spread = f"{min(ratios):.2f} to {max(ratios):.2f}"
            what = f"{options.trials} {'calls of train' if way == 'calls' else 'seeds at once'}"
            text = f"sweep / {what}, {name}: median {median(ratios):.2f} ({spread}, {len(found)})"
            print(text, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--config", default="lenet.yaml")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--trials", type=int, default=4)
    parser.add_argument("--steps", type=int, default=60, help="of each training")
    parser.add_argument("--workers", type=int, help="of the sweep; default: as it chooses")
    parser.add_argument("--together", action="store_true", help="the sweep runs in one process")
    parser.add_argument("--rounds", type=int, default=5, help="that count")
    parser.add_argument("--seconds", type=float, default=600.0, help="no round begins later")
    parser.add_argument("--set", dest="overrides", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--starts-only", action="store_true", help="no rounds")
    parser.add_argument("--data-dir", type=Path)
    options: Any = parser.parse_args()
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from dnnstack.configs.find import find_config

    options.config = str(find_config(options.config).path)
    found = [] if options.starts_only else rounds(options)
    if found:
        show(options, found)
    later = starts(options)[1:]
    for name in later[0]:
        print(f"later starts, {name}: median {median(each[name] for each in later):.1f} ms")


if __name__ == "__main__":
    main()

"""How fast ``predict_proba`` is, compared with the bare forward pass of the same network.

    chrt -f 20 python3 benchmarks/python_calls.py lenet.yaml mlp.yaml --batches 500 64

The bare pass finds its batch of normalised numbers in memory and leaves the probabilities there;
``predict_proba`` gets an array of bytes and returns an array. Both run in turn, in one process;
figures are medians. Each network is trained for one step, so the configs' data is needed
(DNNSTACK_DATA). Also measured: importing the package, and the first call of a size.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

# The idle workers of NumPy's OpenBLAS would slow everything down; it counts before the import.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import dnnstack
import numpy as np

_SHORTEST = 40


def in_turn(calls: dict[str, Callable[[], object]], seconds: float) -> dict[str, float]:
    """The median seconds of each call, made in turn for about so long, and at least 40 times."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        call()
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(next(iter(times.values()))) < _SHORTEST:
        for name, call in calls.items():
            begin = time.perf_counter()
            call()
            times[name].append(time.perf_counter() - begin)
    return {name: median(each) for name, each in times.items()}


def measured(model: dnnstack.Classifier, count: int, seconds: float) -> str:
    """A row of the table: one network with one size of batches."""
    trained = model.trained
    shape = (count, *model.input_shape)
    pictures = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    graph = trained.network.infer_graph(count)
    executable = trained.compile(model.backend, graph)
    executable.write(graph["x"], trained.checkpoint.provenance.preprocessing(pictures))
    began = time.perf_counter()
    model.predict_proba(pictures)
    first = time.perf_counter() - began
    # A size that comes twice in succession is computed without padding.
    model.predict_proba(pictures)
    found = in_turn(
        {
            "bare": lambda: executable.run("infer"),
            "ours": lambda: model.predict_proba(pictures),
        },
        seconds,
    )
    executable.close()
    bare, ours = found["bare"], found["ours"]
    return (
        f"| `{model.config.name}` | {count} | {1e3 * bare:.2f} | {1e3 * ours:.2f} | "
        f"{bare / ours:.1%} | {count / ours:,.0f} | {1e3 * first:.0f} |"
    )


def import_seconds(starts: int = 21) -> float:
    """The median of how much longer Python takes if it imports the package."""
    times: dict[str, list[float]] = {"pass": [], "import dnnstack": []}
    for _ in range(starts):
        for code, each in times.items():
            begin = time.perf_counter()
            subprocess.run([sys.executable, "-I", "-c", code], check=True)
            each.append(time.perf_counter() - begin)
    return median(times["import dnnstack"]) - median(times["pass"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("configs", nargs="+")
    parser.add_argument("--batches", type=int, nargs="+", default=[500])
    parser.add_argument("--device", default="auto")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--seconds", type=float, default=10.0)
    options = parser.parse_args()
    print(f"import dnnstack: {1e3 * import_seconds():.1f} ms")
    print("| network | batch | bare, ms | predict_proba, ms | share | images/s | first call, ms |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as folder:
        for config in options.configs:
            history = dnnstack.train(
                config,
                overrides={"train.max_steps": 1, "data.validation": 0, "run.tune": False},
                device=options.device,
                runs_dir=Path(folder),
            )
            for count in options.batches:
                with dnnstack.load(
                    history.run, device=options.device, threads=options.threads
                ) as model:
                    print(measured(model, count, options.seconds), flush=True)


if __name__ == "__main__":
    main()

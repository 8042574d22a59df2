"""What exact sums of batch norm cost on a CPU: steps with and without them, taking turns.

    python3 benchmarks/norm_sums.py --config cifar10-resnet20.yaml --threads 2

Without them every batch norm is oneDNN's own primitive, whose sums lose digits. Each way is
compiled several times, because two of the same lie apart by a per cent or two; pictures are made
up, of the config's size. A round times a pair of steps of each, and the faster one counts.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from statistics import mean, median

import numpy as np
from dnnstack.backends.onednn import bind, norm
from dnnstack.backends.select import open_backend
from dnnstack.configs import load_config
from dnnstack.datasets import ImageSet
from dnnstack.graph.ops import BatchNorm, BatchNormBackward
from dnnstack.training.assemble import build_network, describe_data
from dnnstack.training.plan import make_plan
from dnnstack.training.preprocessing import Preprocessing
from dnnstack.training.session import Session
from dnnstack.training.setup import Setup

WAYS = {
    "exact": {kind: bind.KERNELS[kind] for kind in (BatchNorm, BatchNormBackward)},
    "library": {BatchNorm: norm.by_library, BatchNormBackward: norm.backward_by_library},
}


def compiled(name: str, threads: int, way: str) -> Callable[[], float]:
    """A function that makes a step and returns its seconds."""
    bind.KERNELS.update(WAYS[way])
    config = load_config(name, ["run.tune=false", "data.validation=0"]).config
    info = describe_data(config)
    count = 4 * config.data.batch_size
    draw = np.random.default_rng(0)
    pictures = draw.integers(0, 256, (count, *info.shape), np.uint8)
    labels = draw.integers(0, len(info.classes), count).astype(np.int32)
    data = ImageSet("made up", pictures, labels, info.classes)
    scaling = Preprocessing.standardize([0.5] * info.shape[0], [0.25] * info.shape[0])
    plan = make_plan(config, count)
    backend = open_backend("cpu", threads, print)
    session = Session(Setup(config, build_network(config, info), scaling, plan, data), backend)
    session.initialize()

    start = session.snapshot()

    def step() -> float:
        if session.step == plan.total_steps:
            session.put(start)
        begin = time.perf_counter()
        session.run(1)
        return time.perf_counter() - begin

    return step


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--config", default="cifar10-resnet20.yaml")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--compilations", type=int, default=4)
    options = parser.parse_args()
    order = list(WAYS) * options.compilations
    steps = [compiled(options.config, options.threads, way) for way in order]
    for step in steps:
        step(), step()
    times: list[list[float]] = [[] for _ in steps]
    for at in range(options.rounds):
        turn = list(zip(steps, times, strict=True))
        for step, found in turn if at % 2 else turn[::-1]:
            found.append(min(step(), step()))
    typical: dict[str, list[float]] = {way: [] for way in WAYS}
    for way, found in zip(order, times, strict=True):
        typical[way].append(1e3 * median(found))
    for way, each in typical.items():
        print(f"{way:8} {mean(each):8.2f} ms:", *(f"{value:.2f}" for value in each))
    print(f"exact / library {mean(typical['exact']) / mean(typical['library']):.4f}")


if __name__ == "__main__":
    main()

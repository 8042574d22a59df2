"""One peer of gpu_peers.py in a process of its own: it builds and times steps when asked to.

    python3 benchmarks/gpu_worker.py PEER NET DEVICE

Requests come as JSON lines on standard input, answers go as JSON lines to standard output:
{"build": "tf32/nhwc"} is answered by the seconds that took and what timing chose, {"time":
"tf32/nhwc", "steps": 200} by microseconds a step and the loss. What goes wrong is answered as
{"error": why}; the worker lives.
"""

from __future__ import annotations

import importlib
import json
import math
import os
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from cpu_peers import CIFAR, LENET, MLP, Layers

RATE, GAMMA, POWER = 0.01, 1e-4, 0.75
MOMENTUM, DECAY = 0.9, 5e-4
CLASSES = 10
WARM_UP = 20
MODULES = {
    "dnnstack": "gpu_ours",
    "eager": "gpu_torch",
    "loader": "gpu_torch",
    "compile": "gpu_torch",
    "graph": "gpu_torch",
    "compiled graph": "gpu_torch",
    "jax": "gpu_jax",
}


@dataclass(frozen=True)
class Net:
    """A network, trained as Caffe's LeNet example: momentum, weight decay, inv schedule."""

    layers: Layers
    shape: tuple[int, int, int]
    batch: int
    count: int
    # The packaged config whose network and loss are taken, instead of ``layers``.
    config: str = ""

    @property
    def convolutional(self) -> bool:
        return bool(self.config) or self.layers[0][0] == "conv2d"

    def takes(self, peer: str) -> bool:
        """Whether the network is written for that peer: JAX has only those of ``layers``."""
        return peer != "jax" or not self.config


NETS = {
    "lenet-64": Net(LENET, (1, 28, 28), 64, 60_000),
    "lenet-256": Net(LENET, (1, 28, 28), 256, 60_000),
    "lenet-1024": Net(LENET, (1, 28, 28), 1024, 60_000),
    "mlp-256": Net(MLP, (1, 28, 28), 256, 60_000),
    "cifar-512": Net(CIFAR, (3, 32, 32), 512, 50_000),
    "resnet20-128": Net([], (3, 32, 32), 128, 50_000, "cifar10-resnet20.yaml"),
    "cifar10-quick": Net([], (3, 32, 32), 100, 50_000, "cifar10-quick.yaml"),
    "mnist-best": Net([], (1, 28, 28), 128, 60_000, "mnist-best.yaml"),
    "lenet5-1998": Net([], (1, 28, 28), 1, 60_000, "lenet5-1998.yaml"),
}
# Timed where nothing else is asked for.
USUAL = [name for name, net in NETS.items() if not net.config]


@dataclass(frozen=True)
class Built:
    """A step that is ready: ``run(n)`` does n or a few more, waits, and says how many.

    ``choices``: what was chosen by timing, by name.
    """

    run: Callable[[int], int]
    loss: Callable[[], float]
    versions: str
    choices: Mapping[str, str] = field(default_factory=dict)


def rate(step: int) -> float:
    """The learning rate: lr (1 + gamma step) ** -power."""
    return float(RATE * (1 + GAMMA * step) ** -POWER)


def data(net: Net) -> tuple[Any, Any]:
    """Pictures (M, C, H, W) uint8 and labels (M,) int32 of noise, the same for every peer."""
    import numpy as np

    draw = np.random.default_rng(1)
    images = draw.integers(0, 256, (net.count, *net.shape), dtype=np.uint8)
    return images, draw.integers(0, CLASSES, net.count).astype(np.int32)


def order(net: Net) -> Any:
    """One epoch's batches, (steps, batch) int32."""
    import numpy as np

    steps = net.count // net.batch
    drawn = np.random.default_rng(2).permutation(net.count)[: steps * net.batch]
    return drawn.astype(np.int32).reshape(steps, net.batch)


def answer(request: dict[str, Any], built: dict[str, Built], make: Callable[[str], Built]) -> Any:
    begin = time.perf_counter()
    if "build" in request:
        variant = request["build"]
        built[variant] = make(variant)
        built[variant].run(WARM_UP)
        seconds, made = time.perf_counter() - begin, built[variant]
        return {"seconds": seconds, "versions": made.versions, "choices": dict(made.choices)}
    step, steps = built[request["time"]], int(request["steps"])
    step.run(WARM_UP)
    begin = time.perf_counter()
    done = step.run(steps)
    spent = time.perf_counter() - begin
    loss = step.loss()
    if not math.isfinite(loss):
        raise ValueError(f"the loss is {loss}")
    return {"us": 1e6 * spent / done, "loss": loss}


def main() -> None:
    peer, net, device = sys.argv[1], NETS[sys.argv[2]], sys.argv[3]
    # Libraries print to standard output; what they say goes to the log, answers alone come out.
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    module = importlib.import_module(MODULES[peer])
    built: dict[str, Built] = {}

    def make(variant: str) -> Built:
        step: Built = module.build(peer, net, variant, device)
        return step

    for line in sys.stdin:
        try:
            reply = answer(json.loads(line), built, make)
        except Exception as error:
            traceback.print_exc()
            reply = {"error": f"{type(error).__name__}: {error}"[:600]}
        print(json.dumps(reply), file=replies, flush=True)


if __name__ == "__main__":
    main()

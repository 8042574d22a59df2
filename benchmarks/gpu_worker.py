"""One peer of gpu_peers.py in a process of its own: it builds and times steps when asked to.

    python3 benchmarks/gpu_worker.py PEER NET DEVICE

Requests are lines of JSON, see processes.py: {"build": "tf32/nhwc"} is answered by the seconds that
took and what timing chose, {"time": "tf32/nhwc", "steps": 200} by microseconds a step and the loss.
"""

from __future__ import annotations

import importlib
import math
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from cpu_peers import CIFAR, LENET, MLP, Layers
from processes import serve

RATE, GAMMA, POWER = 0.01, 1e-4, 0.75
MOMENTUM, DECAY = 0.9, 5e-4
CLASSES = 10
WARM_UP, STEPS = 20, 1 << 18
OURS = "dnnstack"
# Where the steps of the others are.
MODULES = {
    "eager": "gpu_torch",
    "graph": "gpu_torch",
    "jax": "gpu_jax",
    "compile": "gpu_torch",
    "compiled graph": "gpu_torch",
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


def ours(net: Net, variant: str, device: str) -> Built:
    """dnnstack's step, by its Python interface.

    ``variant``: tf32, bf16, fp32; with /plain library calls alone, with /lecture those of slides,
    with /copied every batch from host memory, with /calls no graph; /lecture,calls both. The
    environment's TUNE: "search" leaves no plan out, "none" times nothing.
    """
    import numpy as np
    from dnnstack.backends.base import Options
    from dnnstack.backends.select import open_backend
    from dnnstack.configs import load_config
    from dnnstack.datasets import describe
    from dnnstack.layers.build import LayerSpec, build_layers
    from dnnstack.layers.losses.cross_entropy import CrossEntropyLoss
    from dnnstack.optimizers.sgd import Sgd
    from dnnstack.training.assemble import build_network
    from dnnstack.training.network import Network
    from dnnstack.training.preprocessing import Preprocessing
    from dnnstack.training.sections import Composition, Step

    precision, _, way = variant.partition("/")
    if net.config:
        config = load_config(net.config).config
        network = build_network(config, describe(config.data.dataset.type))
    else:
        specs = [LayerSpec(kind, options=options) for kind, options in net.layers]
        layers = build_layers(specs, net.shape)
        network = Network(layers, CrossEntropyLoss(), net.shape, CLASSES)
    scaling = Preprocessing.standardize([0.0] * net.shape[0], [1.0] * net.shape[0])
    batches = order(net)
    rule = Composition(Sgd(momentum=MOMENTUM, weight_decay=DECAY))
    given = (net.batch, "train", net.count, len(batches), STEPS, scaling, rule, 0)
    graph, _ = Step(network, *given).graphs(0)
    backend = open_backend("cuda" if device == "cuda" else "cpu", capture="calls" not in way)
    tune = os.environ.get("TUNE", "")
    options = Options(
        precision if device == "cuda" else "auto",  # type: ignore[arg-type]
        fusion="plain" not in way,
        calls="lecture" if "lecture" in way else "best",
        residency="stream" if "copied" in way else "device",
        tune=tune != "none",
        tune_seconds=math.inf if tune == "search" else None,
    )
    executable = backend.compile({"train": graph}, options)
    images, labels = data(net)
    executable.write(graph["images"], images)
    executable.write(graph["labels"], labels)
    executable.write(graph["order"], batches.reshape(-1))
    executable.write(graph["rates"], np.array([rate(t) for t in range(STEPS)], np.float32))
    for tensor, values in network.initial_values(1).items():
        executable.write(tensor, values)

    def run(steps: int) -> int:
        executable.run("train", steps)
        return steps

    def loss() -> float:
        return float(executable.read(graph["loss"])[0])

    versions = ", ".join(f"{name} {version}" for name, version in backend.versions().items())
    return Built(run, loss, versions, executable.tuning.choices)


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
    built: dict[str, Built] = {}

    def make(variant: str) -> Built:
        if peer == OURS:
            return ours(net, variant, device)
        step: Built = importlib.import_module(MODULES[peer]).build(peer, net, variant, device)
        return step

    serve(lambda request: answer(request, built, make))


if __name__ == "__main__":
    main()

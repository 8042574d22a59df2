"""Training steps on the CPU: dnnstack's oneDNN backend beside PyTorch, alternating in one run.

    python3 -m pip install '.[bench]'
    python3 benchmarks/cpu_peers.py --threads 2

Same network, batch, threads and float32 on both sides, plain SGD. A round times every variant once,
each for at least SLICE seconds after one step that is not counted, so that drift of the machine
meets all of them alike; the ratio is the median over rounds of peer / ours. PyTorch's inputs lie
ready as float tensors; ours are gathered from bytes, normalised, and counted for accuracy, in
every step. The fraction of the limit is GFLOP/s by the fastest gemm seen in the same run.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

SLICE = 0.15
RATE = 0.01

Layers = list[tuple[str, dict[str, Any]]]
CONV3 = {"kernel_size": 3, "padding": "same"}
MLP: Layers = [
    ("flatten", {}),
    ("dense", {"units": 500}),
    ("relu", {}),
    ("dense", {"units": 10}),
    ("softmax", {}),
]
LENET: Layers = [
    ("conv2d", {"filters": 20, "kernel_size": 5}),
    ("max_pool2d", {}),
    ("conv2d", {"filters": 50, "kernel_size": 5}),
    ("max_pool2d", {}),
    ("flatten", {}),
    ("dense", {"units": 500}),
    ("relu", {}),
    ("dense", {"units": 10}),
    ("softmax", {}),
]
CIFAR: Layers = [
    ("conv2d", {"filters": 64, **CONV3}),
    ("relu", {}),
    ("conv2d", {"filters": 64, **CONV3}),
    ("relu", {}),
    ("max_pool2d", {}),
    ("conv2d", {"filters": 128, **CONV3}),
    ("relu", {}),
    ("conv2d", {"filters": 128, **CONV3}),
    ("relu", {}),
    ("max_pool2d", {}),
    ("flatten", {}),
    ("dense", {"units": 10}),
    ("softmax", {}),
]
NETS: dict[str, tuple[Layers, tuple[int, int, int], int]] = {
    "mlp-256": (MLP, (1, 28, 28), 256),
    "lenet-64": (LENET, (1, 28, 28), 64),
    "lenet-256": (LENET, (1, 28, 28), 256),
    "cifar-128": (CIFAR, (3, 32, 32), 128),
}
Step = Callable[[], Any]


def ours(name: str, threads: int) -> tuple[Step, int, Any]:
    """A step of ours, its FLOPs, and the backend."""
    import numpy as np
    from dnnstack.layers.backends.select import open_backend
    from dnnstack.layers.build import LayerSpec, build_layers
    from dnnstack.layers.losses import CrossEntropyLoss
    from dnnstack.training.network import Network, Preprocessing
    from dnnstack.training.sgd import Sgd

    spec, shape, batch = NETS[name]
    layers = build_layers([LayerSpec(kind, options=options) for kind, options in spec], shape)
    network = Network(layers, CrossEntropyLoss(), shape, 10)
    count, steps = 16 * batch, 1 << 20
    scaling = Preprocessing.standardize([0.0] * shape[0], [1.0] * shape[0])
    graph = network.train_graph(batch, "train", count, 16, steps, scaling, Sgd())
    backend = open_backend("cpu", threads)
    executable = backend.compile({"train": graph})
    draw = np.random.default_rng(1)
    images = draw.integers(0, 256, (count, *shape), dtype=np.uint8)
    executable.write(graph["images"], images)
    executable.write(graph["labels"], draw.integers(0, 10, count).astype(np.int32))
    executable.write(graph["order"], np.arange(count, dtype=np.int32))
    executable.write(graph["rates"], np.full(steps, RATE, np.float32))
    for tensor, values in network.initial_values(1).items():
        executable.write(tensor, values)
    flops = sum(op.flops() for op in executable.graphs["train"].ops)
    return lambda: executable.run("train"), flops, backend


def torch_step(name: str, *, channels_last: bool, fused: bool, compiled: bool = False) -> Step:
    """A step of PyTorch: forward, cross-entropy, backward, SGD."""
    import torch
    from torch import nn

    spec, shape, batch = NETS[name]
    torch.manual_seed(1)
    modules: list[nn.Module] = []
    channels, height = shape[0], shape[1]
    features = 0
    for kind, options in spec:
        if kind == "conv2d":
            padding = options["kernel_size"] // 2 if options.get("padding") == "same" else 0
            filters, kernel = options["filters"], options["kernel_size"]
            modules.append(nn.Conv2d(channels, filters, kernel, padding=padding))
            channels, height = filters, height + 2 * padding - kernel + 1
        elif kind == "max_pool2d":
            modules.append(nn.MaxPool2d(2))
            height //= 2
        elif kind == "flatten":
            modules.append(nn.Flatten())
            features = channels * height * height
        elif kind == "dense":
            modules.append(nn.Linear(features, options["units"]))
            features = options["units"]
        elif kind == "relu":
            modules.append(nn.ReLU())
    net = nn.Sequential(*modules)
    x = torch.rand(batch, *shape)
    target = torch.randint(0, 10, (batch,))
    if channels_last:
        net = net.to(memory_format=torch.channels_last)
        x = x.contiguous(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(net.parameters(), lr=RATE, fused=fused)

    def forward(inputs: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(net(inputs), target)

    run = torch.compile(forward) if compiled else forward

    def step() -> float:
        optimizer.zero_grad(set_to_none=True)
        loss = run(x)
        loss.backward()
        optimizer.step()
        return float(loss.item())

    return step


def slice_time(step: Step, once: float) -> float:
    """Seconds a step, over at least SLICE seconds, after one step that is not counted."""
    count = max(1, int(SLICE / once))
    step()
    begin = time.perf_counter()
    for _ in range(count):
        step()
    return (time.perf_counter() - begin) / count


def compare(name: str, threads: int, rounds: int, compiled: bool) -> dict[str, Any]:
    """Time all variants of one network in alternation."""
    step, flops, backend = ours(name, threads)
    variants: dict[str, Step] = {
        "dnnstack": step,
        "torch eager": torch_step(name, channels_last=False, fused=False),
        "torch fused SGD": torch_step(name, channels_last=False, fused=True),
    }
    if name != "mlp-256":
        variants["torch channels_last, fused SGD"] = torch_step(
            name, channels_last=True, fused=True
        )
    if compiled:
        variants["torch.compile, fused SGD"] = torch_step(
            name, channels_last=False, fused=True, compiled=True
        )
    once: dict[str, float] = {}
    for key, variant in variants.items():
        variant()
        variant()
        begin = time.perf_counter()
        variant()
        once[key] = time.perf_counter() - begin
    times: dict[str, list[float]] = {key: [] for key in variants}
    peak = 0.0
    for _ in range(rounds):
        peak = max(peak, backend.limits().gflops)
        for key, variant in variants.items():
            times[key].append(slice_time(variant, once[key]))
    base = times["dnnstack"]
    rows = {
        key: {
            "median_ms": 1e3 * median(spent),
            "min_ms": 1e3 * min(spent),
            "ratio": median(t / o for t, o in zip(spent, base, strict=True)),
            "gflops": flops / median(spent) / 1e9,
            "of_peak": flops / median(spent) / 1e9 / peak,
        }
        for key, spent in times.items()
    }
    return {"gflop_per_step": flops / 1e9, "peak_gflops": peak, "rounds": rounds, "rows": rows}


def show(name: str, result: dict[str, Any]) -> None:
    peak, work = result["peak_gflops"], result["gflop_per_step"]
    print(f"\n{name}: {work:.3f} GFLOP a step, gemm peak {peak:.0f} GFLOP/s")
    print(f"  {'':32}{'median ms':>10}{'min ms':>10}{'ratio':>8}{'GFLOP/s':>10}{'of peak':>9}")
    for key, row in result["rows"].items():
        print(
            f"  {key:32}{row['median_ms']:10.3f}{row['min_ms']:10.3f}{row['ratio']:8.2f}"
            f"{row['gflops']:10.0f}{row['of_peak']:9.0%}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("nets", nargs="*", default=list(NETS), help=", ".join(NETS))
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--compile", action="store_true", help="torch.compile too (slow to start)")
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    options = parser.parse_args()
    # NumPy's BLAS workers spin after a call and would take the cores from both sides.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    os.environ["OMP_NUM_THREADS"] = str(options.threads)
    import torch

    torch.set_num_threads(options.threads)
    print(f"PyTorch {torch.__version__}, {options.threads} threads, {options.rounds} rounds")
    results = {}
    for name in options.nets:
        results[name] = compare(name, options.threads, options.rounds, options.compile)
        show(name, results[name])
    if options.json is not None:
        options.json.write_text(json.dumps(results, indent=1), "utf-8")


if __name__ == "__main__":
    main()

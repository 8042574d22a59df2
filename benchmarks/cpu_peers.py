"""Training steps on the CPU: dnnstack's oneDNN backend beside PyTorch, alternating in one run.

    python3 -m pip install '.[bench]'
    python3 benchmarks/cpu_peers.py --threads 2
    python3 benchmarks/cpu_peers.py --threads 2 --precision bf16

Same network, batch, threads and precision on both sides, plain SGD. In bf16 both keep parameters in
float32 and compute in bfloat16, PyTorch under autocast. A round times every variant once, each for
at least SLICE seconds after one step that is not counted, so that drift of the machine meets all of
them alike; the ratio is the median over rounds of peer / ours. PyTorch's inputs lie ready as float
tensors; ours are gathered from bytes, normalised, and counted for accuracy, in every step. The
fraction of the limit is GFLOP/s by the fastest gemm in float32 seen in the same run.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from statistics import median
from typing import Any

SLICE = 0.15
RATE = 0.01

Layers = list[tuple[str, dict[str, Any]]]
CONV3 = {"kernel_size": 3, "padding": "same"}
RELU: Layers = [("relu", {})]
POOL: Layers = [("max_pool2d", {})]
END: Layers = [("dense", {"units": 10}), ("softmax", {})]
MLP: Layers = [("flatten", {}), ("dense", {"units": 500}), *RELU, *END]
LENET: Layers = [
    *(("conv2d", {"filters": 20, "kernel_size": 5}), *POOL),
    *(("conv2d", {"filters": 50, "kernel_size": 5}), *POOL),
    *MLP,
]


def plain(filters: int) -> Layers:
    return [("conv2d", {"filters": filters, **CONV3}), *RELU]


CIFAR: Layers = [
    *(*plain(64), *plain(64), *POOL),
    *(*plain(128), *plain(128), *POOL),
    *(("flatten", {}), *END),
]


def convolved(filters: int, stride: int = 1) -> Layers:
    """A 3x3 convolution without bias and its batch norm."""
    rest = {"kernel_size": 3, "padding": 1, "stride": stride, "use_bias": False}
    return [("conv2d", {"filters": filters, **rest}), ("batch_norm", {})]


CIFAR_NORM: Layers = [
    *(*convolved(64), *RELU, *convolved(64), *RELU, *POOL),
    *(*convolved(128), *RELU, *convolved(128), *RELU, *POOL),
    *(("flatten", {}), *END),
]


def block(filters: int, stride: int) -> Layers:
    """A residual block with the parameter-free shortcut (He et al. 2016, option A)."""
    body = [*convolved(filters, stride), *RELU, *convolved(filters)]
    return [("residual", {"body": body, "shortcut": "padding"}), *RELU]


RESNET20: Layers = [
    *(*convolved(16), *RELU),
    *(*block(16, 1), *block(16, 1), *block(16, 1)),
    *(*block(32, 2), *block(32, 1), *block(32, 1)),
    *(*block(64, 2), *block(64, 1), *block(64, 1)),
    *(("global_avg_pool2d", {}), *END),
]
NETS: dict[str, tuple[Layers, tuple[int, int, int], int]] = {
    "mlp-256": (MLP, (1, 28, 28), 256),
    "lenet-64": (LENET, (1, 28, 28), 64),
    "lenet-256": (LENET, (1, 28, 28), 256),
    "cifar-128": (CIFAR, (3, 32, 32), 128),
    "cifar-bn-128": (CIFAR_NORM, (3, 32, 32), 128),
    "resnet20-128": (RESNET20, (3, 32, 32), 128),
}
Step = Callable[[], Any]


def ours(name: str, threads: int, precision: str) -> tuple[Step, int, Any]:
    """A step of ours, its FLOPs, and the backend."""
    import numpy as np
    from dnnstack.backends.base import Options
    from dnnstack.backends.select import open_backend
    from dnnstack.layers.build import LayerSpec, build_layers
    from dnnstack.layers.losses.cross_entropy import CrossEntropyLoss
    from dnnstack.optimizers.sgd import Sgd
    from dnnstack.training.network import Network
    from dnnstack.training.preprocessing import Preprocessing
    from dnnstack.training.sections import Composition, Step

    def specs(layers: Layers) -> list[LayerSpec]:
        return [
            LayerSpec(kind, options={k: specs(v) if k == "body" else v for k, v in options.items()})
            for kind, options in layers
        ]

    spec, shape, batch = NETS[name]
    layers = build_layers(specs(spec), shape)
    network = Network(layers, CrossEntropyLoss(), shape, 10)
    count, steps = 16 * batch, 1 << 20
    scaling = Preprocessing.standardize([0.0] * shape[0], [1.0] * shape[0])
    given = (network, batch, "train", count, 16, steps, scaling, Composition(Sgd()), 0)
    graph, _ = Step(*given).graphs(0)
    backend = open_backend("cpu", threads)
    executable = backend.compile({"train": graph}, Options(precision))  # type: ignore[arg-type]
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


def torch_net(spec: Layers, x: Any) -> Any:
    """PyTorch's modules for a stack; x: what it will be given, for the shapes."""
    import torch
    from torch import nn

    class Residual(nn.Module):
        def __init__(self, body: nn.Module, x: torch.Tensor) -> None:
            super().__init__()
            self.body = body
            y = body(x)
            self.stride, self.more = x.shape[2] // y.shape[2], y.shape[1] - x.shape[1]

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.body(x)
            if self.more:
                x = x[:, :, :: self.stride, :: self.stride]
                x = nn.functional.pad(x, (0, 0, 0, 0, 0, self.more))
            return y + x

    modules: list[nn.Module] = []
    for kind, options in spec:
        if kind == "conv2d":
            made: nn.Module = nn.Conv2d(
                x.shape[1],
                options["filters"],
                options["kernel_size"],
                options.get("stride", 1),
                options.get("padding", 0),
                bias=options.get("use_bias", True),
            )
        elif kind == "dense":
            made = nn.Linear(x.shape[1], options["units"])
        elif kind == "batch_norm":
            made = nn.BatchNorm2d(x.shape[1])
        elif kind == "residual":
            made = Residual(torch_net(options["body"], x), x)
        elif kind == "global_avg_pool2d":
            made = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())
        elif kind == "softmax":
            continue  # part of the loss
        else:
            made = {"relu": nn.ReLU, "flatten": nn.Flatten}.get(kind, lambda: nn.MaxPool2d(2))()
        modules.append(made)
        with torch.no_grad():
            x = made(x)
    return nn.Sequential(*modules)


def torch_step(
    name: str, precision: str, *, channels_last: bool, fused: bool, compiled: bool = False
) -> Step:
    """A step of PyTorch: forward, cross-entropy, backward, SGD."""
    import torch
    from torch import nn

    spec, shape, batch = NETS[name]
    torch.manual_seed(1)
    net = torch_net(spec, torch.rand(2, *shape))
    x = torch.rand(batch, *shape)
    target = torch.randint(0, 10, (batch,))
    if channels_last:
        net = net.to(memory_format=torch.channels_last)
        x = x.contiguous(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(net.parameters(), lr=RATE, fused=fused)

    def forward(inputs: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
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


def compare(name: str, threads: int, rounds: int, compiled: bool, precision: str) -> None:
    """Time all variants of one network in alternation, and print a line for each."""
    step, flops, backend = ours(name, threads, precision)
    variants: dict[str, Step] = {
        "dnnstack": step,
        "torch eager": torch_step(name, precision, channels_last=False, fused=False),
        "torch fused SGD": torch_step(name, precision, channels_last=False, fused=True),
    }
    if name != "mlp-256":
        variants["torch channels_last, fused SGD"] = torch_step(
            name, precision, channels_last=True, fused=True
        )
    if compiled:
        variants["torch.compile, fused SGD"] = torch_step(
            name, precision, channels_last=False, fused=True, compiled=True
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
    work = flops / 1e9
    print(f"\n{name}: {work:.3f} GFLOP a step, gemm peak {peak:.0f} GFLOP/s in float32")
    print(f"  {'':32}{'median ms':>10}{'min ms':>10}{'ratio':>8}{'GFLOP/s':>10}{'of peak':>9}")
    for key, spent in times.items():
        ratio = median(t / o for t, o in zip(spent, times["dnnstack"], strict=True))
        rate = work / median(spent)
        print(
            f"  {key:32}{1e3 * median(spent):10.3f}{1e3 * min(spent):10.3f}{ratio:8.2f}"
            f"{rate:10.0f}{rate / peak:9.0%}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("nets", nargs="*", default=list(NETS), help=", ".join(NETS))
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="fp32")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--compile", action="store_true", help="torch.compile too (slow to start)")
    options = parser.parse_args()
    # NumPy's BLAS workers spin after a call and would take the cores from both sides.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    os.environ["OMP_NUM_THREADS"] = str(options.threads)
    import torch

    torch.set_num_threads(options.threads)
    settings = f"{options.precision}, {options.threads} threads, {options.rounds} rounds"
    print(f"PyTorch {torch.__version__}, {settings}")
    for name in options.nets:
        compare(name, options.threads, options.rounds, options.compile, options.precision)


if __name__ == "__main__":
    main()

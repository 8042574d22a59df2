"""The product of a pruned dense layer: with the weights in CSR, and with all of them.

    python3 -m pip install '.[bench]'
    python3 benchmarks/sparse_forward.py
    python3 benchmarks/sparse_forward.py --kept 0.02 0.05 --threads 2
    python3 benchmarks/sparse_forward.py --device cuda

CSR has the weights that are not 0, with their columns and where each row begins. The oneDNN that
dnnstack uses describes such matrices, but has no product for them; this one is MKL's, by way of
PyTorch, which multiplies a sparse matrix from the left: y^T = W x^T, with pictures side by side.
The dense product is y = x W^T, by PyTorch too. A round times both in turn, each for a fiftieth of a
second; printed are medians of microseconds, and the median of their ratio.

On a GPU both products are cuBLAS's (in TF32) and cuSPARSE's, by way of PyTorch too, each launched
``LAUNCHES`` times as one CUDA graph, so that the time to launch from Python does not count.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from statistics import median
from time import perf_counter
from typing import Any

LAYERS = {
    "LeNet-300-100, dense_1": (300, 784),
    "LeNet, dense_1": (500, 800),
    "VGG-16, fc7": (4096, 4096),
}
SLICE, LAUNCHES = 0.02, 100


def seconds(run: Callable[[], Any]) -> float:
    count, begin = 0, perf_counter()
    while (taken := perf_counter() - begin) < SLICE:
        run()
        count += 1
    return taken / count


def captured(run: Callable[[], Any]) -> Callable[[], Any]:
    """What launches the call ``LAUNCHES`` times as one graph, and waits for it."""
    import torch

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        for _ in range(LAUNCHES):
            run()

    def launch() -> None:
        graph.replay()
        torch.cuda.synchronize()

    return launch


def row(shape: tuple[int, int], kept: float, batch: int, rounds: int, device: str) -> str:
    import torch

    torch.manual_seed(5)
    weights = (torch.randn(shape) * (torch.rand(shape) < kept)).to(device)
    x = torch.randn(batch, shape[1]).to(device)
    side, rows = x.T.contiguous(), weights.to_sparse_csr()

    def dense() -> Any:
        return torch.nn.functional.linear(x, weights)

    def sparse() -> Any:
        return rows @ side

    rounded = 1e-3 if device == "cpu" else 5e-2  # TF32 keeps 10 bits of each operand
    torch.testing.assert_close(sparse().T, dense(), rtol=rounded, atol=rounded)
    calls, scale = (dense, sparse), 1e6
    if device == "cuda":
        calls, scale = (captured(dense), captured(sparse)), 1e6 / LAUNCHES
    times = [(seconds(calls[0]), seconds(calls[1])) for _ in range(rounds)]
    whole, few = (scale * median(each) for each in zip(*times, strict=True))
    ratio = median(one / other for one, other in times)
    return f"{batch} | {kept:.0%} | {whole:,.1f} | {few:,.1f} | {ratio:.2f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kept", type=float, nargs="*", default=[0.02, 0.08, 0.3])
    parser.add_argument("--batches", type=int, nargs="*", default=[1, 64])
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = str(options.threads)
    import torch

    torch.set_num_threads(options.threads)
    torch.set_grad_enabled(False)
    torch.backends.cuda.matmul.allow_tf32 = True
    print("| layer | batch | kept | dense, us | CSR, us | dense / CSR |\n" + "| --- " * 6 + "|")
    for name, shape in LAYERS.items():
        for batch in options.batches:
            for kept in options.kept:
                print(
                    f"| {name} | {row(shape, kept, batch, options.rounds, options.device)}",
                    flush=True,
                )


if __name__ == "__main__":
    main()

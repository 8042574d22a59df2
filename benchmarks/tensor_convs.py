"""Own convolutions on tensor cores, alone: the ways that a search would time, and further ones.

    python3 benchmarks/tensor_convs.py --further 6 --json ways.jsonl

Rows of "warp" are bfloat16 by products of warpgroups.
Every way is compiled for compute capability 9.0, on all cores; its results are compared with those
of PyTorch in float64, twice bit for bit, and a graph of 20 launches is timed (the median of five).
A line for each convolution has the fastest way, the fastest of those that the model puts first, and
the place of the fastest in its order.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np
from dnnstack.backends.cuda.fused.conv_tilings import Tiling, tilings
from dnnstack.backends.cuda.fused.filter_tilings import FilterTiling, filter_tilings
from dnnstack.backends.cuda.fused.tensor_conv import ALONE, CANDIDATES
from dnnstack.backends.cuda.fused.tilings import Geometry
from dnnstack.backends.cuda.fused.warpgroup_filter_tilings import (
    WarpgroupFilterTiling,
    warpgroup_filter_tilings,
)
from dnnstack.backends.cuda.fused.warpgroup_tilings import WarpgroupTiling, warpgroup_tilings
from dnnstack.backends.cuda.libraries.kernels import source_of
from dnnstack.backends.cuda.libraries.layout import BFLOAT, FLOAT
from dnnstack.backends.cuda.libraries.runtime import H200
from dnnstack.graph.geometry import Window

LAUNCHES = 20
# Stored channels of x and y, window, size of the picture, padding; batches.
CONVOLUTIONS = {
    "LeNet's second": (24, 56, 5, 12, 0, (64, 256, 1024)),
    "3x3 16-16 at 32": (16, 16, 3, 32, 1, (128, 512)),
    "3x3 32-32 at 16": (32, 32, 3, 16, 1, (128,)),
    "3x3 64-64 at 8": (64, 64, 3, 8, 1, (128,)),
    "3x3 32-32 at 28": (32, 32, 3, 28, 1, (64, 512)),
    "5x5 32-32 at 16": (32, 32, 5, 16, 2, (128,)),
    "3x3 64-64 at 32": (64, 64, 3, 32, 1, (512,)),
    "3x3 24-64 at 31": (24, 64, 3, 31, 1, (2000,)),
    "3x3 3-16 at 32": (3, 16, 3, 32, 1, (128,)),
    "5x5 3-32 at 32": (3, 32, 5, 32, 2, (128,)),
    "3x3 3-64 at 32": (3, 64, 3, 32, 1, (512,)),
}
NULL = np.uint64(0)
AnyWay = Tiling | FilterTiling | WarpgroupTiling | WarpgroupFilterTiling
KINDS = ("forward", "data", "filter")


@dataclass(frozen=True)
class Job:
    name: str
    n: int
    kind: str
    bf16: bool
    warpgroups: bool = False

    @property
    def geometry(self) -> Geometry:
        c, k, size, picture, pad, _ = CONVOLUTIONS[self.name]
        window = Window((size, size), padding=(pad,) * 4)
        x, y = (c, picture, picture), (k, *window.output(picture, picture))
        dtype = BFLOAT if self.bf16 else FLOAT
        if self.kind == "data":
            return Geometry(y, x, window, True, dtype)
        return Geometry(x, y, window, False, dtype)

    def ways(self, most: int) -> Sequence[AnyWay]:
        if self.warpgroups and self.kind == "filter":
            return warpgroup_filter_tilings(self.geometry, self.n, most, H200)
        if self.warpgroups:
            return warpgroup_tilings(self.geometry, self.n, most, H200)
        if self.kind == "filter":
            return filter_tilings(self.geometry, self.n, most, H200)
        return tilings(self.geometry, self.n, most, H200)

    @property
    def file(self) -> str:
        family = "warpgroup" if self.warpgroups else "tensor"
        return f"{family}_{'filter' if self.kind == 'filter' else 'conv'}"


def jobs() -> Iterator[Job]:
    for name, (channels, *_, batches) in CONVOLUTIONS.items():
        for n in batches:
            for kind in KINDS:
                if channels > 4 or kind == "filter":
                    yield from (Job(name, n, kind, bf16) for bf16 in (False, True))
                if channels > 4:
                    yield Job(name, n, kind, True, warpgroups=True)


def compiled(job: Job, way: AnyWay) -> tuple[Job, AnyWay, bytes]:
    """In a process of its own, without a device."""
    from cupy.cuda import nvrtc

    values = job.geometry.numbers() | way.numbers | {"BFLOAT": int(job.bf16)}
    values |= {"BIAS": 1, "ACTIVATION": -1, "DATA": int(job.kind == "data"), **ALONE}
    program = nvrtc.createProgram(source_of(f"{job.file}.cu"), f"{job.file}.cu", (), ())
    defines = (f"-D{name}={value}" for name, value in values.items())
    architecture = "-arch=sm_90a" if job.warpgroups else "-arch=sm_90"
    nvrtc.compileProgram(program, ("-std=c++17", architecture, *defines))
    return job, way, nvrtc.getCUBIN(program)


class Problem:
    """Operands of a job on the device, and its right results."""

    def __init__(self, job: Job) -> None:
        import torch

        torch.manual_seed(1)
        g, n = job.geometry, job.n
        dtype = torch.bfloat16 if job.bf16 else torch.float32
        (c, *picture), (k, *out) = (g.y, g.x) if g.data else (g.x, g.y)

        def drawn(*shape: int) -> Any:
            return torch.randn(*shape, device="cuda").to(dtype)

        x, w, dy = drawn(n, *picture, c), drawn(k, *g.window.kernel, c), drawn(n, *out, k)
        bias = torch.randn(k, device="cuda")
        exact = [each.double().permute(0, 3, 1, 2) for each in (x, w, dy)]
        pad, grad = g.window.padding[0], torch.nn.grad
        if job.kind == "forward":
            right = torch.nn.functional.conv2d(exact[0], exact[1], bias.double(), padding=pad)
            self.inputs, self.ends = (x, None, None, w, bias), (NULL, np.int32(n), np.float32(0.0))
        elif job.kind == "data":
            right = grad.conv2d_input(exact[0].shape, exact[1], exact[2], padding=pad)
            self.inputs, self.ends = (dy, None, None, w, None), (NULL, np.int32(n), np.float32(0.0))
        else:
            right = grad.conv2d_weight(exact[0], exact[1].shape, exact[2], padding=pad)
            self.inputs, self.ends = (x, dy, None, None), (np.int32(n),)
        self.right = right.permute(0, 2, 3, 1)
        self.biases = dy.double().sum((0, 1, 2)) if job.kind == "filter" else None
        self.dtype = torch.float32 if job.kind == "filter" else dtype

    def result(self, slices: int) -> Any:
        """Nothing that is right yet."""
        import torch

        shape: Sequence[int] = self.right.shape
        if self.biases is not None:
            shape = (slices, self.right.numel() + self.biases.numel())
        return torch.full(tuple(shape), float("nan"), device="cuda", dtype=self.dtype)

    def arguments(self, result: Any) -> tuple[Any, ...]:
        pointers = [NULL if each is None else np.uint64(each.data_ptr()) for each in self.inputs]
        middle = () if self.biases is None else (np.int64(result.shape[1]),)
        return (*pointers, np.uint64(result.data_ptr()), *middle, *self.ends)

    def error(self, result: Any) -> float:
        got, count = result.double(), self.right.numel()
        if self.biases is None:
            return float((got - self.right).norm() / self.right.norm())
        total = got.sum(0)
        biases = float((total[count:] - self.biases).norm() / self.biases.norm())
        weights = total[:count].view_as(self.right)
        return max(biases, float((weights - self.right).norm() / self.right.norm()))


def timed(job: Job, way: AnyWay, code: bytes, problem: Problem) -> dict[str, Any]:
    """Microseconds of a launch, its error, and whether two runs give the same bits."""
    import cupy as cp
    from cupy_backends.cuda.api import driver

    module = cp.cuda.function.Module()
    module.load(code)
    function = module.get_function(job.file)
    # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, _NUM_REGS, _LOCAL_SIZE_BYTES.
    driver.funcSetAttribute(function.ptr, 8, way.shared)
    registers, local = (driver.funcGetAttribute(which, function.ptr) for which in (4, 3))
    grid = (*way.grid(job.n, H200), 1)[:3]
    result = problem.result(grid[0])
    arguments = problem.arguments(result)
    cp.cuda.runtime.deviceSynchronize()
    stream = cp.cuda.Stream(non_blocking=True)
    with stream:
        function(grid, (way.threads, 1, 1), arguments, shared_mem=way.shared)
        stream.synchronize()
        error, first = problem.error(result), result.clone()
        cp.cuda.runtime.deviceSynchronize()
        stream.begin_capture()
        for _ in range(LAUNCHES):
            function(grid, (way.threads, 1, 1), arguments, shared_mem=way.shared)
        graph = stream.end_capture()
        graph.launch(stream)
        times = []
        for _ in range(5):
            begin, end = cp.cuda.Event(), cp.cuda.Event()
            begin.record(stream)
            graph.launch(stream)
            end.record(stream)
            end.synchronize()
            times.append(1e3 * cp.cuda.get_elapsed_time(begin, end) / LAUNCHES)
    return {
        "us": round(median(times), 2),
        "error": error,
        "same": bool((first == result).all()),
        "registers": registers,
        "local": local,
        "numbers": way.numbers,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--most", type=int, default=22, help="ways by the model's order")
    parser.add_argument("--further", type=int, default=0, help="ways drawn from the next 400")
    parser.add_argument("--json", help="a file for a line of each way")
    options = parser.parse_args()
    begin = time.perf_counter()
    orders: dict[Job, list[AnyWay]] = {}
    found: dict[Job, list[tuple[float, int, dict[str, Any]]]] = defaultdict(list)
    with ProcessPoolExecutor(max(1, (os.cpu_count() or 2) - 1)) as pool:
        work = []
        for job in jobs():
            every = [*job.ways(400)]
            drawn = random.Random(str(job)).sample(every, min(options.further, len(every)))
            orders[job] = [*dict.fromkeys([*every[: options.most], *drawn])]
            work += [pool.submit(compiled, job, way) for way in orders[job]]
        problems: dict[Job, Problem] = {}
        for done in as_completed(work):
            job, way, code = done.result()
            if job not in problems:
                problems[job] = Problem(job)
            row = timed(job, way, code, problems[job])
            found[job].append((row["us"], orders[job].index(way), row))
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            for job, rows in found.items():
                for *_, row in rows:
                    print(json.dumps(vars(job) | row), file=file)
    for job, rows in found.items():
        best, place, row = min(rows, key=lambda each: each[:2])
        first = min(us for us, at, _ in rows if at < CANDIDATES)
        number = "warp" if job.warpgroups else "bf16" if job.bf16 else "tf32"
        print(
            f"{job.name:16} {job.n:5} {job.kind:8} {number} {best:7.2f} us, of the first "
            f"{CANDIDATES} {first:7.2f} us, place {place + 1:3} of {len(rows)}, error "
            f"{max(each['error'] for *_, each in rows):.1e}, registers {row['registers']}"
            + ("" if all(each["same"] for *_, each in rows) else ", TWO RUNS DIFFER")
        )
    print(f"{sum(map(len, found.values()))} ways in {time.perf_counter() - begin:.0f} s")


if __name__ == "__main__":
    main()

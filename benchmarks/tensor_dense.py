"""Products of dense layers on tensor cores: cuBLAS's fastest algorithm beside our kernel's ways.

    python3 benchmarks/tensor_dense.py --most 100 --json ways.jsonl

Every way is compiled for compute capability 9.0, on all cores; its results are compared with sums
in float64, twice bit for bit. Both are timed in graphs of 50 launches over the same operands (the
median of five). A line for each product has the microseconds of both, their ratio, the fastest of
the ways that a search would time, and the place of the fastest in the model's order.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np
from dnnstack.backends.cuda.fused.dense_candidates import CANDIDATES
from dnnstack.backends.cuda.fused.dense_tilings import DenseGeometry, DenseTiling, dense_tilings
from dnnstack.backends.cuda.fused.tensor_dense import FILE, NAME
from dnnstack.backends.cuda.libraries.cublas import WORKSPACE_BYTES, Product
from dnnstack.backends.cuda.libraries.cublas_lt import CublasLt, LtProduct
from dnnstack.backends.cuda.libraries.kernels import f32, i32, source_of
from dnnstack.backends.cuda.libraries.layout import BFLOAT, FLOAT, padded
from dnnstack.backends.cuda.libraries.runtime import H200, captured

LAUNCHES, ROUNDS = 50, 5
# Inputs, units, batches, products; the first layer of a network needs no gradient of its inputs.
LAYERS = {
    "LeNet 800-500": (800, 500, (64, 256, 1024), ("forward", "data", "filter")),
    "LeNet 500-10": (500, 10, (64, 256, 1024), ("forward",)),
    "MLP 784-128": (784, 128, (256,), ("forward", "filter")),
    "MLP 784-500": (784, 500, (256,), ("forward", "filter")),
    "MLP 128-10": (128, 10, (256,), ("forward",)),
}
# Units are stored in multiples, in bfloat16 of more than that.
FEWEST_UNITS, MULTIPLE = 32, {FLOAT: 4, BFLOAT: 64}
NULL = np.uint64(0)


@dataclass(frozen=True)
class Job:
    name: str
    n: int
    kind: str
    dtype: str

    @property
    def geometry(self) -> DenseGeometry:
        inputs, units, *_ = LAYERS[self.name]
        inputs = padded(inputs, MULTIPLE[self.dtype] if inputs < 784 else 8)
        stored = padded(units, MULTIPLE[self.dtype]) if units >= FEWEST_UNITS else units
        n, dtype = self.n, self.dtype
        if self.kind == "forward":
            ends = (inputs, inputs, stored)
            return DenseGeometry(n, stored, inputs, ends, True, True, units, dtype, dtype)
        if self.kind == "data":
            ends = (stored, inputs, inputs)
            return DenseGeometry(n, inputs, stored, ends, True, False, inputs, dtype, dtype)
        ends = (stored, inputs, inputs)
        return DenseGeometry(stored, inputs, n, ends, False, False, inputs, dtype, FLOAT)


def jobs() -> Iterator[Job]:
    for name, (_, _, batches, kinds) in LAYERS.items():
        for n in batches:
            for kind in kinds:
                yield from (Job(name, n, kind, dtype) for dtype in (FLOAT, BFLOAT))


def compiled(job: Job, way: DenseTiling) -> tuple[Job, DenseTiling, bytes]:
    """In a process of its own, without a device."""
    from cupy.cuda import nvrtc

    values = job.geometry.numbers() | way.numbers
    values |= {"BFLOAT": int(job.dtype == BFLOAT), "ACTIVATION": -1}
    program = nvrtc.createProgram(source_of(FILE), FILE, (), ())
    options = (
        "-std=c++17",
        "-arch=sm_90",
        *(f"-D{name}={value}" for name, value in values.items()),
    )
    nvrtc.compileProgram(program, options)
    return job, way, nvrtc.getCUBIN(program)


def microseconds(launch: Callable[[], None], stream: Any) -> float:
    """Of one launch in a graph of many; ``stream`` is the present one."""
    import cupy as cp

    launch()
    stream.synchronize()
    graph = captured([launch] * LAUNCHES, stream)
    graph.launch(stream)
    times = []
    for _ in range(ROUNDS):
        begin, end = cp.cuda.Event(), cp.cuda.Event()
        begin.record(stream)
        graph.launch(stream)
        end.record(stream)
        end.synchronize()
        times.append(1e3 * cp.cuda.get_elapsed_time(begin, end) / LAUNCHES)
    return median(times)


class Problem:
    """A job's operands on the device, and its right result."""

    def __init__(self, job: Job, stream: Any) -> None:
        import cupy as cp

        g = self.geometry = job.geometry
        self._stream = stream
        draw = np.random.default_rng(1)
        a = (g.rows, g.depth) if g.deep_a else (g.depth, g.rows)
        b = (g.columns, g.depth) if g.deep_b else (g.depth, g.columns)
        exact, self.ends = [], []
        for shape in (a, b):
            values = draw.standard_normal(shape).astype(np.float32)
            if job.dtype == BFLOAT:
                values.view(np.uint32)[...] &= 0xFFFF0000
                self.ends.append(cp.asarray((values.view(np.uint32) >> 16).astype(np.uint16)))
            else:
                self.ends.append(cp.asarray(values))
            exact.append(cp.asarray(values, "float64"))
        left, right = exact
        self.right = (left if g.deep_a else left.T) @ (right.T if g.deep_b else right)
        self.right[:, g.counted :] = 0.0
        item = "uint16" if g.result == BFLOAT else "float32"
        self.result = cp.zeros((g.rows, g.pitches[2]), item)

    def error(self) -> float:
        import cupy as cp

        got = self.result
        if self.geometry.result == BFLOAT:
            got = (got.astype("uint32") << 16).view("float32")
        gap = got.astype("float64")[:, : self.geometry.columns] - self.right
        return float(cp.linalg.norm(gap) / cp.linalg.norm(self.right))

    def library(self, handle: CublasLt, workspace: Any) -> tuple[float, int]:
        """cuBLAS's fastest algorithm: its time and number."""
        g = self.geometry
        a, b, c = (each.data.ptr for each in (*self.ends, self.result))
        lda, ldb, ldc = g.pitches
        sizes = (g.rows, g.columns, g.depth)
        product = Product(*sizes, a, lda, b, ldb, c, ldc, not g.deep_a, g.deep_b)
        kinds = {"tf32": g.dtype == FLOAT, "operands": g.dtype, "result": g.result}
        found = LtProduct(handle, product, self._stream, workspace, **kinds)
        times = [(self._algorithm(found, index), index) for index in range(found.count())]
        return min(times, default=(float("nan"), -1))

    def _algorithm(self, found: LtProduct, index: int) -> float:
        try:
            return microseconds(found.launch(index), self._stream)
        except Exception as error:  # an algorithm that cannot be launched is none
            print(f"{self.geometry}: algorithm {index}: {error}")
            return float("inf")

    def ours(self, way: DenseTiling, code: bytes) -> dict[str, Any]:
        """Microseconds of a way, its error, whether two runs give the same bits."""
        import cupy as cp
        from cupy_backends.cuda.api import driver

        module = cp.cuda.function.Module()
        module.load(code)
        function = module.get_function(NAME)
        # CU_FUNC_ATTRIBUTE_NUM_REGS, _LOCAL_SIZE_BYTES.
        registers, local = (driver.funcGetAttribute(which, function.ptr) for which in (4, 3))
        a, b, c = (np.uint64(each.data.ptr) for each in (*self.ends, self.result))
        arguments = (a, b, NULL, c, i32(self.geometry.depth), f32(0.0))
        grid, block = (*way.grid(), 1), (way.threads, 1, 1)

        def launch() -> None:
            function(grid, block, arguments, shared_mem=way.shared)

        self.result.view("uint8").fill(0xFF)
        launch()
        error, first = self.error(), self.result.copy()
        us = microseconds(launch, self._stream)
        return {
            "us": round(us, 3),
            "error": error,
            "same": bool((first == self.result).all()),
            "registers": registers,
            "local": local,
            "numbers": way.numbers,
        }


def shown(job: Job, library: tuple[float, int], rows: Sequence[tuple[int, dict[str, Any]]]) -> str:
    """A line for a product."""
    place, best = min(rows, key=lambda row: row[1]["us"])
    first = min(row["us"] for at, row in rows if at < CANDIDATES)
    g, (us, algorithm) = job.geometry, library
    number = "bf16" if job.dtype == BFLOAT else "tf32"
    way = "-".join(map(str, best["numbers"].values()))
    same = all(row["same"] for _, row in rows)
    return (
        f"{job.name:14} {job.n:5} {job.kind:8} {number} {g.rows:4}x{g.columns:4}x{g.depth:4} "
        f"cuBLAS {us:6.2f} us (algorithm {algorithm:2}), ours {best['us']:6.2f} us ({way}), "
        f"ratio {best['us'] / us:5.2f}, of the first {CANDIDATES} {first:6.2f} us, place "
        f"{place + 1:3} of {len(rows):3}, registers {best['registers']:3}, error "
        f"{max(row['error'] for _, row in rows):.1e}" + ("" if same else ", TWO RUNS DIFFER")
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--most", type=int, default=CANDIDATES, help="ways by the model's order")
    parser.add_argument("--json", help="a file for a line of each way")
    options = parser.parse_args()
    begin = time.perf_counter()
    orders = {job: dense_tilings(job.geometry, options.most, H200) for job in jobs()}
    found: dict[Job, list[tuple[int, dict[str, Any]]]] = defaultdict(list)
    libraries: dict[Job, tuple[float, int]] = {}
    with ProcessPoolExecutor(max(1, (os.cpu_count() or 2) - 1)) as pool:
        work = [pool.submit(compiled, job, way) for job, ways in orders.items() for way in ways]
        import cupy as cp

        stream = cp.cuda.Stream(non_blocking=True)
        with stream:
            handle, workspace = CublasLt(), cp.empty(WORKSPACE_BYTES, "uint8")
            problems = {job: Problem(job, stream) for job in orders}
            # Timed once the compilers are done, which take the processor from the launches.
            codes = [done.result() for done in as_completed(work)]
            for job, problem in problems.items():
                libraries[job] = problem.library(handle, workspace)
            for job, way, code in codes:
                found[job].append((orders[job].index(way), problems[job].ours(way, code)))
    for job in orders:
        print(shown(job, libraries[job], found[job]))
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            for job in orders:
                for place, row in found[job]:
                    more = {"place": place, "cublas_us": libraries[job][0]}
                    print(json.dumps(vars(job) | row | more), file=file)
    print(f"{sum(map(len, found.values()))} ways in {time.perf_counter() - begin:.0f} s")


if __name__ == "__main__":
    main()

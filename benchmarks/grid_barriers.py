"""What a dependence between all blocks of a GPU costs: a launch, an early launch, a barrier.

    python3 benchmarks/grid_barriers.py

A step of a small network is a chain of phases, each of which reads what all blocks of the one
before have written. In a captured graph every phase is a kernel. The alternative is one kernel for
the whole step, whose blocks stay on their processors and wait for each other. Both are timed here
with the same phases: every thread reads numbers that other blocks have just written, and writes as
many. Microseconds of a phase, medians; ``bytes`` is what a phase reads.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any

import numpy as np
from dnnstack.backends.cuda.libraries.kernels import i32, source_of
from dnnstack.backends.cuda.libraries.overlap import overlapping
from dnnstack.backends.cuda.libraries.runtime import captured, cupy, cupy_on, device
from dnnstack.backends.cuda.libraries.timing import fastest

PHASES, ROUNDS, THREADS = 64, 9, 256
SOURCE = """
// Every thread reads what the next block has written, and writes its own.
INLINE void phase(const float4* from, float4* to, int each, int turn) {
    const int n = gridDim.x * blockDim.x * each, at = blockIdx.x * blockDim.x * each + threadIdx.x;
#pragma unroll 4
    for (int k = 0; k < each; ++k) {
        const int i = at + k * blockDim.x;
        float4 v = __ldcg(from + (i + blockDim.x * each) % n);
        v.x = v.x * 0.5f + turn;
        __stcg(to + i, v);
    }
}

KERNEL launched(const float4* from, float4* to, int each, int turn) {
    enter();
    phase(from, to, each, turn);
}

// All phases; the blocks count themselves at every barrier, and the last one lets the others go on.
KERNEL resident(float4* a, float4* b, int each, int phases, unsigned* counter) {
    const unsigned base = *(volatile unsigned*)(counter + 1);
    for (int turn = 0; turn < phases; ++turn) {
        phase(turn % 2 ? b : a, turn % 2 ? a : b, each, turn);
        __syncthreads();
        if (threadIdx.x == 0) {
            const unsigned goal = base + turn + 1;
            unsigned before;
            asm volatile("atom.add.acq_rel.gpu.u32 %0, [%1], 1;"
                         : "=r"(before) : "l"(counter) : "memory");
            if (before % gridDim.x == gridDim.x - 1) {
                asm volatile("st.release.gpu.u32 [%0], %1;"
                             :: "l"(counter + 1), "r"(goal) : "memory");
            } else {
                unsigned now;
                do {
                    asm volatile("ld.acquire.gpu.u32 %0, [%1];"
                                 : "=r"(now) : "l"(counter + 1) : "memory");
                } while ((int)(now - goal) < 0);
            }
        }
        __syncthreads();
    }
}
"""


def microseconds(graph: Any, stream: Any) -> float:
    """Of a phase of a graph."""
    graph.launch(stream)
    one = partial(fastest, lambda: graph.launch(stream), stream, 1)
    return median(1e6 * one() / PHASES for _ in range(ROUNDS))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--each", type=int, nargs="*", default=[1, 2, 4, 8], help="of 16 bytes")
    options = parser.parse_args()
    cp, gpu = cupy(), device()
    blocks = cp.cuda.runtime.getDeviceProperties(0)["multiProcessorCount"]
    module = cp.RawModule(
        code=source_of("update.cu") + SOURCE, options=("-std=c++17", "-DBFLOAT=0")
    )
    launched, resident = (module.get_function(name) for name in ("launched", "resident"))
    stream = gpu.stream
    print(f"{blocks} blocks of {THREADS} threads, {PHASES} phases; us a phase")
    print(f"  {'bytes':>10}{'launches':>10}{'early':>10}{'barriers':>10}  results")
    for each in options.each:
        size = blocks * THREADS * each * 4
        start = np.random.default_rng(1).standard_normal(size).astype(np.float32)
        pair = [cp.asarray(start), cp.zeros(size, "float32")]
        counter = cp.zeros(2, "uint32")

        def plain(turn: int, pair: list[Any] = pair, each: int = each) -> Callable[[], None]:
            arguments = (pair[turn % 2], pair[1 - turn % 2], i32(each), i32(turn))
            return lambda: launched((blocks,), (THREADS,), arguments)

        def early(turn: int, pair: list[Any] = pair, each: int = each) -> Callable[[], None]:
            arguments = (pair[turn % 2], pair[1 - turn % 2], i32(each), i32(turn))
            handle = int(launched.kernel.ptr)
            return overlapping(handle, stream, (blocks,), (THREADS,), arguments)

        def whole(pair: list[Any] = pair, each: int = each, counter: Any = counter) -> None:
            resident((blocks,), (THREADS,), (*pair, i32(each), i32(PHASES), counter))

        ways = {
            "launches": [plain(turn) for turn in range(PHASES)],
            "early": [early(turn) for turn in range(PHASES)],
            "barriers": [whole],
        }
        found, times = {}, {}
        with cupy_on(stream):
            for name, launches in ways.items():
                pair[0].set(start)
                for launch in launches:
                    launch()
                found[name] = pair[0].get()
                times[name] = microseconds(captured(launches, stream), stream)
        same = all((values == found["launches"]).all() for values in found.values())
        line = "".join(f"{times[name]:10.2f}" for name in ways)
        print(f"  {size * 4:10}{line}  {'equal' if same else 'THEY DIFFER'}", flush=True)


if __name__ == "__main__":
    main()

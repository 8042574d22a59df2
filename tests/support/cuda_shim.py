"""Kernels of ours run by the host's C++ compiler, one thread after the other. Needs no GPU.

For kernels whose threads meet in one ``block_sum`` at most: in a first round every thread brings
its number, and ends there; in a second it goes on with the sum.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path

COMPILER = shutil.which("g++") or shutil.which("clang++")
BEFORE = """
#include <cmath>
#include <cstring>
#define __device__
#define KERNEL extern "C" void
#define __forceinline__ inline
#define __shared__
typedef long long i64;
typedef unsigned short bfloat;
struct int2 { int x, y; };
// Ranks that are threads launch side by side.
static thread_local struct { int x; } blockIdx, threadIdx, blockDim, gridDim;
thread_local double totals[1024];
static thread_local bool bringing;
static thread_local double brought;
#define INF HUGE_VALF
#define LINEAR(i, n) \\
    for (i64 i = blockIdx.x * (i64)blockDim.x + threadIdx.x; i < (n); \\
         i += (i64)gridDim.x * blockDim.x)
static void enter() {}
static void wait() {}
static void tell() {}
static void put(bfloat* p, float v) {
    unsigned bits;
    memcpy(&bits, &v, 4);
    *p = bits + 0x7fff + (bits >> 16 & 1) >> 16;
}
static void __syncthreads() {}
static double block_sum(double mine, double*) {
    if (!bringing) return brought;
    brought += mine;
    throw 0;
}
"""
AFTER = """
template <typename F>
static void launch(int blocks, int threads, F kernel) {
    gridDim.x = blocks, blockDim.x = threads;
    for (blockIdx.x = 0; blockIdx.x < blocks; ++blockIdx.x) {
        brought = 0.0;
        for (int round = 0; round < ROUNDS; ++round) {
            bringing = round < ROUNDS - 1;
            for (threadIdx.x = 0; threadIdx.x < threads; ++threadIdx.x)
                try { kernel(); } catch (int) {}
        }
    }
}
"""


def compiled(source: str, launchers: str, folder: Path, rounds: int = 1) -> ctypes.CDLL:
    """The library of a file's source, from formulas.cuh on, and of functions that launch."""
    code = folder / "kernels.cpp"
    after = AFTER.replace("ROUNDS", str(rounds))
    code.write_text(f'{BEFORE}{source}{after}\nextern "C" {{\n{launchers}\n}}\n', "utf-8")
    library = folder / "kernels.so"
    # No operation is united with another: the roundings are those that are written.
    options = ["-std=c++17", "-ffp-contract=off", "-shared", "-fPIC"]
    subprocess.run([str(COMPILER), *options, str(code), "-o", str(library)], check=True)
    return ctypes.CDLL(str(library))

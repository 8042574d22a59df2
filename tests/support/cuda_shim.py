"""Kernels of ours run by the host's C++ compiler, one thread after the other. Needs no GPU.

For kernels whose threads meet in one ``block_sum`` at most: in a first round every thread brings
its number, and ends there; in a second it goes on with the sum.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path

from .stored import beside

COMPILER = shutil.which("g++") or shutil.which("clang++")
BEFORE = beside(__file__, "cuda_shim_before.hpp")
AFTER = beside(__file__, "cuda_shim_after.hpp")


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

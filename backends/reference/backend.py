"""The reference backend: every operation in NumPy, in float32 or float64."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any, cast

import numpy as np

from ...common.errors import BackendUnavailableError, UsageError
from ...graph.graph import Graph
from ...graph.ops import Conv2d
from ...graph.rewrites import REWRITES
from ..base import Array, Engine, Executable, Limits, Options, Precision
from ..compiling import CompilePlan, Sections, compiled
from .algorithms import ALGORITHMS
from .executable import ReferenceExecutable

# Seconds for which a way to compute a convolution is timed.
TRIAL = 0.1


class ReferenceBackend:
    """NumPy; what it computes is what every operation means.

    It works on one thread, whatever bound it is given: a convolution is one small matrix product a
    picture, for which waking OpenBLAS's threads costs more than they save, and so the bits do not
    depend on the machine's cores. This sets OpenBLAS's thread count for the whole process, where
    its threads, spinning between products, would slow down other libraries too.
    """

    name = "numpy"
    # Of its calls only large products of matrices use several.
    waiting_threads = 1
    pieces = 1
    rewrites = REWRITES

    def __init__(self, threads: int) -> None:
        if threads < 1:
            raise UsageError(f"the number of threads must be at least 1, got {threads}")
        self._bound = set_threads(1)

    def compile(self, sections: Mapping[str, Graph], options: Options | None = None) -> Executable:
        """Apply the rewrites and look up every kernel; nothing is decided by timing.

        Raises BackendUnavailableError for a precision other than auto, fp32 and fp64.
        """

        def planned(
            graphs: Sections, trained: Sections, precision: Precision
        ) -> CompilePlan[ReferenceExecutable]:
            floating = np.dtype(np.float64 if precision == "fp64" else np.float32)
            return CompilePlan(build=partial(ReferenceExecutable, floating=floating))

        return compiled(self, sections, options or Options(), planned)

    def precision(self, wanted: Precision) -> Precision:
        if wanted not in ("auto", "fp32", "fp64"):
            raise BackendUnavailableError(
                f"precision '{wanted}': the numpy backend computes in fp32 or fp64; "
                "set run.precision to auto or fp32"
            )
        return "fp32" if wanted == "auto" else wanted

    def limits(self, precision: Precision = "auto") -> Limits:
        """GFLOP/s of a float32 product of 1024 x 1024, GB/s read and written by a 64 MB copy."""
        a = np.ones((1024, 1024), np.float32)
        product = np.empty_like(a)
        source = np.ones(1 << 24, np.float32)
        copy = np.empty_like(source)
        return Limits(
            2 * 1024**3 / fastest(lambda: np.matmul(a, a, out=product)) / 1e9,
            2 * source.nbytes / fastest(lambda: np.copyto(copy, source)) / 1e9,
        )

    def engines(self, op: Conv2d, x: Array, w: Array) -> Iterator[Engine]:
        """Those of algorithms.py that take the convolution."""
        for each in ALGORITHMS:
            if not each.refusal(op.window):
                run = partial(each.compute, op, x, w)
                costs = each.flops(op), 4 * each.elements(op)
                yield Engine(self.name, each.name, (), *costs, run, partial(fastest, run, TRIAL))

    def versions(self) -> Mapping[str, str]:
        """NumPy, its BLAS and that one's threads, the instruction sets of NumPy."""
        config = cast("dict[str, Any]", np.show_config(mode="dicts"))
        library = config.get("Build Dependencies", {}).get("blas", {})
        found = config.get("SIMD Extensions", {}).get("found", [])
        return {
            "numpy": np.__version__,
            "blas": " ".join(filter(None, (*map(library.get, ("name", "version")), kernels()))),
            "simd": " ".join(found) or "baseline",
            "threads": "1" if self._bound else "as the BLAS decides",
        }


def fastest(call: Callable[[], object], seconds: float = 0.4) -> float:
    """The shortest time of one call, tried for this many seconds."""
    call()
    times: list[float] = []
    end = time.perf_counter() + seconds
    while not times or time.perf_counter() < end:
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)


@cache
def _library() -> ctypes.CDLL | None:
    """The OpenBLAS inside the installed NumPy; loading it again gives the one already in use."""
    package = Path(np.__file__).parent
    for folder in (package.parent / "numpy.libs", package / ".libs", package / ".dylibs"):
        for path in sorted(folder.glob("*openblas*")):
            try:
                return ctypes.CDLL(str(path))
            except OSError:
                continue
    return None


def _function(name: str) -> Any:
    """A function of that library, or None; the wheels' has a prefix, and a suffix if its integers
    have 64 bits."""
    names = [f"{prefix}openblas_{name}{end}" for prefix in ("scipy_", "") for end in ("64_", "")]
    return next((getattr(_library(), each) for each in names if hasattr(_library(), each)), None)


def kernels() -> str:
    """The processor whose kernels OpenBLAS runs here, which decide bits; "" for another BLAS."""
    function = _function("get_corename")
    if function is None:
        return ""
    function.restype = ctypes.c_char_p
    return str(function().decode())


def set_threads(count: int) -> bool:
    """Let NumPy's matrix products use this many threads, in this whole process.

    Returns False if NumPy came with another BLAS, whose environment variable decides.
    """
    function = _function("set_num_threads")
    if function is not None:
        function(ctypes.c_int(count))
    return function is not None

"""The CUDA backend: cuDNN, cuBLAS and a few kernels of ours, a step captured as one CUDA graph."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import inf
from typing import Any

from ....common.errors import BackendUnavailableError
from ...graph import Graph
from ...rewrites import REWRITES, rewritten
from ..base import Limits, Options
from ..tuning import Tuning, fingerprint, settle, training_sections
from .bind import Libraries, synchronize
from .cublas import Cublas
from .cudnn_library import Cudnn
from .executable import CudaExecutable
from .runtime import cupy, device, frontend, module_version
from .tuner import search

NAME = "cuda"


class CudaBackend:
    """The first GPU of this machine.

    Raises BackendUnavailableError where there is none, its driver is too old, or CuPy, cuDNN or
    cuDNN's frontend is missing.
    """

    name = NAME
    rewrites = tuple(REWRITES)

    def __init__(self, capture: bool = True) -> None:
        self.device = device()
        self._capture = capture
        with self.device.stream:
            self._cudnn = Cudnn()
        self._cublas: dict[bool, Cublas] = {}

    def _blas(self, tf32: bool) -> Cublas:
        if tf32 not in self._cublas:
            with self.device.stream:
                self._cublas[tf32] = Cublas(tf32)
        return self._cublas[tf32]

    def compile(
        self, sections: Mapping[str, Graph], options: Options | None = None
    ) -> CudaExecutable:
        options = options or Options()
        tf32 = self._tf32(options)
        libraries = Libraries(self._blas(tf32), self._cudnn, not tf32, options.deterministic)
        names = self.rewrites if options.fusion else ()
        graphs = {name: rewritten(graph, names) for name, graph in sections.items()}
        tuning, notices = self._tuned(graphs, options, libraries)
        return CudaExecutable(graphs, tuning, libraries, notices, self._capture)

    def _tf32(self, options: Options) -> bool:
        if options.precision == "auto":
            return self.device.has_tf32
        if options.precision == "tf32" and not self.device.has_tf32:
            raise BackendUnavailableError(
                f"precision 'tf32': {self.device.name} has no TF32; set run.precision to fp32"
            )
        if options.precision not in ("fp32", "tf32"):
            raise BackendUnavailableError(
                f"precision '{options.precision}': CUDA computes in fp32 or tf32 here; "
                "set run.precision to auto, fp32 or tf32"
            )
        return options.precision == "tf32"

    def _tuned(
        self, graphs: Mapping[str, Graph], options: Options, libraries: Libraries
    ) -> tuple[Tuning, tuple[str, ...]]:
        trained = training_sections(graphs)
        mark = fingerprint(trained, options.deterministic) if trained else ""
        present = Tuning(NAME, self._environment(libraries), mark, {"layout": "nhwc"})

        def build(choices: Mapping[str, str]) -> CudaExecutable:
            trial = replace(present, choices=dict(choices))
            return CudaExecutable(trained, trial, libraries, (), self._capture)

        def find() -> Mapping[str, str]:
            return search(build, options.deterministic, options.interrupt)

        wanted = find if options.tune else None
        return settle(present, options.tuning, bool(trained), wanted, options.tune_seconds == inf)

    def _environment(self, libraries: Libraries) -> dict[str, str]:
        return {**self.versions(), "precision": "fp32" if libraries.exact else "tf32"}

    def limits(self) -> Limits:
        cp, n = cupy(), 8192
        with self.device.stream:
            a, b, c = (cp.random.standard_normal((n, n), dtype="float32") for _ in range(3))
            blas = self._blas(self.device.has_tf32)
            seconds = _fastest(
                lambda: blas.sgemm(False, False, n, n, n, *(int(x.data.ptr) for x in (a, b, c)))
            )
            source = cp.empty(1 << 28, "float32")
            target = cp.empty_like(source)
            moved = _fastest(lambda: cp.copyto(target, source))
        return Limits(2 * n**3 / seconds / 1e9, 2 * source.nbytes / moved / 1e9)

    def versions(self) -> Mapping[str, str]:
        cp = cupy()
        return {
            "GPU": self.device.name,
            "CUDA": str(self.device.cuda_version),
            "driver": str(cp.cuda.runtime.driverGetVersion()),
            "cuDNN": self._cudnn.version,
            "cuBLAS": self._blas(self.device.has_tf32).version,
            "CuPy": module_version(cp),
            "cudnn-frontend": module_version(frontend()),
        }


def _fastest(work: Any, repeats: int = 10) -> float:
    cp, stream = cupy(), device().stream
    best = float("inf")
    for _ in range(repeats):
        start, stop = cp.cuda.Event(), cp.cuda.Event()
        start.record(stream)
        work()
        stop.record(stream)
        stop.synchronize()
        best = min(best, cp.cuda.get_elapsed_time(start, stop) / 1e3)
    synchronize()
    return best

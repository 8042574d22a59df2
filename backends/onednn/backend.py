"""The oneDNN backend: compiling, the tuning it needs, and what the machine can do."""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import cache

from ...common.errors import BackendUnavailableError
from ...graph.graph import Graph
from ...graph.rewrites import OWN_KERNELS, REWRITES, rewritten
from ..base import Limits, Options, Precision
from ..tuning import UNEQUAL, Tuning, code_digest, fingerprint, forget, settle, training_sections
from .constants import DST, SRC, WEIGHTS
from .executable import OneDnnExecutable
from .library import library
from .memory import Descriptor, Memory
from .primitive import Primitive, PrimitiveDesc, reorder_desc
from .tuner import convolutions, default_choices, search

NAME = "onednn"
# What a choice can be.
LAYOUTS = ("nhwc", "nchw", "nChw8c", "nChw16c")


class OneDnnBackend:
    """oneDNN on this machine's processor with so many threads.

    Raises BackendUnavailableError where oneDNN or libgomp is missing.
    """

    name = NAME
    rewrites = tuple(name for name in REWRITES if name not in OWN_KERNELS)

    def __init__(self, threads: int) -> None:
        library()
        self.threads = threads

    @property
    def waiting_threads(self) -> int:
        return self.threads

    def compile(
        self, sections: Mapping[str, Graph], options: Options | None = None
    ) -> OneDnnExecutable:
        options = options or Options()
        precision = self.precision(options.precision)
        names = self.rewrites if options.fusion else ()
        graphs = {name: rewritten(graph, names) for name, graph in sections.items()}
        tuning, notices = self._tuned(graphs, options, precision)
        narrow, share = precision == "bf16", options.share_memory
        return OneDnnExecutable(graphs, tuning, self.threads, notices, narrow, share)

    def _tuned(
        self, graphs: Mapping[str, Graph], options: Options, precision: Precision
    ) -> tuple[Tuning, tuple[str, ...]]:
        trained = training_sections(graphs)
        mark = fingerprint(trained) if trained else ""
        choices = default_choices(graphs.values())
        environment = {**self.versions(), "dnnstack": _digest(), "precision": precision}
        present = Tuning(NAME, environment, mark, choices)

        def seconds(graph: Graph, choices: Mapping[str, str], repeats: int) -> float:
            options.interrupt()
            return self._seconds(graph, choices, repeats, precision)

        def find() -> Mapping[str, str]:
            return search(next(iter(trained.values())), choices, seconds)

        worth = options.tune and any(convolutions(g) for g in trained.values())
        wanted = find if worth else None
        tuning, notices = settle(present, options.tuning, bool(trained), wanted)
        unknown = {name: each for name, each in tuning.choices.items() if each not in LAYOUTS}
        if unknown:
            # A damaged table, in the cache or in a checkpoint.
            forget(present)
            tuning, _ = settle(present, None, bool(trained), wanted)
            name, layout = next(iter(unknown.items()))
            reason = f"a choice of the tuning cannot be had now: {layout!a} for {name!a}"
            notices = (*notices, f"{UNEQUAL}: {reason}")
        return tuning, notices

    def _seconds(
        self, graph: Graph, choices: Mapping[str, str], repeats: int, precision: Precision
    ) -> float:
        """Seconds of one step of a section compiled with these choices; data calls left out."""
        tuning = Tuning(NAME, choices=choices)
        narrow = precision == "bf16"
        executable = OneDnnExecutable({graph.name: graph}, tuning, self.threads, narrow=narrow)
        seconds = executable.step_seconds(graph.name, repeats)
        executable.close()
        return seconds

    def precision(self, wanted: Precision) -> Precision:
        if wanted in ("auto", "fp32"):
            return "fp32"
        if wanted != "bf16":
            raise BackendUnavailableError(
                f"precision '{wanted}': oneDNN computes in fp32 or bf16; "
                "set run.precision to auto, fp32 or bf16"
            )
        if not library().has_bfloat16():
            raise BackendUnavailableError(
                "precision 'bf16': this processor has neither AVX512_BF16 nor AMX (oneDNN uses "
                f"{library().isa()} here); set run.precision to auto or fp32"
            )
        return "bf16"

    def limits(self) -> Limits:
        library().set_threads(self.threads)
        n = 2048
        square, blocked = Descriptor.of((n, n)), Descriptor.of((n, n), "any")
        desc = PrimitiveDesc("matmul", square, blocked, None, square, None)
        memories = {i: Memory(desc.descriptor(i)) for i in (SRC, WEIGHTS, DST)}
        memories[SRC].array()[:], memories[WEIGHTS].array()[:] = 1.0, 0.5
        gemm = Primitive(desc, memories)
        large = Descriptor.of((1 << 24,))
        source, target = Memory(large), Memory(large)
        move = Primitive(reorder_desc(large, large), {SRC: source, DST: target})
        return Limits(2 * n**3 / _fastest(gemm) / 1e9, 2 * large.nbytes / _fastest(move) / 1e9)

    def versions(self) -> Mapping[str, str]:
        return {
            "oneDNN": library().version,
            "instruction set": library().isa(),
            "processor": _processor(),
            "threads": str(self.threads),
        }


@cache
def _digest() -> str:
    return code_digest(__package__)


def _fastest(primitive: Primitive, repeats: int = 15) -> float:
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        library().execute(*primitive.call)
        times.append(time.perf_counter() - begin)
    return min(times)


@cache
def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            return next(
                (line.partition(":")[2].strip() for line in lines if line.startswith("model name")),
                "unknown",
            )
    except OSError:
        return "unknown"

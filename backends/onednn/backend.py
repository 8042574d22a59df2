"""The oneDNN backend: compiling, the tuning it needs, and what the machine can do."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from functools import cache

from ...common.errors import BackendUnavailableError
from ...common.machine import caches, processor
from ...common.machine_load import Others, crowded
from ...common.text import listed
from ...graph.graph import Graph
from ...graph.ops import Conv2d
from ...graph.rewrites import LIBRARY_REWRITES
from ..base import Array, Engine, Limits, Options, Precision
from ..compiling import ChoiceError, Choices, CompilePlan, Sections, compiled
from ..registry import without_kernel
from ..tuning import Tuning, code_digest
from .bind import KERNELS
from .engines import engines
from .executable import OneDnnExecutable
from .library import library
from .memory import LAYOUTS, Descriptor, Memory
from .primitive import Primitive, PrimitiveDesc, reorder_desc
from .tuner import convolutions, default_choices, search

_LISTED = 6


class OneDnnBackend:
    """oneDNN on this machine's processor with this many threads.

    Raises BackendUnavailableError if oneDNN or libgomp is missing.
    """

    name = "onednn"
    pieces = 1
    rewrites = LIBRARY_REWRITES

    def __init__(self, threads: int) -> None:
        library()
        self.threads = threads
        self._crowded = False

    @property
    def waiting_threads(self) -> int:
        return self.threads

    def compile(
        self, sections: Mapping[str, Graph], options: Options | None = None
    ) -> OneDnnExecutable:
        options = options or Options()

        def planned(
            graphs: Sections, trained: Sections, precision: Precision
        ) -> CompilePlan[OneDnnExecutable]:
            activations = "bfloat16" if precision == "bf16" else "float32"
            defaults = default_choices(graphs.values())

            def build(graphs: Sections, tuning: Tuning, notices: Sequence[str]) -> OneDnnExecutable:
                _check_layouts(tuning)
                notices = (*notices, *_notices(graphs))
                how = (self.threads, notices, activations, options.share_memory)
                return OneDnnExecutable(graphs, tuning, *how)

            def seconds(graph: Graph, choices: Choices, repeats: int) -> float:
                """Of one step; data calls left out."""
                options.interrupt()
                tuning = Tuning(self.name, choices=choices)
                trial = OneDnnExecutable(
                    {graph.name: graph}, tuning, self.threads, activations=activations
                )
                found = trial.step_seconds(graph.name, repeats)
                trial.close()
                return found

            def find() -> tuple[Choices, bool]:
                others = Others()
                found = search(next(iter(trained.values())), defaults, seconds)
                return found, not others.crowd(self.threads)

            return CompilePlan(
                build=build,
                refusals=(ChoiceError,),
                choices=defaults,
                search=find if any(map(convolutions, trained.values())) else None,
                quiet=self._is_quiet,
                code=_digest(),
            )

        return compiled(self, sections, options, planned)

    def _is_quiet(self) -> bool:
        """Whether other programs leave the cores to this one now; once not, never again.

        To look takes a moment, and the trainings of one process are to have the same choices.
        """
        self._crowded = self._crowded or crowded(self.threads)
        return not self._crowded

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

    def limits(self, precision: Precision = "auto") -> Limits:
        library().set_threads(self.threads)
        n, dtype = 2048, "bfloat16" if precision == "bf16" else "float32"
        square, blocked = (Descriptor.of((n, n), layout, dtype) for layout in ("plain", "any"))
        desc = PrimitiveDesc("matmul", square, blocked, None, square, None)
        memories = {i: Memory(desc.descriptor(i)) for i in ("src", "weights", "dst")}
        for memory in memories.values():
            # 0.75 in either type: zeros and denormals run at another speed.
            memory.buffer[:] = 0x3F
        gemm = Primitive(desc, memories)
        large = Descriptor.of((1 << 24,))
        source, target = Memory(large), Memory(large)
        move = Primitive(reorder_desc(large, large), {"src": source, "dst": target})
        return Limits(2 * n**3 / _fastest(gemm) / 1e9, 2 * large.nbytes / _fastest(move) / 1e9)

    def engines(self, op: Conv2d, x: Array, w: Array) -> Iterator[Engine]:
        library().set_threads(self.threads)
        return engines(op, x, w)

    def versions(self) -> Mapping[str, str]:
        return {
            "oneDNN": library().version,
            "instruction set": library().isa(),
            **_processor(),
            "threads": str(self.threads),
        }


def _notices(graphs: Sections) -> list[str]:
    """What the user should know of operations that oneDNN has no kernel for."""
    lacking = without_kernel(graphs.values(), KERNELS)
    return lacking and [
        f"oneDNN has no kernel for {listed(lacking, _LISTED)}: NumPy computes it; its cost is "
        "shown by dnnstack explain --measure"
    ]


def _check_layouts(tuning: Tuning) -> None:
    """Raises ChoiceError if a table, in the cache or in a checkpoint, is damaged."""
    for name, layout in tuning.choices.items():
        if layout not in LAYOUTS:
            raise ChoiceError(f"{layout!a} for {name!a}")


@cache
def _processor() -> Mapping[str, str]:
    # By the sizes of the caches oneDNN cuts its loops, and so its sums.
    return {"processor": processor(), "caches": f"{caches()} KiB"}


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

"""The CUDA backend: cuDNN, cuBLAS and a few kernels of ours, a step captured as one CUDA graph."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from math import inf

from ...common.errors import BackendUnavailableError, ConfigError, CublasError, CudnnError
from ...common.text import listed
from ...graph.graph import Graph
from ...graph.ops import Conv2d
from ..base import Array, Engine, Limits, Options, Precision
from ..collectives import on_one_machine
from ..compiling import ChoiceError, Choices, CompilePlan, Sections, compiled
from ..registry import without_kernel
from ..tuning import Tuning, code_digest
from . import lecture
from .binding.bind import KERNELS, Arithmetic
from .binding.launches import Stream
from .binding.pictures import Pictures
from .binding.small_sums import wanted
from .engines import engines
from .executable import CudaExecutable
from .fused import REWRITES
from .libraries.cublas import Cublas, Product
from .libraries.cublas_lt import cublas_lt
from .libraries.cudnn_library import Cudnn
from .libraries.layout import BFLOAT
from .libraries.modules import toolchain
from .libraries.runtime import (
    CAPTURING,
    address_of,
    cuda_api,
    cupy_on,
    cupy_version,
    device,
    frontend,
    module_version,
)
from .libraries.timing import crowded, fastest
from .memory_plan import check_fits, choose_residency, free_bytes
from .tuned import Shipped, shipped
from .tuner import LAYOUTS, search

# What is taken without a search: channels padded to what tensor cores like.
DEFAULT_CHOICES = {precision: layouts[0] for precision, layouts in LAYOUTS.items()}
# What cuDNN prefers; its rivals, which a search tries, take fewer.
DEFAULT_CHOICES["bf16"] = {"layout": "nhwc", "pad": "32"}
# How a library says that a plan cannot be had; a damaged number raises the latter two.
REFUSALS = (CudnnError, CublasError, ValueError, ArithmeticError)
# What a driver may refuse, and only when a step is captured: another table is too late then.
REFUSABLE = ("overlap", "apart", "quiet")
# The choices of a whole step; all others are of one section: the name has a slash.
WHOLE = ("layout", "pad", "streams", "ending", *REFUSABLE)
_LISTED = 6
Plan = CompilePlan[CudaExecutable]


class CudaBackend:
    """The first GPU of this machine.

    Raises BackendUnavailableError if there is none, its driver is too old, or CuPy, cuDNN or
    cuDNN's frontend is missing.
    """

    name = "cuda"
    waiting_threads = 0
    rewrites = REWRITES
    executable: type[CudaExecutable] = CudaExecutable
    free_bytes = staticmethod(free_bytes)
    # What the sections that were compiled last take at most.
    needed = 0

    @property
    def pieces(self) -> int:
        """One where NCCL adds up, because its kernels take processors from what is computed."""
        return 2 if wanted() and on_one_machine() else 1

    def __init__(self, capture: bool = True) -> None:
        self.device = device()
        self._capture = capture
        self._streams: dict[tuple[int, bool], Stream] = {}
        self._pictures = Pictures()

    def make_ready(self) -> None:
        """Load the libraries and make the handles that every training needs."""
        self._stream(0, self.device.has_tf32)
        toolchain()
        _digest()

    def _stream(self, index: int, tf32: bool) -> Stream:
        """The stream of this number, with handles made when first asked for."""
        if (index, tf32) not in self._streams:
            cuda = self.device.numbered_stream(index)
            with cuda, CAPTURING:
                other = self._streams.get((index, not tf32))
                cudnn = other.cudnn if other is not None else Cudnn(cuda)
                libraries = (Cublas(tf32, cuda), cudnn, cublas_lt())
                made = Stream(cuda, *libraries, processors=device().processors)
                self.device.hold(made)
                self._streams[index, tf32] = made
        return self._streams[index, tf32]

    def compile(
        self, sections: Mapping[str, Graph], options: Options | None = None
    ) -> CudaExecutable:
        # Of several threads the first one searches, and the others take what it has found. None of
        # them captures meanwhile, for a library may wait for the whole device here.
        with CAPTURING:
            return self._compiled(sections, options or Options())

    def _compiled(self, sections: Mapping[str, Graph], options: Options) -> CudaExecutable:
        lectured = options.calls == "lecture"
        if lectured:
            lecture.check(sections.values())
            options = replace(options, precision="fp32", fusion=False)

        def planned(graphs: Sections, trained: Sections, chosen: Precision) -> Plan:
            if options.share_memory and chosen == "bf16":
                raise ConfigError(
                    "train.recompute: is not proven to keep every bit on a GPU in bf16; use "
                    "run.precision: tf32, or leave it out"
                )
            arithmetic = Arithmetic.of(chosen, options.fusion, options.deterministic)
            arithmetic = replace(arithmetic, lecture=lectured, share=options.share_memory)
            free = self._pictures.reserve(trained.values()) + self.free_bytes()
            streamed, memory = choose_residency(graphs, chosen, options, free)
            if streamed:
                self._pictures.free()
            # Of those that evaluate, none keeps memory when it is closed.
            pictures = self._pictures if trained else None
            check_fits(memory, free, self.device.name)
            self.needed = memory.total
            offered: list[Shipped] = []

            def build(graphs: Sections, tuning: Tuning, notes: Sequence[str]) -> CudaExecutable:
                if trained:
                    _check_names(tuning.choices)
                count = int(tuning.choices.get("streams", "1"))
                streams = [self._stream(i, chosen == "tf32") for i in range(count)]
                notes = (*notes, *_notices(graphs))
                how = (arithmetic, notes, self._capture, streamed, pictures)
                made = self.executable(graphs, tuning, streams, *how)
                for table in offered:
                    if table.choices == tuning.choices:
                        _check(table, made)
                return made

            def ships(wanted: Tuning) -> Choices | None:
                found = shipped(wanted)
                offered.extend([] if found is None else [found])
                return None if found is None else found.choices

            def trial(choices: Choices) -> CudaExecutable:
                return build(trained, Tuning(self.name, choices=dict(choices)), ())

            return CompilePlan(
                build=build,
                refusals=REFUSALS,
                choices=lecture.CHOICES if lectured else DEFAULT_CHOICES[chosen],
                search=None if lectured else lambda: search(trial, chosen, options),
                shipped=ships,
                thorough=options.tune_seconds == inf,
                quiet=lambda: not crowded(),
                code=_digest(),
                extra=arithmetic.mark,
                training_only=REFUSABLE,
            )

        return compiled(self, sections, options, lambda *of: self._planned(planned(*of), *of))

    def _planned(self, plan: Plan, _: Sections, trained: Sections, precision: Precision) -> Plan:
        """What is compiled in place of a plan."""
        return plan

    def precision(self, wanted: Precision) -> Precision:
        if wanted == "auto":
            return "tf32" if self.device.has_tf32 else "fp32"
        if wanted in ("tf32", "bf16") and not self.device.has_tf32:
            raise BackendUnavailableError(
                f"precision '{wanted}': {self.device.name} has no tensor cores for it; "
                "set run.precision to fp32"
            )
        if wanted not in ("fp32", "tf32", "bf16"):
            raise BackendUnavailableError(
                f"precision '{wanted}': CUDA computes in fp32, tf32 or bf16; "
                "set run.precision to auto or one of them"
            )
        return wanted

    def limits(self, precision: Precision = "auto") -> Limits:
        n = 8192
        with cupy_on(self.device.stream) as cp:
            a, b, c = (cp.random.standard_normal((n, n), dtype="float32") for _ in range(3))
            blas = self._stream(0, self.device.has_tf32).cublas
            at = [address_of(x) for x in (a, b, c)]
            product = Product(n, n, n, at[0], n, at[1], n, at[2], n)

            def multiply() -> None:
                if precision == "bf16":
                    blas.gemm_ex(product, BFLOAT, BFLOAT)
                else:
                    blas.sgemm(product)

            source = cp.empty(1 << 28, "float32")
            target, stream = cp.empty_like(source), self.device.stream
            seconds = fastest(multiply, stream, 10)
            moved = fastest(lambda: cp.copyto(target, source), stream, 10)
        return Limits(2 * n**3 / seconds / 1e9, 2 * source.nbytes / moved / 1e9)

    def engines(self, op: Conv2d, x: Array, w: Array) -> Iterator[Engine]:
        return engines(self._stream(0, self.device.has_tf32).cudnn, op, x, w)

    def versions(self) -> Mapping[str, str]:
        stream = self._stream(0, self.device.has_tf32)
        return {
            "GPU": self.device.name,
            "CUDA": str(self.device.cuda_version),
            "driver": str(cuda_api().runtime.driverGetVersion()),
            "cuDNN": stream.cudnn.version,
            "cuBLAS": stream.cublas.version,
            "CuPy": cupy_version(),
            "cudnn-frontend": module_version(frontend()),
        }


def _check_names(choices: Choices) -> None:
    """Raise ChoiceError for a choice of a whole step that there is not, or not any more."""
    for name, taken in choices.items():
        if "/" not in name and name not in WHOLE:
            raise ChoiceError(f"{taken!a} for {name!a}")


def _check(table: Shipped, made: CudaExecutable) -> None:
    """Raise, with everything freed, for a plan that is not what it was where the table was made."""
    try:
        table.check(made.binders())
    except CudnnError:
        made.close()
        raise


def _notices(graphs: Sections) -> list[str]:
    """What the user should know of operations that the device has no kernel for."""
    lacking = without_kernel(graphs.values(), KERNELS)
    return lacking and [
        f"the GPU has no kernel for {listed(lacking, _LISTED)}: the host computes it with NumPy, "
        "with copies both ways, and the step is several graphs instead of one; its cost is shown "
        "by dnnstack explain --measure"
    ]


@cache
def _digest() -> str:
    return code_digest(__package__, "operations", "binding", "fused", "libraries", "sources")

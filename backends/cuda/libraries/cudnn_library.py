"""cuDNN's functions that its frontend lacks, by ctypes: pooling, activation, softmax,
local response normalisation.

One handle serves these and the frontend's graphs.
"""

from __future__ import annotations

import ctypes as C
from collections.abc import Callable
from ctypes import byref, c_char_p, c_double, c_float, c_size_t
from functools import cached_property, partial
from typing import Any, TypeVar

from ....common.errors import BackendUnavailableError, CudnnError
from ....graph.graph import Shape
from .conv_plans import ConvPlans, ConvSpec
from .plan_files import PlanFiles, RestoredPlan
from .runtime import cudnn_library, device, frontend, module_version
from .shared_library import Handle, SharedLibrary

FLOAT = 0
POOLING = {"max": 3, "avg": 2}  # max deterministic; average without padding
ACTIVATION = {"sigmoid": 0, "relu": 1, "tanh": 2, "silu": 6}
# NaN stays NaN, as everywhere else.
PROPAGATE_NAN = 1
SOFTMAX_ACCURATE, SOFTMAX_LOG, MODE_CHANNEL = 1, 2, 1
# cudnnLRNMode_t across channels, cudnnDivNormMode_t with precomputed means: there are no others.
ONLY_MODE = 0
# Graphs of convolutions that a handle keeps, and plans built of one: where there are more, a search
# has tried them, which takes memory for what is not used again.
MOST_KEPT, MOST_BUILT = 512, 4
Graphs = dict[ConvSpec, ConvPlans]
Restored = dict[tuple[ConvSpec, int | None], RestoredPlan | None]
KeptT = TypeVar("KeptT")
KeyT = TypeVar("KeyT")
FoundT = TypeVar("FoundT")


def _check_cuda(cudnn: int, cupy: int) -> None:
    """Raise BackendUnavailableError if cuDNN and CuPy are made for different CUDA versions.

    The packages of cuDNN for both overwrite each other's files.
    """
    if cudnn == cupy:
        return
    raise BackendUnavailableError(
        f"device 'cuda': cuDNN is made for CUDA {cudnn}, CuPy for CUDA {cupy}; keep one: "
        "pip uninstall nvidia-cudnn-cu12 nvidia-cudnn-cu13, then pip install --force-reinstall "
        f"'dnnstack[cuda{cupy}]', or use --device cpu"
    )


def _had(call: Callable[[], FoundT]) -> FoundT:
    """What the frontend gives. Raises BackendUnavailableError where cuDNN refuses."""
    try:
        return call()
    except RuntimeError as error:
        raise BackendUnavailableError(
            f"device 'cuda': cuDNN cannot be used ({error}); check that nvidia-smi shows free "
            "memory, or use --device cpu"
        ) from None


def _free(
    graphs: Graphs, restored: Restored, destroy: Callable[[int], object], handle: int
) -> None:
    """Free a handle behind the graphs and plans that were made with it."""
    graphs.clear()
    restored.clear()
    destroy(handle)


def _kept(kept: dict[KeyT, KeptT], spec: KeyT, make: Callable[[], KeptT]) -> KeptT:
    """What is kept of a convolution, or is made now; drops what was not used for longest."""
    found = kept.pop(spec) if spec in kept else make()
    kept[spec] = found
    if len(kept) > MOST_KEPT:
        del kept[next(iter(kept))]
    return found


class Cudnn(SharedLibrary):
    """A cuDNN handle on a stream, the library's plain functions, and the graphs of convolutions.

    ``graphs``: those made with the handle, the last used at the end, for the next training of this
    process to use again, and ``verdicts``: which of their plans were found right. They are kept as
    long as the handle, of MOST_KEPT convolutions at most. The graphs hold the kernels of up to
    MOST_BUILT plans each; verdicts hold next to nothing, and are kept of searched graphs, too.
    """

    name, error = "cuDNN", CudnnError

    def __init__(self, stream: Any) -> None:
        super().__init__(cudnn_library())
        self.dll.cudnnGetErrorString.restype = c_char_p
        self.dll.cudnnGetVersion.restype = c_size_t
        self.dll.cudnnGetCudartVersion.restype = c_size_t
        _check_cuda(int(self.dll.cudnnGetCudartVersion()) // 1000, device().cuda_version // 1000)
        self.handle = int(_had(frontend().create_handle))
        self.graphs: Graphs = {}
        self.verdicts: dict[ConvSpec, dict[int, bool]] = {}
        self.restored: Restored = {}
        free = partial(_free, self.graphs, self.restored, frontend().destroy_handle)
        self.owned = Handle(self.handle, free)
        self.stream = stream
        _had(partial(frontend().set_stream, handle=self.handle, stream=stream.ptr))
        self.one, self.zero = byref(c_float(1.0)), byref(c_float(0.0))

    @property
    def version(self) -> str:
        number = int(self.dll.cudnnGetVersion())
        return f"{number // 10000}.{number // 100 % 100}.{number % 100}"

    def word(self, status: int) -> str:
        buffer = C.create_string_buffer(1000)
        word = self.dll.cudnnGetErrorString(status).decode()
        self.dll.cudnnGetLastErrorString(buffer, c_size_t(1000))
        return f"{word} {buffer.value.decode(errors='replace').strip()}".strip()

    def conv_plans(self, spec: ConvSpec) -> ConvPlans:
        """The graph of a convolution: one that is kept, or one made now.

        Raises CudnnError if no engine takes it; that is asked anew each time.
        """
        return _kept(self.graphs, spec, partial(ConvPlans, self.handle, spec))

    @cached_property
    def files(self) -> PlanFiles:
        """Where plans are kept for other processes."""
        found, versions = device(), (self.version, module_version(frontend()))
        return PlanFiles((found.name, str(found.capability), str(found.cuda_version), *versions))

    def restored_plan(self, spec: ConvSpec, wanted: int | None) -> RestoredPlan | None:
        """The plan that another process has kept, unless this one has made the graph itself."""
        if spec in self.graphs:
            return None
        make = partial(self.files.restored, self.handle, spec, wanted)
        return _kept(self.restored, (spec, wanted), make)

    def verdicts_of(self, spec: ConvSpec) -> dict[int, bool]:
        """For each plan of a convolution that was tried, whether it is right and keeps what was
        asked for; to be filled."""
        return _kept(self.verdicts, spec, dict)

    def let_go(self, plans: ConvPlans) -> None:
        """Keep a graph no longer if a search has tried its plans; who uses it still has it."""
        if plans.built > MOST_BUILT and self.graphs.get(plans.spec) is plans:
            del self.graphs[plans.spec]

    def descriptor(self, kind: str) -> Handle:
        """A new, empty descriptor: Tensor, Pooling, Activation, LRN."""
        return self.create(f"cudnnCreate{kind}Descriptor", f"cudnnDestroy{kind}Descriptor")

    def tensor(self, shape: Shape, strides: Shape) -> Handle:
        """A descriptor of a float tensor of four dimensions, (N, C, H, W) with its strides."""
        made, shown = self.descriptor("Tensor"), {"shape": shape, "strides": strides}
        self.call("cudnnSetTensor4dDescriptorEx", made, FLOAT, *shape, *strides, **shown)
        return made

    def plain(self, shape: Shape) -> Handle:
        """The same for one that is row-major, (N, C) too."""
        n, c, h, w = shape if len(shape) == 4 else (*shape, 1, 1)
        return self.tensor((n, c, h, w), (c * h * w, h * w, w, 1))

    def pooling(self, kind: str, kernel: Shape, padding: Shape, stride: Shape) -> Handle:
        """A pooling descriptor; windows (h, w)."""
        made, numbers = self.descriptor("Pooling"), (*kernel, *padding, *stride)
        shown = {"kernel": kernel, "padding": padding, "stride": stride}
        how = (made, POOLING[kind], PROPAGATE_NAN)
        self.call("cudnnSetPooling2dDescriptor", *how, *numbers, **shown)
        return made

    def activation(self, kind: str, alpha: float) -> Handle:
        """An activation descriptor; for SiLU (swish) beta is 1."""
        made = self.descriptor("Activation")
        how = (made, ACTIVATION[kind], PROPAGATE_NAN, c_double(alpha))
        self.call("cudnnSetActivationDescriptor", *how, kind=kind)
        if kind == "silu":
            self.call("cudnnSetActivationDescriptorSwishBeta", made, c_double(1.0))
        return made

    def lrn(self, size: int, alpha: float, beta: float, k: float) -> Handle:
        """The descriptor of local response normalisation, across channels or around a pixel."""
        made, shown = self.descriptor("LRN"), {"alpha": alpha, "beta": beta, "k": k}
        self.call(
            "cudnnSetLRNDescriptor", made, size, *map(c_double, shown.values()), size=size, **shown
        )
        return made

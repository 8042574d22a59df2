"""The device: finding CUDA, cuDNN and cuBLAS, and the stream that everything runs on."""

from __future__ import annotations

import gc
import importlib
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from importlib.abc import MetaPathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

from ....common.errors import BackendUnavailableError
from ....common.records import dataclass

# The first frontend that is not of the kind of 1.24.
NEW_FRONTEND = (1, 27)
# Held where a thread captures, and where one makes what waits for the whole device, as handles of
# cuBLAS and cuDNN do: that is forbidden while any stream is captured.
CAPTURING = threading.RLock()
# Bytes of free memory below which what verifies plans may find too little.
LITTLE = 4 << 30
# The least compute capability that CUDA's libraries take; those of CUDA 12 take all that matter.
OLDEST = {13: (7, 5)}
# The packages of CuPy, for either CUDA.
CUPY = ("cupy-cuda13x", "cupy-cuda12x")
INSTALL = (
    "install it with python3 -m pip install 'dnnstack[cuda13]' (or [cuda12] for a CUDA 12 driver), "
    "or use --device cpu"
)


@cache
def cuda_api() -> Any:
    """``cuda_api.py``, on CuPy's binding of CUDA's runtime, which is imported without the rest.

    Raises BackendUnavailableError that says what to install.
    """
    _imported("cupy_backends.cuda.api.runtime", "CuPy")
    return importlib.import_module(".cuda_api", __package__)


@cache
def cupy() -> Any:
    """All of CuPy, for arithmetic where plans and products are verified, and where the machine's
    limits are measured. Raises BackendUnavailableError."""
    return _imported("cupy", "CuPy")


@contextmanager
def cupy_on(stream: Any) -> Iterator[Any]:
    """CuPy, whose arrays and ours work on a stream in this block."""
    cp, api = cupy(), cuda_api()
    # CuPy cannot ask for what is held in reserve.
    if api.runtime.memGetInfo()[0] < LITTLE:
        api.pool.release()
    with stream, cp.cuda.Stream.from_external(stream):
        yield cp


def cupy_version() -> str:
    """The version of CuPy's package, of whichever name."""
    from importlib import metadata

    for name in (*CUPY, "cupy"):
        with suppress(metadata.PackageNotFoundError):
            return metadata.version(name)
    return "unknown"


def spare_bytes() -> int:
    """What CuPy holds in reserve on the device, which is freed where memory runs out."""
    found = getattr(sys.modules.get("cupy"), "get_default_memory_pool", None)
    return 0 if found is None else int(found().free_bytes())


def submodule(name: str) -> ModuleType:
    """A module of CuPy that it does not import by itself, such as ``cuda.nccl``."""
    return _imported(f"cupy.{name}", "CuPy")


def _imported(name: str, called: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise BackendUnavailableError(
            f"device 'cuda': {called} cannot be imported ({error}); {INSTALL}"
        ) from None


def address_of(array: Any) -> int:
    """The device pointer of an array."""
    return int(array.data.ptr)


def device_errors() -> tuple[type[Exception], type[Exception]]:
    """What is raised where the device fails: the runtime's error, and the driver's, with which
    a launch of a kernel of ours answers."""
    api = cuda_api()
    return api.runtime.CUDARuntimeError, api.driver.DriverError


@cache
def frontend() -> Any:
    """cuDNN's frontend. It would import torch if installed, which takes seconds for nothing."""
    with _blocked("torch"):
        module = _imported("cudnn", "the cuDNN frontend")
    check_frontend(str(module.__version__))
    return module


def check_frontend(version: str) -> None:
    """Raise BackendUnavailableError for a frontend whose graphs and handles are of another kind."""
    numbers = version.split(".")[:2]
    if not all(number.isdecimal() for number in numbers):
        return
    if tuple(map(int, numbers)) >= NEW_FRONTEND:
        bound = ".".join(map(str, NEW_FRONTEND))
        raise BackendUnavailableError(
            f"device 'cuda': nvidia-cudnn-frontend {version} is installed, but versions from "
            f"{bound} on have another interface; pip install 'nvidia-cudnn-frontend<{bound}', or "
            "use --device cpu"
        )


@contextmanager
def _blocked(name: str) -> Iterator[None]:
    """Let an import of ``name`` fail in this thread, unless it has been imported already."""
    refusing = _Refusing(name, threading.get_ident())
    sys.meta_path.insert(0, refusing)
    try:
        yield
    finally:
        sys.meta_path.remove(refusing)


@dataclass(frozen=True)
class _Refusing(MetaPathFinder):
    """Finds no module of this name for this thread; others, such as a plugin, may import it."""

    name: str
    thread: int

    def find_spec(self, fullname: str, path: object, target: object = None) -> None:
        if fullname == self.name and threading.get_ident() == self.thread:
            raise ModuleNotFoundError(f"import of {fullname} is refused", name=fullname)


def cudnn_library() -> str:
    """The libcudnn.so.9 that the frontend has loaded: LD_LIBRARY_PATH's, or the package's."""
    frontend()
    return loaded_library("libcudnn.so") or "libcudnn.so.9"


def loaded_library(part: str) -> str | None:
    """The path of a shared library of this process whose name holds ``part``."""
    maps = Path("/proc/self/maps")
    if not maps.exists():
        return None
    for line in maps.read_text("utf-8").splitlines():
        path = line.split()[-1]
        if part in Path(path).name:
            return path
    return None


@dataclass(frozen=True)
class Processors:
    """How many multiprocessors, and their bytes of shared memory: in all, and of a block.

    warpgroups: whether their tensor cores do products of these: compute capability 9.0 alone.
    """

    count: int
    shared: int
    shared_of_block: int
    warpgroups: bool = False


# What is taken for the device where there is none.
H200 = Processors(132, 228 << 10, 227 << 10, warpgroups=True)


class Device:
    """The first GPU, with streams of ours and what it can do.

    All threads use the same streams, except inside ``own_streams``. Raises
    BackendUnavailableError if there is no GPU, its driver or the GPU itself is too old, or it
    cannot be used now.
    """

    def __init__(self) -> None:
        runtime = cuda_api().runtime
        wrong = "the CUDA driver does not answer"
        mend = "works and its driver supports the installed CUDA version"
        try:
            if runtime.getDeviceCount() == 0:
                raise BackendUnavailableError(
                    "device 'cuda': this machine has no GPU; use --device cpu"
                )
            wrong = "the GPU cannot be used"
            mend = "shows free memory, and no other program that has the GPU to itself"
            self._open(runtime)
        except runtime.CUDARuntimeError as error:
            raise BackendUnavailableError(
                f"device 'cuda': {wrong} ({error}); check that nvidia-smi {mend}, or use "
                "--device cpu"
            ) from None

    def _open(self, runtime: Any) -> None:
        properties = runtime.getDeviceProperties(0)
        self.name = properties["name"].decode()
        self.capability = (int(properties["major"]), int(properties["minor"]))
        self.memory = int(properties["totalGlobalMem"])
        self.processors = Processors(
            int(properties["multiProcessorCount"]),
            int(properties["sharedMemPerMultiprocessor"]),
            int(properties["sharedMemPerBlockOptin"]),
            self.capability == (9, 0),
        )
        self.cuda_version = int(runtime.runtimeGetVersion())
        needed = OLDEST.get(self.cuda_version // 1000, self.capability)
        if self.capability < needed:
            has, needs = (".".join(map(str, each)) for each in (self.capability, needed))
            raise BackendUnavailableError(
                f"device 'cuda': {self.name} has compute capability {has}, and CUDA "
                f"{self.cuda_version // 1000} needs {needs}; install dnnstack[cuda12] in place of "
                "dnnstack[cuda13], or use --device cpu"
            )
        # The first stream makes the context, which takes memory.
        self._common = [cuda_api().Stream()]
        self._own = threading.local()
        self._held: list[object] = []

    @property
    def stream(self) -> Any:
        """The main stream."""
        return self._streams[0]

    def numbered_stream(self, index: int) -> Any:
        """Stream 0 is the main one; others run beside it."""
        streams = self._streams
        while len(streams) <= index:
            streams.append(cuda_api().Stream())
        return streams[index]

    @contextmanager
    def own_streams(self) -> Iterator[None]:
        """In this block this thread has other streams than the rest: what it launches does not
        wait for their work, nor they for its. Handles and executables of the block stay in it."""
        api = cuda_api()
        # A thread begins without a context, which calls of the driver need.
        api.use_device()
        self._own.streams = [api.Stream()]
        try:
            yield
        finally:
            del self._own.streams

    def hold(self, handles: object) -> None:
        """Let what was made inside ``own_streams`` live as long as this process.

        Destroying it waits for the whole device, too, whatever another thread captures then.
        """
        if self._streams is not self._common:
            self._held.append(handles)

    @property
    def _streams(self) -> list[Any]:
        found: list[Any] = getattr(self._own, "streams", self._common)
        return found

    @property
    def has_tf32(self) -> bool:
        """Tensor cores that take TF32: compute capability 8.0 (Ampere) and newer."""
        return self.capability >= (8, 0)


@cache
def device() -> Device:
    """The process's one Device."""
    return Device()


def synchronize() -> None:
    """Wait for this thread's main stream; every other has joined it where a section ends."""
    device().stream.synchronize()


def copy_flat(source: Any, target: Any, stream: Any) -> None:
    """Copy one flat device array to another on a stream, without a kernel to be compiled for it."""
    runtime = cuda_api().runtime
    ends = (address_of(target), address_of(source), source.nbytes)
    runtime.memcpyAsync(*ends, runtime.memcpyDeviceToDevice, stream.ptr)


@contextmanager
def _without_collector() -> Iterator[None]:
    """Collect no garbage: what a handle or a module frees may wait for the device, which breaks a
    capture."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def captured(launches: Iterable[Callable[[], None]], stream: Any) -> Any:
    """A graph of these launches. Raises what one of them raises."""
    with CAPTURING, _without_collector():
        stream.begin_capture()
        try:
            for launch in launches:
                launch()
        except BaseException:
            # The error that broke the capture says more than that it is broken.
            with suppress(*device_errors()):
                stream.end_capture()
            raise
        return stream.end_capture()


def module_version(module: ModuleType) -> str:
    """A module's own word for its version."""
    return str(getattr(module, "__version__", "unknown"))

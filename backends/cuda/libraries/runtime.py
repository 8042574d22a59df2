"""The device: finding CUDA, cuDNN and cuBLAS, and the stream that everything runs on."""

from __future__ import annotations

import gc
import importlib
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from importlib.abc import MetaPathFinder
from pathlib import Path
from statistics import median
from types import ModuleType
from typing import Any

from ....common.errors import BackendUnavailableError, LibraryError
from ....common.records import dataclass

# Launches in one timing.
CALLS = 10
# Seconds that a small copy may take, with the wait for it, on a GPU that no other program uses. On
# an H200 it takes 0.014 ms, with all cores busy 0.02 ms, but 0.31 ms and more while another program
# keeps the GPU busy, since the two take turns.
ALONE_SECONDS = 2e-4
PROBE_SECONDS = 0.02
# The first frontend that is not of the kind of 1.24.
NEW_FRONTEND = (1, 27)
# Held where a thread captures, and where one makes what waits for the whole device, as handles of
# cuBLAS and cuDNN do: that is forbidden while any stream is captured.
CAPTURING = threading.RLock()
# Bytes of free memory below which what verifies plans may find too little.
LITTLE = 4 << 30
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
    BackendUnavailableError if there is no GPU or its driver is too old.
    """

    def __init__(self) -> None:
        runtime = cuda_api().runtime
        try:
            count = runtime.getDeviceCount()
        except runtime.CUDARuntimeError as error:
            raise BackendUnavailableError(
                f"device 'cuda': the CUDA driver does not answer ({error}); check that nvidia-smi "
                "works and its driver supports the installed CUDA version, or use --device cpu"
            ) from None
        if count == 0:
            raise BackendUnavailableError(
                "device 'cuda': this machine has no GPU; use --device cpu"
            )
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
        self._common = [cuda_api().Stream()]
        self._own = threading.local()
        self._held: list[object] = []
        self.cuda_version = int(runtime.runtimeGetVersion())

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


def fastest(work: Callable[[], object], stream: Any, repeats: int) -> float:
    """Device seconds between begin and end of what ``work`` launches, the least of ``repeats``."""
    event, best = cuda_api().Event, float("inf")
    for _ in range(repeats):
        start, stop = event(timing=True), event(timing=True)
        start.record(stream)
        work()
        stop.record(stream)
        stop.synchronize()
        best = min(best, start.seconds_until(stop))
    return best


def crowded() -> bool:
    """Whether another program keeps the GPU busy now, by the median time of small copies.

    Programs that share it through MPS do not take turns, and are not noticed.
    """
    stream = device().stream
    times: list[float] = []
    with stream:
        source = cuda_api().zeros(1024, "float32")
        target = source.copy()
        stream.synchronize()
        begin = now = time.perf_counter()
        while now < begin + PROBE_SECONDS:
            copy_flat(source, target, stream)
            stream.synchronize()
            before, now = now, time.perf_counter()
            times.append(now - before)
    return median(times) > ALONE_SECONDS


def captured_seconds(launch: Callable[[], None], stream: Any, repeats: int) -> float:
    """Device seconds of one launch: the fastest of ``repeats`` runs of a graph of CALLS launches.

    The host launches a small kernel slower than the device runs it, so a bare loop would time the
    host. Raises what ``launch`` raises.
    """
    with stream:
        launch()
        stream.synchronize()
        graph = captured([launch] * CALLS, stream)
        graph.launch(stream)
        return fastest(lambda: graph.launch(stream), stream, repeats) / CALLS


def host_seconds(work: Callable[[], None], repeats: int) -> float:
    """Median seconds of work on the host, with its copies, behind an idle device."""
    times = []
    for _ in range(repeats):
        synchronize()
        begin = time.perf_counter()
        work()
        synchronize()
        times.append(time.perf_counter() - begin)
    return median(times)


def trial_seconds(launch: Callable[[], None], stream: Any, repeats: int) -> float:
    """``captured_seconds``; infinite for a launch that fails."""
    try:
        return captured_seconds(launch, stream, repeats)
    except (LibraryError, *device_errors()):
        return float("inf")


def gives_equal_bits(launch: Callable[[], None], output: Any) -> bool:
    """Whether a launch leaves equal bits in one of CuPy's arrays twice."""
    results = []
    for _ in range(2):
        launch()
        results.append(output.copy().view("uint8"))
    return bool((results[0] == results[1]).all())


def module_version(module: ModuleType) -> str:
    """A module's own word for its version."""
    return str(getattr(module, "__version__", "unknown"))

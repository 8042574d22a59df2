"""The GPU is opened beside other work: by threads that begin before the config has been read.

They wait for the driver and the libraries, while Python is free to import and read. The modules are
imported by the thread that asks: two that import at once give each other the interpreter at every
file, which takes longer than one after the other. Itself it imports nothing that takes time, so
that the driver begins early.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .cuda.backend import CudaBackend

# Exists if an NVIDIA driver is loaded; only then is CuPy imported.
NVIDIA_DRIVER = Path("/dev/nvidiactl")


class Opening:
    """The first GPU as it is opened by a thread; ``capture``: that of ``open_backend``."""

    def __init__(self, capture: bool) -> None:
        self.capture = capture
        self._backend: CudaBackend | None = None
        self._error: Exception | None = None
        # The end of the program waits for them: the driver must not be left at work.
        threading.Thread(target=_make_context, name="driver").start()
        _import_all()
        self._thread = threading.Thread(target=self._open, name="open the GPU")
        self._thread.start()

    def _open(self) -> None:
        try:
            _begin_libraries()
            from .cuda.backend import CudaBackend

            backend = CudaBackend(self.capture)
            backend.make_ready()
            self._backend = backend
        except Exception as error:
            self._error = error

    def backend(self) -> CudaBackend:
        """The open GPU, waited for. Raises what opening it raised."""
        self._thread.join()
        if self._error is not None:
            raise self._error
        assert self._backend is not None
        return self._backend


def _import_all() -> None:
    """Import what opening the device needs. An error is left to it, which meets and explains it."""
    with suppress(Exception):
        from .cuda import backend  # noqa: F401
        from .cuda.libraries.runtime import cuda_api, frontend
        from .cuda.libraries.shared_library import finder

        cuda_api()
        finder()
        frontend()


def _begin_libraries() -> None:
    """Open the device; let a thread prepare cublasLt while the other libraries are loaded."""
    from .cuda.libraries.cublas_lt import cublas_lt
    from .cuda.libraries.runtime import device

    given = (device().has_tf32,)
    threading.Thread(target=cublas_lt().warm, args=given, name="cublasLt").start()


def _make_context() -> None:
    """Make the driver's context of the first GPU, the one that CUDA's runtime takes.

    Through ctypes, which lets Python's other threads go on. An error is left to the runtime, which
    finds it again and explains it.
    """
    import ctypes

    with suppress(OSError, AttributeError):
        driver = ctypes.CDLL("libcuda.so.1")
        device, context = ctypes.c_int(), ctypes.c_void_p()
        if not driver.cuInit(0) and not driver.cuDeviceGet(ctypes.byref(device), 0):
            driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)


_begun: list[Opening] = []


def begin(capture: bool) -> None:
    """Begin to open the first GPU, if there is a driver; ``open_backend`` takes it."""
    if not _begun and NVIDIA_DRIVER.exists():
        _begun.append(Opening(capture))


def taken(capture: bool) -> Opening | None:
    """What ``begin`` has begun, once; None if nothing, or for another kind of launches."""
    opening = _begun.pop() if _begun else None
    return opening if opening is not None and opening.capture == capture else None

"""Compiled sources of kernels: from the cache folder, or of a compiler; loaded when first used.

A file of the cache (kept.py) holds the code of one source for one kind of GPU, found by a hash of
the source, the options and the compiler; what is damaged is compiled again. So a start with a full
cache does without a compiler.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import cache, cached_property
from typing import Any, TypeVar

from ....common.errors import LibraryError
from ....common.records import dataclass
from . import driver, kept, nvrtc
from .compilers import COMPILERS
from .runtime import cuda_api, device, device_errors
from .shared_library import library_path

# What CuPy gives with every source: small numbers become zero, and functions that say nothing else
# are the device's.
COMMON = ("-ftz=true", "--device-as-default-execution-space")
FOLDER = "kernels"
# Characters of a compiler's message.
_SHOWN = 400
FoundT = TypeVar("FoundT")


@dataclass(frozen=True)
class Toolchain:
    """NVRTC, by its path; ``mark``: what tells it from another;
    ``architecture``: the option for this GPU."""

    library: str
    mark: str
    architecture: str

    def submit(self, source: str, options: Sequence[str]) -> Future[bytes]:
        """The code of a source, when a compiler has made it."""
        return COMPILERS.submit(self.library, source, options)


@cache
def toolchain() -> Toolchain:
    """That of this process."""
    library = library_path("nvrtc")
    major, minor = nvrtc.version(library)
    # Two builds of a version may differ.
    mark = f"NVRTC {major}.{minor}, {os.path.getsize(library)} bytes"
    return Toolchain(library, mark, nvrtc.architecture(library, device().capability))


class Module:
    """One source, compiled once. ``file``: what an error calls it; ``own``: with instructions that
    no other kind of GPU has, not even a newer one."""

    def __init__(self, file: str, source: str, options: Sequence[str], own: bool = False) -> None:
        self._file, self._source, self._given = file, source, tuple(options)
        self._own = own
        self._coming: Future[bytes] | None = None
        self._loaded: Any = None
        self._functions: dict[str, Any] = {}
        self._allowed: dict[str, int] = {}
        # A module that is loaded twice would be unloaded once, under launches that hold addresses.
        self._loading = threading.RLock()

    def begin(self) -> Future[bytes] | None:
        """Let a compiler make the code; None where it is there already."""
        if self._loaded is not None or (self._coming is None and kept.is_kept(FOLDER, self._key)):
            return None
        return self._begun()

    def _begun(self) -> Future[bytes]:
        if self._coming is None or self._coming.cancelled():
            self._coming = toolchain().submit(self._source, self._options)
            self._coming.add_done_callback(self._store)
        return self._coming

    def function(self, name: str, shared: int = 0) -> Any:
        """A kernel of the source, which may be launched with so many bytes of shared memory.

        Raises LibraryError if the source cannot be compiled, or its code cannot be loaded.
        """
        with self._loading:
            if name not in self._functions:
                self._functions[name] = self._explained(lambda: self._module().function(name))
            found = self._functions[name]
            # Of all launches the most: it is the kernel's, whoever launches it.
            if shared > self._allowed.get(name, 0):
                self._explained(lambda: cuda_api().driver.allow_shared(found.ptr, shared))
                self._allowed[name] = shared
            return found

    def _module(self) -> Any:
        if self._loaded is None:
            code, api = self._code(), cuda_api()
            try:
                self._loaded = api.Module(code)
            except api.driver.DriverError as error:
                if not driver.ran_out(error):
                    raise
                # What is held in reserve is nothing that the driver could ask for.
                api.pool.release()
                self._loaded = api.Module(code)
        return self._loaded

    def _explained(self, work: Callable[[], FoundT]) -> FoundT:
        """What this gives; where the driver refuses, an error with the source's name."""
        try:
            return work()
        except device_errors() as error:
            called = getattr(error, "function", "cudaSetDevice")
            function = driver.ALLOCATION if driver.ran_out(error) else called
            raise LibraryError("CUDA", function, str(error), {"file": self._file}) from None

    def _code(self) -> bytes:
        found = None if self._coming else kept.read(FOLDER, self._key)
        if found is not None:
            return found
        try:
            return self._begun().result()
        except (nvrtc.CompileError, OSError) as error:
            text = str(error)[-_SHOWN:].strip()
            shown = {"file": self._file}
            raise LibraryError("NVRTC", "nvrtcCompileProgram", text, shown) from None

    @cached_property
    def _options(self) -> tuple[str, ...]:
        return (*self._given, *COMMON, toolchain().architecture + ("a" if self._own else ""))

    @cached_property
    def _key(self) -> bytes:
        return kept.key_of(toolchain().mark, self._options, self._source)

    def _store(self, done: Future[bytes]) -> None:
        if not done.cancelled() and done.exception() is None:
            kept.write(FOLDER, self._key, done.result())

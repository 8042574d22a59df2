"""Compiled sources of kernels: from the cache folder, or of a compiler; loaded when first used.

A file of the cache holds the code of one source for one kind of GPU, found by a hash of the source,
the options and the compiler, behind a hash of all of this and the code: what is torn, damaged or of
another name is compiled again. So a start with a full cache does without a compiler.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from ....common.errors import LibraryError
from ....common.files import atomic_write, cache_dir, make_folder, read_regular, remove_abandoned
from . import nvrtc
from .compilers import COMPILERS
from .runtime import cupy, device, submodule_of_backends
from .shared_library import loaded_by_cupy

# What CuPy gives with every source: small numbers become zero, and functions that say nothing else
# are the device's.
COMMON = ("-ftz=true", "--device-as-default-execution-space")
# CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES of cuda.h.
SHARED_BYTES = 8
# Bytes of a stored code; ours have up to 300,000.
_LONGEST = 1 << 26
_DIGEST = hashlib.sha256().digest_size
_FORMAT = "code of a source, 1"
# Characters of a compiler's message.
_SHOWN = 400


@dataclass(frozen=True)
class Toolchain:
    """The NVRTC that CuPy has found, by its path; ``mark``: what tells it from another;
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
    # Its first call makes CuPy load the library.
    submodule_of_backends("cuda.libs.nvrtc").getVersion()
    library = loaded_by_cupy("libnvrtc.so")
    major, minor = nvrtc.version(library)
    # Two builds of a version may differ.
    mark = f"NVRTC {major}.{minor}, {os.path.getsize(library)} bytes"
    return Toolchain(library, mark, nvrtc.architecture(library, device().capability))


class Module:
    """One source, compiled once. ``file``: what an error calls it."""

    def __init__(self, file: str, source: str, options: Sequence[str]) -> None:
        self._file, self._source, self._given = file, source, tuple(options)
        self._coming: Future[bytes] | None = None
        self._loaded: Any = None
        self._functions: dict[str, Any] = {}
        self._allowed: dict[str, int] = {}

    def begin(self) -> Future[bytes] | None:
        """Let a compiler make the code; None where it is there already."""
        if self._loaded is not None or (self._coming is None and _path(self._key).exists()):
            return None
        return self._begun()

    def _begun(self) -> Future[bytes]:
        if self._coming is None or self._coming.cancelled():
            self._coming = toolchain().submit(self._source, self._options)
            self._coming.add_done_callback(self._store)
        return self._coming

    def function(self, name: str, shared: int = 0) -> Any:
        """A kernel of the source, which may be launched with so many bytes of shared memory.

        Raises LibraryError if the source cannot be compiled.
        """
        if name not in self._functions:
            self._functions[name] = self._module().get_function(name)
        found = self._functions[name]
        # Of all launches the most: it is the kernel's, whoever launches it.
        if shared > self._allowed.get(name, 0):
            cupy().cuda.driver.funcSetAttribute(found.ptr, SHARED_BYTES, shared)
            self._allowed[name] = shared
        return found

    def _module(self) -> Any:
        if self._loaded is None:
            code, loaded = self._code(), cupy().cuda.Module()
            loaded.load(code)
            self._loaded = loaded
        return self._loaded

    def _code(self) -> bytes:
        kept = None if self._coming else _read(self._key)
        if kept is not None:
            return kept
        try:
            return self._begun().result()
        except (nvrtc.CompileError, OSError) as error:
            text = str(error)[-_SHOWN:].strip()
            shown = {"file": self._file}
            raise LibraryError("NVRTC", "nvrtcCompileProgram", text, shown) from None

    @cached_property
    def _options(self) -> tuple[str, ...]:
        return (*self._given, *COMMON, toolchain().architecture)

    @cached_property
    def _key(self) -> bytes:
        known = (_FORMAT, toolchain().mark, self._options, self._source)
        return hashlib.sha256(repr(known).encode()).digest()

    def _store(self, done: Future[bytes]) -> None:
        if not done.cancelled() and done.exception() is None:
            _write(self._key, done.result())


def _read(key: bytes) -> bytes | None:
    """The stored code; None if there is none, or it is damaged."""
    with suppress(OSError):
        found = read_regular(_path(key), _LONGEST)
        mark, code = found[:_DIGEST], found[_DIGEST:]
        if mark == hashlib.sha256(key + code).digest():
            return code
    return None


def _write(key: bytes, code: bytes) -> None:
    """Store a code; a cache that cannot be written is not an error."""
    path = _path(key)
    with suppress(OSError):
        make_folder(path.parent)
        _tidy(path.parent)
        # What a loss of power leaves of it is found out by its hash.
        atomic_write(path, [hashlib.sha256(key + code).digest(), code], durable=False)


@cache
def _tidy(folder: Path) -> None:
    """Delete what killed processes left, once."""
    remove_abandoned(folder)


def _path(key: bytes) -> Path:
    return cache_dir() / "kernels" / f"{key.hex()[:32]}.bin"

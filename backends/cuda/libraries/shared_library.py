"""What the bindings of NVIDIA's shared libraries share: calls that are checked, handles."""

from __future__ import annotations

import ctypes as C
from ctypes import byref, c_void_p
from typing import Any, ClassVar

from ....common.errors import BackendUnavailableError, LibraryError
from ....common.native import Owned
from .runtime import INSTALL


class Handle(Owned):
    """A handle or descriptor of a library's, which its functions take as it is."""

    @property
    def _as_parameter_(self) -> c_void_p:
        return c_void_p(self.handle)


class SharedLibrary:
    """A library whose functions return a status, 0 for success."""

    name: ClassVar[str]
    error: ClassVar[type[LibraryError]]

    def __init__(self, path: str) -> None:
        self.dll = C.CDLL(path)

    def word(self, status: int) -> str:
        """What a status means."""
        return f"status {status}"

    def call(self, name: str, *arguments: Any, **shown: object) -> None:
        """Call a function; a status other than success raises ``error`` with ``shown``."""
        status = getattr(self.dll, name)(*arguments)
        if status:
            raise self.error(self.name, name, self.word(status), shown)

    def create(self, create: str, destroy: str, *arguments: Any) -> Handle:
        """The handle that a function of this name makes, to be given to the other in the end."""
        handle, free = c_void_p(), getattr(self.dll, destroy)
        self.call(create, byref(handle), *arguments)
        assert handle.value is not None
        return Handle(handle.value, lambda h: free(c_void_p(h)))


def finder() -> Any:
    """NVIDIA's finder of its libraries, which CuPy needs, too."""
    from cuda.pathfinder import load_nvidia_dynamic_lib

    return load_nvidia_dynamic_lib


def first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)


def library_path(name: str) -> str:
    """The path of one of CUDA's libraries, such as "cublas", which is loaded then.

    The finder looks among Python's packages, then where the system has its libraries, then in
    CUDA_PATH. Raises BackendUnavailableError.
    """
    try:
        path = finder()(name).abs_path
    except (ImportError, RuntimeError) as error:
        raise BackendUnavailableError(
            f"device 'cuda': {name} cannot be loaded ({first_line(error)}); {INSTALL}"
        ) from None
    return str(path)

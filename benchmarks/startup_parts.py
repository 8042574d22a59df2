"""Runs a command of dnnstack and says when the parts of its start began and how long they took.

    python3 benchmarks/startup_parts.py train --config lenet.yaml --device cuda

``startup.py --parts`` runs it several times. A part is a call of a function of ``WATCHED``, or a
module of ``IMPORTED`` with what it imports; a line for each, once the first chunk of steps is done:
seconds since the process was asked for, seconds taken, the thread, the name. Parts in others are
indented. What runs on another thread overlaps with the main one.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

# When the process was asked for, by time.time().
BEGIN = "STARTUP_BEGIN"
WATCHED: Mapping[str, tuple[str, ...]] = {
    "dnnstack.backends.ahead": (
        *("_make_context", "_begin_libraries", "Opening._open", "Opening.backend"),
    ),
    "dnnstack.backends.compiling": ("compiled",),
    "dnnstack.backends.cuda.backend": ("CudaBackend.__init__", "CudaBackend.make_ready"),
    "dnnstack.backends.cuda.binding.launch_list": ("LaunchList.compile",),
    "dnnstack.backends.cuda.executable": (
        "CudaExecutable._bind",
        "CudaExecutable._record",
        "CudaExecutable._record_in_turn",
    ),
    "dnnstack.backends.cuda.libraries.conv_graph": ("ConvGraph.choose",),
    "dnnstack.backends.cuda.libraries.conv_plans": ("ConvPlans.__init__", "ConvPlans.build"),
    "dnnstack.backends.cuda.libraries.cublas": ("Cublas.__init__",),
    "dnnstack.backends.cuda.libraries.cublas_lt": ("CublasLt.algorithms", "CublasLt.warm"),
    "dnnstack.backends.cuda.libraries.cudnn_library": ("Cudnn.__init__",),
    "dnnstack.backends.cuda.libraries.modules": ("toolchain", "Module._code"),
    "dnnstack.backends.cuda.memory_plan": ("choose_residency",),
    "dnnstack.backends.cuda.tuner": ("search",),
    "dnnstack.backends.select": ("open_backend",),
    "dnnstack.configs.load": ("load_config",),
    "dnnstack.training.assemble": ("load_data",),
    "dnnstack.training.session": ("Session.begin", "Session.run"),
}
IMPORTED = (
    *("numpy", "cupy", "cupy_backends.cuda.api.runtime", "cuda.pathfinder", "cudnn", "pydantic"),
    *("dnnstack.cli.main", "dnnstack.configs.load", "dnnstack.fitting", "dnnstack.layers.build"),
    *("dnnstack.backends.cuda.backend", "dnnstack.configs.schema.layers"),
)
LAST = "Session.run"
# Shorter ones are not shown.
SHOWN = 0.001

_parts: list[tuple[float, float, str, int, str]] = []
_depths: dict[int, int] = {}
_first = threading.Event()


def _timed(name: str, work: Callable[[], Any]) -> Any:
    thread = threading.get_ident()
    depth = _depths.get(thread, 0)
    _depths[thread] = depth + 1
    begin = time.time()
    try:
        return work()
    finally:
        _depths[thread] = depth
        called = threading.current_thread().name
        _parts.append((begin, time.time() - begin, called, depth, name))
        if name == LAST and not _first.is_set():
            _first.set()
            show()


def watched(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    @functools.wraps(function)
    def run(*given: Any, **how: Any) -> Any:
        return _timed(name, lambda: function(*given, **how))

    return run


class Watching(Loader):
    """Loads a module as its own loader does, and watches what is to be watched in it."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        found: ModuleType | None = self._loader.create_module(spec)
        return found

    def exec_module(self, module: ModuleType) -> None:
        if module.__name__ in IMPORTED:
            _timed(f"import {module.__name__}", lambda: self._loader.exec_module(module))
        else:
            self._loader.exec_module(module)
        for name in WATCHED.get(module.__name__, ()):
            *path, last = name.split(".")
            home = functools.reduce(getattr, path, module)
            setattr(home, last, watched(getattr(home, last), name))


class Finder(MetaPathFinder):
    """Finds modules as always, and lets those that matter be watched."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in WATCHED and fullname not in IMPORTED:
            return None
        for other in [each for each in sys.meta_path if each is not self]:
            found = other.find_spec(fullname, path, target)
            if found is not None and found.loader is not None:
                found.loader = Watching(found.loader)
                return found
        return PathFinder.find_spec(fullname, path, target)


def show() -> None:
    """Print the parts so far, as they began."""
    zero = float(os.environ.get(BEGIN, _parts[0][0]))
    for begin, seconds, thread, depth, name in sorted(_parts):
        if seconds >= SHOWN:
            label = f"{'  ' * depth}{name}"
            print(f"{begin - zero:8.3f} {seconds:8.3f}  {thread:14} {label}", file=sys.stderr)


def main() -> int:
    sys.meta_path.insert(0, Finder())
    from dnnstack.cli import run

    return run()


if __name__ == "__main__":
    # What is imported is this file's work, not dnnstack's.
    sys.path.pop(0)
    sys.exit(main())

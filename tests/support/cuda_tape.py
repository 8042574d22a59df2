"""What is launched on the stand-in for CUDA, as text: kernels, calls of libraries, waits."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from dnnstack.backends.cuda.libraries.kernels import FURTHER, HEADERS, _text
from dnnstack.backends.cuda.libraries.modules import COMMON

from .described_bytes import FIRST_HANDLE, Addresses, digest, plain
from .fake_frontend import FakeEnd, FakeFrontend, FakeGraph

VERSIONS = {"cudnnGetVersion": 91900, "cudnnGetCudartVersion": 13000}
# What changes a descriptor, not what is launched.
SETS = re.compile(r"cudnnSet\w*Descriptor\w*|cublasLt\w+SetAttribute")
ALGORITHMS = 2


class Tape:
    """``lines``: what was launched since they were taken last."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.addresses = Addresses()
        self.handles: dict[int, str] = {}

    def text(self, value: Any) -> str:
        return plain(value, self.addresses.place, self.handles.get)

    def texts(self, values: Sequence[Any]) -> str:
        return ", ".join(map(self.text, values))

    def handle(self, text: str) -> int:
        """A new handle that stands for this text."""
        number = FIRST_HANDLE + len(self.handles)
        self.handles[number] = text
        return number

    def taken(self, launch: Callable[[], object]) -> list[str]:
        """What this launches; who asks for more than that gets it as well."""
        outer, self.lines = self.lines, []
        launch()
        outer += self.lines
        found, self.lines = self.lines, outer
        return found


class TapedLibrary:
    """Stands for a shared library: every function succeeds."""

    def __init__(self, tape: Tape) -> None:
        self._tape = tape

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        found = _Function(self._tape, name)
        setattr(self, name, found)
        return found


class _Function:
    """A function of a library; its types may be set and change nothing."""

    def __init__(self, tape: Tape, name: str) -> None:
        self._tape, self._name = tape, name

    def __call__(self, *arguments: Any) -> int:
        tape, name = self._tape, self._name
        if name in VERSIONS:
            return VERSIONS[name]
        if "Destroy" in name:
            return 0
        if "Create" in name:
            kind = re.sub("cudnn|Create|Descriptor|_v2", "", name)
            arguments[0]._obj.value = tape.handle(f"{kind}({tape.texts(arguments[1:])})")
        elif SETS.fullmatch(name):
            changed = arguments[0].handle
            # cublasLt is told the size of what is set, behind it.
            given = arguments[1:-1] if name.startswith("cublasLt") else arguments[1:]
            tape.handles[changed] = f"{tape.handles[changed][:-1]} {tape.texts(given)})"
        elif name == "cublasLtMatmulAlgoGetHeuristic":
            _, *asked, _, found, count = arguments
            for index in range(ALGORITHMS):
                found[index].algorithm[0] = tape.handle(f"algorithm {index} of {tape.texts(asked)}")
            count._obj.value = ALGORITHMS
        else:
            tape.lines.append(f"{name}({tape.texts(arguments)})")
        return 0


class TapedStream:
    """A stream that has a number."""

    def __init__(self, tape: Tape, number: int) -> None:
        self._tape, self.number = tape, number
        self.ptr = tape.handle(f"stream {number}")

    def __enter__(self) -> TapedStream:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def wait_event(self, event: Any) -> None:
        self._tape.lines.append(f"stream {self.number} waits for stream {event.stream}")

    def synchronize(self) -> None:
        pass


class TapedEvent:
    """An event that knows where it was recorded last."""

    stream: int | None = None

    def __init__(self, **_: object) -> None:
        pass

    def record(self, stream: Any = None) -> None:
        self.stream = getattr(stream, "number", None)

    def synchronize(self) -> None:
        pass

    def seconds_until(self, later: object) -> float:
        return 1e-6


class TapedEnd(FakeEnd):
    """A tensor of a graph of cuDNN's, whose setters are told to the graph."""

    def __init__(self, uid: int, name: str, asked: list[tuple[str, Any]]) -> None:
        super().__init__(uid)
        self.name, self._asked = name, asked

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("set_"):
            return lambda value: self._asked.append((name, value)) or self
        return super().__getattribute__(name)


class TapedGraph(FakeGraph):
    """A graph of cuDNN's whose launches tell all that it was asked for."""

    _frontend: TapedFrontend

    def _end(self, name: str, given: Any) -> FakeEnd:
        uid = super()._end(name, given).get_uid()
        called = {key: each.name for key, each in given.items() if isinstance(each, TapedEnd)}
        self.asked[-1] = (name, {**given, **called})
        return TapedEnd(uid, str(given.get("name", name)), self.asked)

    def _execute_plan_at_index(
        self, pointers: Any, workspace: int, index: int, handle: int, *_: None
    ) -> None:
        tape = self._frontend.tape
        ends = {uid % 1000: tape.text(pointer) for uid, pointer in pointers.items()}
        asked = "; ".join(f"{name} {_sorted(given)}" for name, given in self.asked)
        where = f"workspace {tape.text(workspace)}" if workspace else "no workspace"
        tape.lines.append(f"plan {index} on {tape.handles[handle]} of {asked}: {ends}, {where}")


def _sorted(given: Any) -> str:
    if not isinstance(given, dict):
        return str(given)
    return " ".join(f"{key}={given[key]}" for key in sorted(given) if key != "handle")


class TapedFrontend(FakeFrontend):
    """cuDNN's frontend, of few plans, whose handles are numbers of their streams."""

    def __init__(self, tape: Tape) -> None:
        super().__init__()
        self.tape, self.plans = tape, 4

    def create_handle(self) -> int:
        return self.tape.handle("cuDNN")

    def destroy_handle(self, handle: int) -> None:
        pass

    def set_stream(self, handle: int, stream: int) -> None:
        self.tape.handles[handle] += f" {self.tape.handles[stream]}"

    def pygraph(self, *, handle: int, **given: Any) -> FakeGraph:
        self.numbers.append(len(self.numbers))
        return TapedGraph(self, handle, given)


@cache
def source_name(source: str) -> str:
    """The file that a source ends with, and what stands in front of it besides what is known."""
    for file in sorted(files(), key=len, reverse=True):
        text = _text(file)
        if source.endswith(text):
            known = "".join(map(_text, (*HEADERS, *FURTHER.get(file, ()))))
            rest = source.removesuffix(text)
            if rest.startswith(known):
                further = rest.removeprefix(known)
                return f"{file}{further and f' with {digest(further)}'}"
    return f"a source {digest(source)}"


@cache
def files() -> tuple[str, ...]:
    """The names of all files with kernels."""
    from importlib import resources

    root = resources.files("dnnstack.backends.cuda")
    found = [file.name for part in ("sources", "fused") for file in (root / part).iterdir()]
    return tuple(sorted(name for name in found if name.endswith(".cu")))


def options_text(options: Sequence[str]) -> str:
    """Those of the compiler that are not the same for all."""
    common = {"-std=c++17", "-arch=sm_80", "-DBFLOAT=0", *COMMON}
    return " ".join(each for each in options if each not in common)

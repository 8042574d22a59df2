"""The stand-in for CUDA whose launches are written down; see ``Tape``."""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
from dnnstack.backends.cuda.binding.bind import Arithmetic
from dnnstack.backends.cuda.binding.launches import Stream
from dnnstack.backends.cuda.dry_run import ALIGNMENT
from dnnstack.backends.cuda.executable import CudaExecutable
from dnnstack.backends.cuda.libraries import conv_graph, cudnn_library, kept, kernels, nccl
from dnnstack.backends.cuda.libraries.cublas import Cublas
from dnnstack.backends.cuda.libraries.cublas_lt import CublasLt
from dnnstack.backends.cuda.libraries.cudnn_library import Cudnn
from dnnstack.backends.cuda.libraries.layout import padded
from dnnstack.backends.cuda.libraries.shared_library import SharedLibrary
from dnnstack.backends.cuda.operations import peers
from dnnstack.backends.tuning import Tuning

from ...support.cuda_tape import (
    Tape,
    TapedEvent,
    TapedFrontend,
    TapedLibrary,
    TapedStream,
    options_text,
    source_name,
)
from ...support.described_bytes import digest
from .conftest import FakeArray, FakeKernel, FakeModule, _modules

CHUNK = 32 << 20


class Module(FakeModule):
    """Its kernels tell what they are launched with."""

    def __init__(self, tape, code):
        super().__init__(code)
        self._tape = tape

    def function(self, name):
        found = Kernel(self.source, self.options, name)
        found.tape, found.ptr = self._tape, self._tape.handle("")
        known = options_text(self.options)
        found.called = f"{source_name(self.source)} {name}{known and ' ' + known}"
        self._tape.kernels[found.ptr] = found
        return found


class Kernel(FakeKernel):
    def launch(self, stream, grid, block, arguments, shared=0):
        return lambda: self.tape.lines.append(self.text(stream, grid, block, arguments, shared))

    def text(self, stream, grid, block, arguments, shared):
        size = f"{'x'.join(map(str, grid))} of {'x'.join(map(str, block))}"
        where = f"{self.tape.handles[stream.ptr]}, {size}{f', {shared} bytes' if shared else ''}"
        return f"{self.called}, {where}: {self.tape.texts(arguments)}"


class Memory:
    """Zeros that begin where an allocation on the device may, small ones side by side."""

    def __init__(self):
        self._left = np.zeros(0, np.uint8)

    def take(self, shape, dtype):
        size = int(np.prod(shape, dtype=object)) * np.dtype(dtype).itemsize
        room = padded(max(size, 1), ALIGNMENT)
        if room > CHUNK // 8:
            return self._begun(room)[:size].view(dtype).reshape(shape).view(FakeArray)
        if room > self._left.size:
            self._left = self._begun(CHUNK)
        found, self._left = self._left[:size], self._left[room:]
        return found.view(dtype).reshape(shape).view(FakeArray)

    def _begun(self, size):
        raw = np.zeros(size + ALIGNMENT, np.uint8)
        begin = -raw.ctypes.data % ALIGNMENT
        return raw[begin : begin + size]


@pytest.fixture
def tape(bound, fake_cuda, monkeypatch):
    """The stand-in, taped; see ``Tape``."""
    tape = Tape()
    tape.kernels = {}

    memory = Memory()

    def made(kind, shape, dtype="float32"):
        array = memory.take(shape, dtype)
        tape.addresses.note(array.ctypes.data, array.nbytes, kind, array)
        return array

    def uploaded(values, dtype=None):
        values = np.asarray(values, dtype)
        array = made("", values.shape, values.dtype)
        array.set(values)
        return array

    monkeypatch.setattr(fake_cuda, "asarray", uploaded)
    monkeypatch.setattr(fake_cuda, "zeros_like", lambda like: made("zeros", like.shape, like.dtype))
    for kind in ("empty", "zeros", "ones"):
        monkeypatch.setattr(fake_cuda, kind, partial(made, kind))

    def overlapping(handle, stream, grid, block, arguments, shared):
        text = tape.kernels[handle].text(stream, grid, block, arguments, shared)
        return lambda: tape.lines.append(f"overlapping {text}")

    def loaded(library, path):
        library.dll = TapedLibrary(tape)

    def copied(target, source, size, *_):
        ends = f"{tape.text(target)}, {tape.text(source)}"
        tape.lines.append(f"memcpyAsync({ends}, {size})")

    monkeypatch.setattr(fake_cuda.runtime, "memcpyAsync", copied)
    fake_cuda.Module = partial(Module, tape)
    fake_cuda.Event = TapedEvent
    fake_cuda.Stream = lambda: TapedStream(tape, 99)
    monkeypatch.setattr(kernels, "overlapping", overlapping)
    # What compiles to nothing needs no file.
    monkeypatch.setattr(kept, "read", lambda *_: None)
    monkeypatch.setattr(kept, "write", lambda *_: None)
    monkeypatch.setattr(SharedLibrary, "__init__", loaded)
    monkeypatch.setattr(conv_graph.ConvGraph, "_verify", lambda *_: True)
    frontend = TapedFrontend(tape)
    streams = {}

    def stream(number):
        return streams.setdefault(number, TapedStream(tape, number))

    def seconds(launch, stream, repeats):
        text = "".join(tape.taken(launch))
        return (1000 + int(digest(text), 16) % 1000) * 1e-9

    device = cudnn_library.device()
    device.stream, device.numbered_stream = stream(0), stream
    device.capability, device.cuda_version = (9, 0), 13000
    for module in _modules():
        for name, instead in (
            ("frontend", lambda: frontend),
            ("cudnn_library", lambda: ""),
            ("library_path", lambda name: ""),
            ("available", lambda: True),
            ("captured_seconds", seconds),
            ("is_right", lambda *_: True),
            ("gives_equal_bits", lambda *_: True),
        ):
            if callable(getattr(module, name, None)):
                monkeypatch.setattr(module, name, instead)
    return tape


def bind(
    graphs, precision, choices, fusion=True, deterministic=True, streamed=False, lecture=False
):
    lt = CublasLt()
    numbered = cudnn_library.device().numbered_stream

    def made(number):
        cuda = numbered(number)
        return Stream(cuda, Cublas(precision == "tf32", cuda), Cudnn(cuda), lt)

    streams = [made(number) for number in range(int(choices["streams"]))]
    kind = replace(Arithmetic.of(precision, fusion, deterministic), lecture=lecture)
    tuning = Tuning("cuda", choices=choices)
    return CudaExecutable(graphs, tuning, streams, kind, capture=False, streamed=streamed)


class Comm:
    """A connection of NCCL's that is told what is sent."""

    def __init__(self, tape):
        self._tape = tape

    def __getattr__(self, name):
        return lambda *given: self._tape.lines.append(f"nccl {name}({self._tape.texts(given)})")


def connect(tape, monkeypatch, ranks):
    """Other ranks, of which two reach each other's memory."""
    comm = Comm(tape)
    library = SimpleNamespace(
        available=True,
        NCCL_FLOAT32=7,
        NCCL_INT8=0,
        NCCL_SUM=0,
        NcclError=RuntimeError,
        NcclCommunicator=lambda size, mark, rank: comm,
        groupStart=comm.groupStart,
        groupEnd=comm.groupEnd,
    )
    memory = SimpleNamespace(addresses=np.arange(ranks, dtype=np.uint64))
    monkeypatch.setitem(sys.modules, "cupy.cuda.nccl", library)
    monkeypatch.setattr(peers, "peers", lambda *_: memory if ranks == 2 else None)
    monkeypatch.setattr(nccl, "_connections", {})

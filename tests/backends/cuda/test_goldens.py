"""What whole trainings become on a GPU is what is stored: every launch with all that it is given.

The trainings are bound on the stand-in for a device, so no GPU is needed, and one changes nothing.
``DNNSTACK_GOLDENS=write pytest tests/backends`` stores a deliberate change, and shows it.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from dnnstack.backends.cuda.backend import CudaBackend
from dnnstack.backends.cuda.binding.bind import Arithmetic
from dnnstack.backends.cuda.binding.launches import Stream
from dnnstack.backends.cuda.dry_run import ALIGNMENT
from dnnstack.backends.cuda.executable import CudaExecutable
from dnnstack.backends.cuda.libraries import conv_graph, cudnn_library, kernels
from dnnstack.backends.cuda.libraries.cublas import Cublas
from dnnstack.backends.cuda.libraries.cublas_lt import CublasLt
from dnnstack.backends.cuda.libraries.cudnn_library import Cudnn
from dnnstack.backends.cuda.libraries.shared_library import SharedLibrary
from dnnstack.backends.tuning import Tuning
from dnnstack.configs import packaged_configs
from dnnstack.graph.rewrites import rewritten

from ...support.cuda_tape import (
    Tape,
    TapedEvent,
    TapedFrontend,
    TapedLibrary,
    TapedStream,
    options_text,
    source_name,
)
from ...support.described_cuda import described, drawn_choices
from ...support.goldens import compare
from ...support.whole_sections import DRAWN, drawn_sections, packaged_sections
from .conftest import FakeArray, FakeKernel, FakeModule, _modules

LAYOUTS = (
    {"layout": "nhwc", "pad": "8", "streams": "1"},
    {"layout": "nhwc", "pad": "32", "streams": "2"},
    {"layout": "nchw", "streams": "1"},
    {"layout": "nhwc", "pad": "4", "streams": "3"},
)
# With choices that are drawn: what else a search may take.
FURTHER = (
    {"overlap": "joins", "ending": "tail,batch"},
    {"overlap": "chains", "ending": "batch", "quiet": "tensor_conv,sgd_update"},
    {"overlap": "joins", "apart": "sgd_update,dense_tail,max_pool"},
    {"ending": "tail"},
)
PRECISIONS = ("tf32", "bf16", "fp32")


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


def aligned(shape, dtype):
    """Zeros that begin where an allocation on the device may."""
    size = int(np.prod(shape, dtype=object)) * np.dtype(dtype).itemsize
    raw = np.zeros(size + ALIGNMENT, np.uint8)
    begin = -raw.ctypes.data % ALIGNMENT
    return raw[begin : begin + size].view(dtype).reshape(shape).view(FakeArray)


@pytest.fixture
def tape(bound, fake_cuda, monkeypatch):
    """The stand-in, taped; see ``Tape``."""
    tape = Tape()
    tape.kernels = {}

    def made(kind, shape, dtype="float32"):
        array = aligned(shape, dtype)
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

    def overlapping(handle, stream, grid, block, arguments, shared=0):
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
    monkeypatch.setattr(SharedLibrary, "__init__", loaded)
    monkeypatch.setattr(conv_graph.ConvGraph, "_verify", lambda *_: True)
    frontend = TapedFrontend(tape)
    streams = {}

    def stream(number):
        return streams.setdefault(number, TapedStream(tape, number))

    device = cudnn_library.device()
    device.stream, device.numbered_stream = stream(0), stream
    device.capability, device.cuda_version = (9, 0), 13000
    for module in _modules():
        for name, instead in (
            ("frontend", lambda: frontend),
            ("cudnn_library", lambda: ""),
            ("library_path", lambda name: ""),
            ("available", lambda: True),
            ("captured_seconds", lambda launch, stream, repeats: launch() or 1e-6),
        ):
            if callable(getattr(module, name, None)):
                monkeypatch.setattr(module, name, instead)
    return tape


def bind(tape, graphs, precision, choices, fusion=True, deterministic=True):
    lt = CublasLt()
    numbered = cudnn_library.device().numbered_stream

    def made(number):
        cuda = numbered(number)
        return Stream(cuda, Cublas(precision == "tf32", cuda), Cudnn(cuda), lt)

    streams = [made(number) for number in range(int(choices["streams"]))]
    kind = Arithmetic.of(precision, fusion, deterministic)
    tuning = Tuning("cuda", choices=choices)
    return CudaExecutable(graphs, tuning, streams, kind, capture=False)


def of_backend(sections, fusion=True):
    rewrites = CudaBackend.rewrites if fusion else {}
    return {name: rewritten(graph, rewrites) for name, graph in sections.items()}


def told(tape, sections, number, fusion=True):
    """The text of sections with the defaults, and with choices that are drawn."""
    graphs = of_backend(sections, fusion)
    for turn in range(2):
        at = number + turn
        layout, precision = LAYOUTS[at % len(LAYOUTS)], PRECISIONS[at % len(PRECISIONS)]
        choices = dict(layout)
        if precision == "bf16" and layout["layout"] == "nchw":
            precision = "tf32"
        executable = bind(tape, graphs, precision, choices, fusion, bool(turn) or at % 5 > 0)
        if turn:
            choices = drawn_choices(executable, str(number), choices | FURTHER[at // 2 % 4])
            executable.close()
            yield f"= choices {' '.join(f'{key}={value}' for key, value in choices.items())}"
            executable = bind(tape, graphs, precision, choices, fusion)
        yield f"= {precision} {'fused' if fusion else 'plain'}"
        yield from described(tape, executable)
        executable.close()


@pytest.mark.parametrize("name", packaged_configs())
def test_configs_that_ship(tape, name):
    number = packaged_configs().index(name)
    compare(f"cuda/{name}", told(tape, packaged_sections(name), number))


@pytest.mark.parametrize("name", DRAWN)
def test_drawn_trainings(tape, name):
    number, fusion = int(name[-2:]), DRAWN[name]["config"]["run"]["fusion"]
    compare(f"cuda/{name}", told(tape, drawn_sections(name), number, fusion))

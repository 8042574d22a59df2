"""Threads with streams of their own: what they share, and what one of them does at a time."""

from __future__ import annotations

import gc
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
from dnnstack.backends import select
from dnnstack.backends.cuda import backend as backend_module
from dnnstack.backends.cuda.backend import CudaBackend
from dnnstack.backends.cuda.libraries import modules, runtime
from dnnstack.backends.cuda.libraries.modules import Module
from dnnstack.backends.cuda.libraries.runtime import Device, captured
from dnnstack.common.errors import BackendUnavailableError

THREADS = 4


class OneAtATime:
    """Counts how many threads are in the block, and lets each stay for a while."""

    def __init__(self):
        self._inside, self.most, self.entered = 0, 0, 0

    def __enter__(self):
        self._inside += 1
        self.entered += 1
        self.most = max(self.most, self._inside)
        threading.Event().wait(0.02)

    def __exit__(self, *_):
        self._inside -= 1


def at_once(work):
    """What the work gives in each of several threads."""
    begin = threading.Barrier(THREADS)

    def one(_):
        begin.wait(60)
        return work()

    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(one, range(THREADS)))


@pytest.fixture
def device(fake_cuda, monkeypatch):
    fake_cuda.runtime.getDeviceCount = lambda: 1
    fake_cuda.runtime.runtimeGetVersion = lambda: 13000
    properties = {"name": b"a stand-in", "major": 9, "minor": 0, "totalGlobalMem": 1 << 30}
    properties |= {"multiProcessorCount": 132, "sharedMemPerMultiprocessor": 233472}
    properties |= {"sharedMemPerBlockOptin": 232448}
    fake_cuda.runtime.getDeviceProperties = lambda number: properties
    made = Device()
    for module in (runtime, backend_module, modules):
        monkeypatch.setattr(module, "device", lambda: made)
    return made


def test_each_thread_has_its_own_inside_the_block_alone(device, fake_cuda, monkeypatch):
    used = []

    monkeypatch.setattr(fake_cuda, "use_device", lambda: used.append(threading.get_ident()))

    def streams():
        before = device.stream
        with select.own_streams("cuda"):
            found = [device.stream, device.numbered_stream(1), device.numbered_stream(0)]
            assert device.stream is found[0] is found[2]
        assert device.stream is before
        return found[:2]

    common = [device.stream, device.numbered_stream(1)]
    found = [stream for pair in at_once(streams) for stream in pair] + common
    assert len({id(stream) for stream in found}) == 2 * THREADS + 2
    assert [device.stream, device.numbered_stream(1)] == common
    # Each has the device's context, which calls of the driver need.
    assert len(set(used)) == len(used) == THREADS
    with select.own_streams("onednn"):
        assert device.stream is common[0]


def test_handles_of_such_a_thread_are_not_destroyed_beside_another_s_capture(device):
    device.hold("common")
    with device.own_streams():
        device.hold("own")
    assert device._held == ["own"]


def test_one_thread_captures_at_a_time(device, fake_cuda):
    inside = OneAtATime()

    class Capturing(fake_cuda.Stream):
        def begin_capture(self):
            inside.__enter__()

        def end_capture(self):
            inside.__exit__()
            return "graph"

    assert at_once(lambda: captured([], Capturing())) == ["graph"] * THREADS
    assert (inside.entered, inside.most) == (THREADS, 1)


def test_no_garbage_is_collected_inside_a_capture(fake_cuda):
    """What it frees may wait for the device, which breaks the capture."""
    found, stream = [], SimpleNamespace(begin_capture=lambda: None, end_capture=lambda: None)
    assert gc.isenabled()
    captured([lambda: found.append(gc.isenabled())], stream)
    with pytest.raises(ZeroDivisionError):
        captured([lambda: 1 / 0], stream)
    assert (found, gc.isenabled()) == ([False], True)
    gc.disable()
    try:
        captured([], stream)
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_one_thread_compiles_at_a_time(device, monkeypatch):
    inside = OneAtATime()

    def compiled(*given):
        with inside:
            return given[1]

    monkeypatch.setattr(backend_module, "compiled", compiled)
    made = at_once(lambda: CudaBackend().compile({"train": "a graph"}))
    assert made == [{"train": "a graph"}] * THREADS
    assert (inside.entered, inside.most) == (THREADS, 1)


def test_handles_are_made_while_no_other_thread_captures(device, monkeypatch):
    inside = OneAtATime()

    def made(*_):
        with inside:
            return SimpleNamespace()

    for name in ("Cudnn", "Cublas", "cublas_lt"):
        monkeypatch.setattr(backend_module, name, made)
    monkeypatch.setattr(backend_module, "Stream", lambda *given, **named: SimpleNamespace())

    def opened():
        with device.own_streams():
            return CudaBackend()._stream(0, True)

    assert len({id(stream) for stream in at_once(opened)}) == THREADS
    assert (inside.entered, inside.most) == (3 * THREADS, 1)
    assert len(device._held) == THREADS


def test_a_module_is_loaded_once(device, fake_cuda, monkeypatch):
    inside = OneAtATime()

    class Loading:
        def __init__(self, code):
            with inside:
                pass

        def function(self, name):
            return SimpleNamespace(ptr=7, name=name)

    fake_cuda.Module = Loading
    monkeypatch.setattr(Module, "_code", lambda module: b"")
    module = Module("a.cu", "", ())
    functions = at_once(lambda: module.function("f"))
    assert len({id(function) for function in functions}) == 1
    assert inside.entered == 1


@pytest.mark.parametrize(
    ("capability", "version", "fits"),
    [((7, 0), 13020, False), ((7, 5), 13020, True), ((7, 0), 12090, True)],
)
def test_a_gpu_too_old_for_cuda_s_libraries_says_which_take_it(
    device, fake_cuda, capability, version, fits
):
    properties = fake_cuda.runtime.getDeviceProperties(0)
    properties |= dict(zip(("major", "minor"), capability, strict=True))
    fake_cuda.runtime.runtimeGetVersion = lambda: version
    if fits:
        assert Device().capability == capability
    else:
        with pytest.raises(BackendUnavailableError, match=r"needs 7\.5.*dnnstack\[cuda12\]"):
            Device()


def test_a_gpu_that_cannot_be_used_is_said_to_be(device, fake_cuda, monkeypatch):
    """Another program has it to itself, or its memory."""

    def refuse():
        raise fake_cuda.runtime.CUDARuntimeError("cudaErrorDevicesUnavailable")

    monkeypatch.setattr(fake_cuda, "Stream", refuse)
    with pytest.raises(BackendUnavailableError, match=r"GPU cannot be used.*DevicesUnavailable"):
        Device()

"""A stand-in for CuPy in host memory, which does at once what a device does later."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace

import numpy as np
import pytest
from dnnstack.layers.backends.cuda import runtime


class FakeError(RuntimeError):
    """As CuPy's CUDARuntimeError."""


class FakeEvent:
    def __init__(self, **_):
        self.recorded = 0

    def record(self, stream=None):
        self.recorded += 1

    def synchronize(self):
        pass


class FakeStream:
    ptr = 0

    def __init__(self, **_):
        self.waited = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None

    def wait_event(self, event):
        self.waited.append(event)

    def synchronize(self):
        pass


class FakeArray(np.ndarray):
    """An array with the parts of CuPy's that are used here."""

    def set(self, array, stream=None):
        self[...] = array

    def get(self):
        return np.array(self)

    @property
    def data(self):
        array = self

        def copy_from_device_async(source, size, stream):
            assert size == array.nbytes
            ctypes.memmove(array.ctypes.data, source.ptr, size)

        return SimpleNamespace(ptr=array.ctypes.data, copy_from_device_async=copy_from_device_async)


def _array(array):
    return np.ascontiguousarray(array).view(FakeArray)


class FakeDevice:
    def __init__(self, number=0):
        self.number = number

    def use(self):
        pass


@pytest.fixture
def fake_cupy(monkeypatch):
    """Code that asks for CuPy or the device gets the stand-in."""
    fake = SimpleNamespace(
        empty=lambda shape, dtype="float32": _array(np.full(shape, 0, dtype)),
        zeros=lambda shape, dtype="float32": _array(np.zeros(shape, dtype)),
        cuda=SimpleNamespace(
            Event=FakeEvent,
            Stream=FakeStream,
            Device=FakeDevice,
            alloc_pinned_memory=bytearray,
            runtime=SimpleNamespace(
                CUDARuntimeError=FakeError, memGetInfo=lambda: (1 << 30, 2 << 30)
            ),
        ),
    )
    device = SimpleNamespace(stream=FakeStream(), name="a stand-in")
    for cached in (runtime.cupy, runtime.device):
        cached.cache_clear()
    for module in _modules():
        if hasattr(module, "cupy"):
            monkeypatch.setattr(module, "cupy", lambda: fake)
        if hasattr(module, "device"):
            monkeypatch.setattr(module, "device", lambda: device)
    return fake


def _modules():
    import sys

    prefix = runtime.__package__ + "."
    return [module for name, module in list(sys.modules.items()) if name.startswith(prefix)]

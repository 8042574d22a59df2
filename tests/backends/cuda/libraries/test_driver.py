"""Functions of CUDA's driver on a stand-in, and the arguments of kernels."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace

import numpy as np
import pytest
from dnnstack.backends.cuda.libraries import driver
from dnnstack.backends.cuda.libraries.arguments import Arguments


class Driver:
    """Answers to every function with ``status``; ``calls``: what was asked for."""

    def __init__(self, status=0):
        self.status, self.calls = status, []

    def __getattr__(self, name):
        def function(*given):
            self.calls.append((name, given))
            return self.status

        return function

    def cuModuleLoadData(self, module, code):
        module._obj.value = 11 + len(code)
        return self.status

    def cuModuleGetFunction(self, function, module, name):
        function._obj.value = module + len(name)
        return self.status

    def cuGetErrorName(self, status, text):
        text._obj.value = b"CUDA_ERROR_INVALID_IMAGE" if status == 200 else None
        return 0

    def cuGetErrorString(self, status, text):
        text._obj.value = b"device kernel image is invalid" if status == 200 else None
        return 0


@pytest.fixture
def answering(monkeypatch):
    def use(status=0):
        found = Driver(status)
        monkeypatch.setattr(driver, "_driver", lambda: found)
        return found

    return use


def test_a_module_and_its_kernel(answering):
    found = answering()
    module = driver.loaded(b"code")
    assert (module, driver.function(module, "kernel")) == (15, 21)
    driver.allow_shared(21, 70_000)
    driver.unload(module)
    assert found.calls == [("cuFuncSetAttribute", (21, 8, 70_000)), ("cuModuleUnload", (15,))]


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (200, "CUDA_ERROR_INVALID_IMAGE: device kernel image is invalid"),
        (12345, "CUresult 12345: CUresult 12345"),
    ],
)
def test_an_error_is_in_the_driver_s_words(answering, status, text):
    answering(status)
    with pytest.raises(driver.DriverError) as caught:
        driver.loaded(b"no code")
    assert str(caught.value) == text


def test_arguments_are_values_that_live_as_long_as_their_addresses():
    array = SimpleNamespace(data=SimpleNamespace(ptr=99))
    held = Arguments((array, 7, 0, np.int32(-3), np.int64(1 << 40), np.float32(0.5)))
    kinds = (*[ctypes.c_void_p] * 3, ctypes.c_int32, ctypes.c_int64, ctypes.c_float)
    found = [kind.from_address(at).value for kind, at in zip(kinds, held.pointers, strict=True)]
    assert found == [99, 7, None, -3, 1 << 40, 0.5]
    assert len(held) == 6

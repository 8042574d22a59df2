from __future__ import annotations

import gc
import os
import sys

import pytest
from dnnstack.backends.onednn import library as module
from dnnstack.backends.onednn.backend import OneDnnBackend
from dnnstack.backends.onednn.memory import Descriptor, Memory
from dnnstack.backends.onednn.primitive import PrimitiveDesc
from dnnstack.common import machine
from dnnstack.common.errors import BackendUnavailableError, DnnlError
from dnnstack.common.native import Owned

from ...support.ran import ran


def test_missing_library_says_what_to_install(monkeypatch):
    monkeypatch.setattr(module, "_candidates", lambda: iter(["/nowhere/libdnnl.so.3"]))
    with pytest.raises(BackendUnavailableError, match="pip install onednn-cpu-gomp"):
        module.Library()


def test_missing_libgomp_says_what_to_install(monkeypatch):
    def refuse(path):
        raise OSError("libgomp.so.1: cannot open shared object file: No such file or directory")

    monkeypatch.setattr(module.C, "CDLL", refuse)
    with pytest.raises(BackendUnavailableError, match="apt install libgomp1"):
        module.Library()


@pytest.mark.parametrize(
    ("chosen", "count"),
    [({}, "10000"), ({"GOMP_SPINCOUNT": "77"}, "77"), ({"OMP_WAIT_POLICY": "PASSIVE"}, "0")],
)
def test_threads_do_not_wait_for_long(chosen, count):
    """libgomp itself says what it was told; no other library of the process is told the same."""
    code = (
        "import os\n"
        "from dnnstack.backends.onednn.library import library\n"
        "before = dict(os.environ)\n"
        "library()\n"
        "assert dict(os.environ) == before\n"
    )
    kept = {k: v for k, v in os.environ.items() if k not in module.SPIN_SETTINGS}
    done = ran(
        [sys.executable, "-c", code],
        env={**kept, "OMP_DISPLAY_ENV": "verbose", **chosen},
        check=True,
    )
    assert f"GOMP_SPINCOUNT = '{count}'" in done.stderr


def test_refused_call_carries_its_arguments(onednn):
    line, plane = Descriptor.of((8,)), Descriptor.of((2, 3, 4, 4), "nhwc")
    with pytest.raises(DnnlError) as caught:
        PrimitiveDesc("binary", 131056, line, plane, line, None, shown={"src": line})
    assert caught.value.function == "dnnl_binary_primitive_desc_create"
    assert caught.value.status == "invalid_arguments"
    assert caught.value.arguments == {"src": line}


@pytest.mark.parametrize(
    ("shape", "layout", "text"),
    [
        ((4, 1, 5, 5), "nhwc", "f32 nhwc 4x1x5x5"),
        ((4, 1, 5, 5), "nchw", "f32 nchw 4x1x5x5"),
        ((4, 20, 5, 5), "nChw16c", "f32 nChw16c 4x20x5x5"),
        ((7, 3), "plain", "f32 nc 7x3"),
    ],
)
def test_descriptors_name_their_layout(onednn, shape, layout, text):
    assert str(Descriptor.of(shape, layout)) == text


def test_memory_is_aligned_and_refuses_a_small_buffer(onednn):
    memory = Memory(Descriptor.of((3, 5)))
    assert memory.buffer.ctypes.data % 64 == 0
    with pytest.raises(ValueError, match="too small"):
        Memory(Descriptor.of((3, 6)), memory.buffer)


def test_owner_frees_once():
    freed: list[int] = []
    owner = Owned(7, freed.append)
    owner.close()
    owner.close()
    del owner
    gc.collect()
    assert freed == [7]


def test_forgotten_owner_is_freed():
    freed: list[int] = []
    owner = Owned(7, freed.append)
    del owner
    gc.collect()
    assert freed == [7]


def test_bits_depend_on_the_processor_and_its_caches():
    versions = OneDnnBackend(1).versions()
    assert versions["processor"] == machine.processor()
    assert versions["caches"] == f"{machine.caches()} KiB"

"""Launches that overlap with the one in front: what is asked for, and what may never ask."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from dnnstack.backends.cuda.libraries import kernels, overlap
from dnnstack.common.errors import LibraryError


def pointer(address):
    return SimpleNamespace(data=SimpleNamespace(ptr=address))


def test_the_driver_is_told_the_launch_and_that_it_may_overlap(monkeypatch):
    seen = {}

    def launch(config, function, pointers, extra):
        told = config._obj
        attribute = told.attributes[0]
        seen.update(
            grid=tuple(told.grid),
            block=tuple(told.block),
            rest=(told.shared, told.stream, told.count, attribute.id, attribute.value.allowed),
            function=function,
            pointers=list(pointers),
        )
        kinds = (ctypes.c_void_p, ctypes.c_int32, ctypes.c_int64, ctypes.c_float, ctypes.c_double)
        for name, kind, at in zip("abcde", kinds, pointers, strict=False):
            seen[name] = kind.from_address(at).value
        seen["none"] = ctypes.c_void_p.from_address(pointers[5]).value
        return 0

    monkeypatch.setattr(overlap, "_driver", lambda: launch)
    numbers = (np.int32(-3), np.int64(1 << 40), np.float32(0.5), np.float64(0.1))
    overlap.overlapping(
        77, SimpleNamespace(ptr=5), (8, 2), (256,), (pointer(99), *numbers, 0), 64
    )()
    assert (seen["grid"], seen["block"]) == ((8, 2, 1), (256, 1, 1))
    # 6: programmatic stream serialization.
    assert seen["rest"] == (64, 5, 1, 6, 1)
    assert seen["function"] == 77
    assert [seen[name] for name in "abcde"] == [99, -3, 1 << 40, 0.5, 0.1]
    assert seen["none"] is None


def test_the_structures_are_as_the_driver_lays_them_out():
    """CUlaunchConfig has 56 bytes, an attribute 72 with its value at 8 (cuda.h)."""
    assert ctypes.sizeof(overlap._Config) == 56
    assert (overlap._Config.stream.offset, overlap._Config.attributes.offset) == (32, 40)
    assert (ctypes.sizeof(overlap._Attribute), overlap._Attribute.value.offset) == (72, 8)


def test_a_refused_launch_says_which(monkeypatch):
    monkeypatch.setattr(overlap, "_driver", lambda: lambda *_: 801)
    with pytest.raises(LibraryError, match=r"cuLaunchKernelEx\(grid=\(8,\).*CUresult 801"):
        overlap.overlapping(77, SimpleNamespace(ptr=5), (8,), (256,), (), 0)()


@pytest.mark.parametrize(
    ("capability", "driver", "expected"),
    [((9, 0), "a driver", True), ((8, 9), "a driver", False), ((10, 0), None, False)],
)
def test_what_it_needs(capability, driver, expected, monkeypatch):
    monkeypatch.setattr(overlap, "device", lambda: SimpleNamespace(capability=capability))
    monkeypatch.setattr(overlap, "_driver", lambda: driver)
    assert overlap.available() is expected


# What the host writes when a step is bound, and no kernel does.
TABLES = {"where", "segments", "rules"}
WAITS = re.compile(r"\b(enter|wait)\(\);")
INDEXED = re.compile(r"(\w+)\s*\[|\*\s*(?:\w+\.)?(\w+)\s*[;,)]")


def early_reads(code, body):
    """What is read before the wait, by a kernel's body or by the functions that it leaves it to."""
    waits = WAITS.search(body)
    if waits:
        return {one or other for one, other in INDEXED.findall(body[: waits.start()])}
    found = set()
    for name in re.findall(r"\b([a-z]\w+)(?:<\w+>)?\(", body):
        for function in re.finditer(rf"INLINE void {name}\([^{{;]*\{{(.*?)^}}", code, re.S | re.M):
            assert WAITS.search(function[1]), name
            found |= early_reads(code, function[1]) | {"waits"}
    assert found, f"nothing waits: {body}"
    return found - {"waits"}


def test_every_kernel_waits_for_the_one_in_front_before_anything_else():
    """One that did not would read what is not written yet wherever it overlaps."""
    folder = Path(overlap.__file__).parents[1] / "sources"
    found = 0
    for file in sorted(folder.glob("*.cu")):
        code, whole = file.read_text("utf-8"), kernels.source_of(file.name)
        for kernel in re.finditer(r"KERNEL[^{;]*\{(.*?)^}", code, re.S | re.M):
            found += 1
            early = early_reads(whole, kernel[1]) - {"part"}
            assert early <= TABLES, f"{file.name}: {early} in {kernel[0][:120]}"
    assert found > 60


def test_no_kernel_says_that_what_it_reads_was_written_before_it_began():
    """ld.global.nc, which that allows, need not see what the kernel in front wrote meanwhile."""
    folder = Path(overlap.__file__).parents[1] / "sources"
    for file in sorted(folder.glob("*.cu*")):
        code = file.read_text("utf-8")
        said = re.search(r"const \w+\*+ __restrict__|__ldg|ld\.global\.nc;", code)
        assert said is None, f"{file.name}: {said}"


def test_a_table_of_another_gpu_is_without_effect(bound, sections):
    executable, _ = bound(sections("lenet"), choices={"streams": "2", "overlap": "joins"})
    steps = [s for binder in executable.binders() for s in binder.steps]
    assert steps
    assert not any(s.behind for s in steps)

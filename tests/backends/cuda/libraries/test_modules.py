"""Codes of kernels in the cache folder: found again, verified, and made by compilers beside."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from concurrent.futures import Future
from dataclasses import replace
from types import SimpleNamespace
from typing import ClassVar

import pytest
from dnnstack.backends.cuda.binding.choices import Tiled
from dnnstack.backends.cuda.libraries import compilers, driver, kernels, modules, nvrtc
from dnnstack.backends.cuda.libraries.compilers import Compilers
from dnnstack.backends.cuda.libraries.driver import OUT_OF_MEMORY
from dnnstack.backends.cuda.libraries.modules import Module, Toolchain
from dnnstack.common.errors import LibraryError

OPTIONS = ("-std=c++17", "-DBFLOAT=0")


class Loaded:
    """As a Module of streams.py: ``loads`` are the codes that all of them were given."""

    loads: ClassVar[list[bytes]] = []

    def __init__(self, code):
        self.loads.append(code)

    def function(self, name):
        return SimpleNamespace(ptr=hash(name))


class Compiling(Toolchain):
    """One that is asked for codes, and answers when it is told to."""

    def submit(self, source, options):
        done = Future()
        asked.append((source, options, done))
        if not self.mark.startswith("slow"):
            done.set_running_or_notify_cancel()
            answered(done)
        return done


asked: list[tuple[str, tuple[str, ...], Future[bytes]]] = []


def answered(done):
    done.set_result(f"code {len(asked)}".encode())


@pytest.fixture
def chain(fake_cuda, monkeypatch):
    """Sets which toolchain there is."""
    fake_cuda.Module = Loaded
    fake_cuda.driver.allow_shared = lambda *given: allowed.append(given)
    allowed.clear()
    asked.clear()
    Loaded.loads = []

    def use(found):
        monkeypatch.setattr(modules, "toolchain", lambda: found)

    use(CHAIN)
    return use


allowed: list[tuple[int, int]] = []
CHAIN = Compiling("libnvrtc.so.13", "NVRTC 13.0, 7 bytes", "-arch=sm_90")


def module(source="source", options=OPTIONS):
    return Module("a.cu", source, options)


def stored(cache):
    return sorted((cache / "kernels").iterdir())


def test_the_next_process_needs_no_compiler(chain, cache):
    for _ in range(2):
        found = module()
        found.begin()
        found.function("f")
    assert [(source, options) for source, options, _ in asked] == [
        ("source", (*OPTIONS, *modules.COMMON, "-arch=sm_90"))
    ]
    assert Loaded.loads == [b"code 1"] * 2
    assert module().begin() is None
    assert len(stored(cache)) == 1


def test_instructions_of_one_kind_of_gpu_need_its_own_architecture(chain):
    Module("a.cu", "source", OPTIONS, own=True).function("f")
    assert asked[0][1] == (*OPTIONS, *modules.COMMON, "-arch=sm_90a")


@pytest.mark.parametrize(
    "other",
    [
        (CHAIN, module("another source")),
        (CHAIN, module(options=("-std=c++17", "-DBFLOAT=1"))),
        (replace(CHAIN, mark="NVRTC 13.0, 8 bytes"), module()),
        (replace(CHAIN, architecture="-arch=sm_80"), module()),
        (CHAIN, Module("a.cu", "source", OPTIONS, own=True)),
    ],
)
def test_whatever_differs_has_a_code_of_its_own(chain, cache, other):
    module().function("f")
    found, different = other
    chain(found)
    different.function("f")
    assert Loaded.loads == [b"code 1", b"code 2"]
    assert len(stored(cache)) == 2


@pytest.mark.parametrize("kept", [0, 1, 31, 32, -1])
def test_a_torn_file_is_made_again(chain, cache, kept):
    module().function("f")
    (path,) = stored(cache)
    path.write_bytes(path.read_bytes()[:kept])
    for _ in range(2):
        module().function("f")
    assert Loaded.loads == [b"code 1", b"code 2", b"code 2"]
    assert stored(cache) == [path]


def test_a_cache_that_cannot_be_written(chain, cache):
    (cache / "kernels").write_text("a file where a folder should be")
    for _ in range(2):
        module().function("f")
    assert Loaded.loads == [b"code 1", b"code 2"]


def test_many_are_asked_for_before_the_first_is_needed(chain):
    chain(replace(CHAIN, mark="slow"))
    every = [module(f"source {at}") for at in range(3)]
    coming = [each.begin() for each in every]
    assert [each.begin() for each in every] == coming
    assert len(asked) == 3
    for _, _, done in asked:
        answered(done)
    for each in every:
        each.function("f")
        assert each.begin() is None
    assert len(Loaded.loads) == len(asked) == 3


def test_what_was_given_up_is_asked_for_again(chain):
    chain(replace(CHAIN, mark="slow"))
    found = module()
    assert found.begin().cancel()
    coming = found.begin()
    answered(coming)
    found.function("f")
    assert (len(asked), Loaded.loads) == (2, [b"code 2"])


def test_an_error_of_the_compiler_names_the_file(chain, cache):
    chain(replace(CHAIN, mark="slow"))
    found = module()
    found.begin().set_exception(nvrtc.CompileError("x.cu(1): no such thing"))
    with pytest.raises(LibraryError, match=r"nvrtcCompileProgram.*a\.cu.*no such thing"):
        found.function("f")
    assert not (cache / "kernels").exists()


def test_shared_memory_is_never_taken_back(chain):
    """Of one kernel there is one limit, whoever launches it."""
    found = module()
    for shared in (0, 70_000, 60_000, 70_000, 80_000):
        found.function("f", shared)
    assert [shared for _, shared in allowed] == [70_000, 80_000]


def test_a_kernel_is_allowed_what_is_little_too(chain, monkeypatch):
    """With what it has of its own that may be more than no kernel needs to ask for."""
    monkeypatch.setattr(kernels, "_module", lambda *_: module())
    kernels.Kernel("a.cu", "f", "float32")._function(45_056)
    assert [shared for _, shared in allowed] == [45_056]


def test_a_search_goes_on_where_a_kernel_cannot_be_compiled(chain, bound, sections, monkeypatch):
    """``build`` says no; nothing else does."""
    executable, _ = bound(sections("lenet"))
    (binder, *_) = executable.binders()
    made = next(
        make() for makers in binder.variants.values() for mark, make in makers if mark == Tiled.mark
    )
    assert made.build(0)
    kernels._module.cache_clear()
    chain(replace(CHAIN, mark="slow"))
    coming = [begin() for begin in made.preparations()]
    for each in coming:
        each.set_exception(nvrtc.CompileError("no"))
    assert not any(map(made.build, range(made.plans())))


# ---------------------------------------------------------------- processes

# As nvrtc.py run as a script, with a compiler that needs no library.
SCRIPT = """
import os, runpy, sys
own = runpy.run_path({path!r})
def compiled(library, source, options):
    if source == "end":
        os._exit(3)
    if source == "bad":
        raise own["CompileError"]("line 1: bad")
    return f"{{library}} {{source}} {{','.join(options)}} {{os.getpid()}}".encode()
own["serve"].__globals__["compiled"] = compiled
own["serve"](sys.argv[1], sys.stdin.buffer, sys.stdout.buffer)
"""


@pytest.fixture
def script(tmp_path, monkeypatch):
    path = tmp_path / "script.py"
    path.write_text(SCRIPT.format(path=nvrtc.__file__))
    monkeypatch.setattr(compilers.nvrtc, "__file__", str(path))
    monkeypatch.setattr(compilers.nvrtc, "compiled", lambda *_: b"by this process")


def test_processes_compile_beside_each_other(script):
    pool = Compilers(3)
    coming = [pool.submit("lib", f"source {at}", ["-a", "-b"]) for at in range(30)]
    found = [each.result(60).decode().rsplit(" ", 1) for each in coming]
    assert [text for text, _ in found] == [f"lib source {at} -a,-b" for at in range(30)]
    assert os.getpid() not in {int(process) for _, process in found}
    assert 1 <= len({process for _, process in found}) <= 3
    # They end, and others begin when there is more to do.
    again = pool.submit("lib", "one more", [])
    assert again.result(60).startswith(b"lib one more")


def test_a_message_of_a_process_is_an_error(script):
    pool = Compilers(2)
    coming = pool.submit("lib", "bad", [])
    assert "line 1: bad" in str(coming.exception(60))
    assert isinstance(coming.exception(), nvrtc.CompileError)


def test_a_process_that_ends_leaves_the_work_to_this_one(script):
    pool = Compilers(2)
    for source in ("end", "end"):
        assert pool.submit("lib", source, []).result(60) == b"by this process"


def test_without_a_second_core_or_python_this_process_compiles(script, monkeypatch):
    assert Compilers(1).submit("lib", "source", []).result(60) == b"by this process"
    monkeypatch.setattr(compilers.sys, "executable", "")
    assert Compilers(2).submit("lib", "source", []).result(60) == b"by this process"


def test_the_script_needs_nothing_but_the_standard_library():
    """And says that it has no such library."""
    command = [sys.executable, "-I", "-S", nvrtc.__file__, "/no/such/library"]
    job = io.BytesIO()
    nvrtc.ask(job, "source", ["-a"])
    done = subprocess.run(command, input=job.getvalue(), capture_output=True, check=True)
    with pytest.raises(nvrtc.CompileError, match="/no/such/library"):
        nvrtc.answer(io.BytesIO(done.stdout))
    assert done.stderr == b""


@pytest.mark.parametrize("times", [1, 2])
def test_code_that_finds_no_memory_is_loaded_once_what_is_spare_is_free(
    chain, fake_cuda, monkeypatch, times
):
    released, failing = [], [True] * times

    def load(code):
        if failing:
            failing.pop()
            raise driver.DriverError("CUDA_ERROR_OUT_OF_MEMORY: out of memory", OUT_OF_MEMORY)
        return Loaded(code)

    monkeypatch.setattr(fake_cuda, "Module", load)
    monkeypatch.setattr(fake_cuda, "pool", SimpleNamespace(release=lambda: released.append(1)))
    found = module()
    if times == 1:
        assert found.function("add") is found.function("add")
    else:
        with pytest.raises(LibraryError, match=r"cudaMalloc\(file=.*OUT_OF_MEMORY"):
            found.function("add")
    assert released == [1]


def test_code_that_the_driver_refuses_names_its_file(chain, fake_cuda, monkeypatch):
    def load(code):
        raise driver.DriverError("CUDA_ERROR_INVALID_PTX: a newer one", 218, "cuModuleLoadData")

    monkeypatch.setattr(fake_cuda, "Module", load)
    with pytest.raises(LibraryError, match=r"cuModuleLoadData\(file=.*INVALID_PTX"):
        module().function("add")

"""What a failing device becomes, on a stand-in: an error that names the call, and advice."""

from __future__ import annotations

from dataclasses import replace

import pytest
from dnnstack.common.errors import CublasError, LibraryError
from dnnstack.layers.backends.cuda.bind import Binder


@pytest.fixture
def executable(bound, sections):
    made, _ = bound(sections("lenet"))
    yield made
    made.close()


def break_call(executable, function, error):
    """Let the first call of this function fail; gives its step."""
    steps = executable._sections["train"].steps
    at = next(i for i, s in enumerate(steps) if s.call and s.call.function == function)

    def fail():
        raise error

    steps[at] = replace(steps[at], launch=fail)
    return steps[at]


def test_an_error_of_the_device_names_the_call_its_shapes_and_what_to_do(executable, fake_cupy):
    error = fake_cupy.cuda.runtime.CUDARuntimeError("cudaErrorIllegalAddress")
    step = break_call(executable, "cudnnBackendExecute", error)
    with pytest.raises(LibraryError) as caught:
        executable.run("train")
    assert caught.value.library == "cuDNN"
    assert caught.value.function == "cudnnBackendExecute"
    assert caught.value.arguments["op"] == step.call.op.label()
    for key, value in step.call.arguments.items():
        assert caught.value.arguments[key] == value
    assert "cudaErrorIllegalAddress" in str(caught.value)
    assert "resume, with a smaller batch" in str(caught.value)


def test_an_error_that_shows_later_belongs_to_the_call_that_it_follows(
    executable, fake_cupy, monkeypatch
):
    """The device answers late: without a captured graph every call is waited for."""
    step = next(s for s in executable._sections["train"].steps if s.call)
    begun = []
    steps = executable._sections["train"].steps
    steps[steps.index(step)] = replace(step, launch=lambda: begun.append(1))

    def synchronize():
        if begun:
            raise fake_cupy.cuda.runtime.CUDARuntimeError("cudaErrorIllegalAddress")

    monkeypatch.setattr(executable._lanes[0].stream, "synchronize", synchronize)
    with pytest.raises(LibraryError) as caught:
        executable.run("train")
    assert caught.value.function == step.call.function


def test_a_library_s_own_error_says_which_operation_called(executable):
    step = break_call(
        executable, "cublasSgemm", CublasError("cuBLAS", "cublasSgemm_v2", "failed", {"m": 3})
    )
    with pytest.raises(CublasError) as caught:
        executable.run("train")
    assert caught.value.arguments == {"m": 3, "op": step.call.op.label()}
    assert step.call.op.label() in str(caught.value)


def test_in_a_captured_step_the_section_is_named_and_how_to_learn_more(
    bound, sections, fake_cupy, monkeypatch
):
    made, _ = bound(sections("lenet"), capture=True)

    class Captured:
        def launch(self, stream):
            raise fake_cupy.cuda.runtime.CUDARuntimeError("cudaErrorLaunchFailure")

    monkeypatch.setattr(made, "_record", lambda section: Captured())
    with pytest.raises(LibraryError) as caught:
        made.run("train", 3)
    assert caught.value.arguments == {"section": "train", "batch_size": 64}
    assert "--no-graph names the call" in str(caught.value)


def test_what_broke_a_capture_is_not_hidden_by_the_broken_capture(
    bound, sections, fake_cupy, monkeypatch
):
    made, _ = bound(sections("lenet"), capture=True)
    error = fake_cupy.cuda.runtime.CUDARuntimeError
    stream = made._lanes[0].stream

    def end():
        raise error("cudaErrorStreamCaptureInvalidated")

    from dnnstack.layers.backends.cuda import executable as module

    here = module.device().stream
    for each in (stream, here):
        monkeypatch.setattr(each, "begin_capture", lambda: None, raising=False)
        monkeypatch.setattr(each, "end_capture", end, raising=False)
    break_call(made, "cublasSgemm", error("cudaErrorStreamCaptureUnsupported"))
    with pytest.raises(LibraryError, match=r"cublasSgemm\(op=.*Unsupported"):
        made.run("train")


def test_running_out_of_memory_while_binding_says_for_what(bound, sections, monkeypatch):
    def full(self):
        raise MemoryError("Out of memory allocating 12 bytes")

    monkeypatch.setattr(Binder, "bind", full)
    with pytest.raises(LibraryError) as caught:
        bound(sections("lenet"))
    assert caught.value.function == "cudaMalloc"
    assert caught.value.arguments == {"section": "train", "batch_size": 64}
    assert "smaller batch" in str(caught.value)


def test_closing_after_an_error_hides_nothing(bound, sections, fake_cupy, monkeypatch):
    from dnnstack.layers.backends.cuda import executable as module

    made, _ = bound(sections("lenet"))

    def broken():
        raise fake_cupy.cuda.runtime.CUDARuntimeError("cudaErrorIllegalAddress")

    monkeypatch.setattr(module, "synchronize", broken)
    made.close()

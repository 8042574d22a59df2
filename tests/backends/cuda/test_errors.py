"""What a failing device becomes, on a stand-in: an error that names the call, and advice."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from dnnstack.backends.base import Options
from dnnstack.backends.cuda import backend as backend_module
from dnnstack.backends.cuda import executable as module
from dnnstack.backends.cuda.backend import CudaBackend
from dnnstack.backends.cuda.binding import layouts
from dnnstack.backends.cuda.binding.bind import Binder
from dnnstack.backends.cuda.libraries import runtime, timing
from dnnstack.backends.cuda.libraries.driver import ALLOCATION, OUT_OF_MEMORY
from dnnstack.backends.tuning import Tuning
from dnnstack.common.errors import CublasError, CudnnError, LibraryError


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


def test_an_error_of_the_device_names_the_call_its_shapes_and_what_to_do(executable, fake_cuda):
    error = fake_cuda.runtime.CUDARuntimeError("cudaErrorIllegalAddress")
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
    executable, fake_cuda, monkeypatch
):
    """The device answers late: without a captured graph every call is waited for."""
    step = next(s for s in executable._sections["train"].steps if s.call)
    begun = []
    steps = executable._sections["train"].steps
    steps[steps.index(step)] = replace(step, launch=lambda: begun.append(1))

    def synchronize():
        if begun:
            raise fake_cuda.runtime.CUDARuntimeError("cudaErrorIllegalAddress")

    monkeypatch.setattr(executable._streams[0].cuda, "synchronize", synchronize)
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
    bound, sections, fake_cuda, monkeypatch
):
    made, _ = bound(sections("lenet"), capture=True)

    class Captured:
        def launch(self, stream):
            raise fake_cuda.runtime.CUDARuntimeError("cudaErrorLaunchFailure")

    monkeypatch.setattr(made, "_record", lambda sections, times: [Captured()])
    with pytest.raises(LibraryError) as caught:
        made.run("train", 3)
    assert caught.value.arguments == {"section": "train", "batch_size": 64}
    assert "--no-graph names the call" in str(caught.value)


def test_what_broke_a_capture_is_not_hidden_by_the_broken_capture(
    bound, sections, fake_cuda, monkeypatch
):
    made, _ = bound(sections("lenet"), capture=True)
    error = fake_cuda.runtime.CUDARuntimeError
    stream = made._streams[0].cuda

    def end():
        raise error("cudaErrorStreamCaptureInvalidated")

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


def test_a_launch_that_the_driver_refuses_names_the_kernel(executable, fake_cuda):
    """Launches of our kernels go through the driver, whose errors are of a type of their own."""
    error = fake_cuda.driver.DriverError("CUDA_ERROR_ILLEGAL_ADDRESS")
    step = break_call(executable, "dense_tail", error)
    with pytest.raises(LibraryError, match=r"dense_tail\(op=.*ILLEGAL_ADDRESS") as caught:
        executable.run("train")
    assert caught.value.arguments["op"] == step.call.op.label()


def test_running_out_of_memory_in_a_run_says_in_which_section(executable, monkeypatch):
    def full(section, steps):
        raise MemoryError("Out of memory allocating 12 bytes")

    monkeypatch.setattr(executable, "_run", full)
    with pytest.raises(LibraryError, match="smaller batch") as caught:
        executable.run("train")
    assert caught.value.arguments == {"section": "train", "batch_size": 64}


def test_running_out_of_memory_before_any_section_is_reported(bound, sections, monkeypatch):
    def full(*_):
        raise MemoryError("Out of memory allocating 12 bytes")

    monkeypatch.setattr(layouts.Store, "add_arena", full)
    with pytest.raises(LibraryError, match=r"cudaMalloc.*12 bytes.*smaller batch"):
        bound(sections("lenet"))


def test_a_candidate_that_breaks_a_capture_is_reported_by_its_own_error(fake_cuda, monkeypatch):
    """The tuner passes over a candidate that fails, and must not stumble over the capture's end."""
    stream = fake_cuda.Stream()
    launches = []

    def launch():
        launches.append(1)
        if len(launches) > 1:
            raise CudnnError("cuDNN frontend", "pygraph", "not while capturing", {})

    def end():
        raise fake_cuda.runtime.CUDARuntimeError("cudaErrorStreamCaptureInvalidated")

    monkeypatch.setattr(stream, "begin_capture", lambda: None, raising=False)
    monkeypatch.setattr(stream, "end_capture", end, raising=False)
    with pytest.raises(CudnnError, match="not while capturing"):
        timing.captured_seconds(launch, stream, 1)


def test_what_only_evaluates_asks_for_nothing_that_a_driver_may_refuse(
    stand_in, sections, monkeypatch
):
    """A checkpoint's table is taken there, whatever machine it was made on."""
    made = []
    executable = staticmethod(lambda _, tuning, *__: made.append(tuning))
    monkeypatch.setattr(CudaBackend, "executable", executable)
    choices = {"layout": "nchw", "streams": "2", "overlap": "joins", "apart": "max_pool"}
    graphs = {"evaluate": sections("lenet")["evaluate"]}
    table = Tuning("cuda", {"driver": "580"}, "another", choices)
    CudaBackend().compile(graphs, Options("tf32", tuning=table))
    assert made[0].choices == {"layout": "nchw", "streams": "2"}


class Bound:
    """An executable that is nothing but its table, of which one choice cannot be had."""

    def __init__(self, graphs, tuning, streams, precision, notices, *_):
        self.tuning, self.notices = tuning, notices
        if "train/conv2d_2/forward" in tuning.choices:
            raise CudnnError("cuDNN frontend", "pygraph", "plan 999 cannot be built", {})


@pytest.mark.parametrize("wrong", ["choice", "kernels"])
def test_a_table_that_does_not_serve_here_is_replaced_and_says_so(
    stand_in, sections, monkeypatch, wrong
):
    """One of other kernels, which may sum in another order, or with a choice that there is not."""
    searched = []
    monkeypatch.setattr(CudaBackend, "executable", staticmethod(Bound))
    found = {"streams": "2"}, True
    monkeypatch.setattr(backend_module, "search", lambda *_: searched.append(1) or found)
    graphs = sections("lenet")
    table = CudaBackend().compile(graphs, Options("tf32")).tuning
    again = CudaBackend().compile(graphs, Options("tf32", tuning=table))
    assert (again.notices, len(searched)) == ((), 1)
    if wrong == "choice":
        choices = {**table.choices, "train/conv2d_2/forward": "999"}
        table = replace(table, choices=choices)
    else:
        monkeypatch.setattr(backend_module, "_digest", lambda: "changed")
    made = CudaBackend().compile(graphs, Options("tf32", tuning=table))
    assert made.tuning.choices == {"streams": "2"}
    (notice,) = made.notices
    was = table.environment["dnnstack"]
    told = {"choice": "plan 999", "kernels": f"dnnstack was {was}, now it is changed"}
    assert told[wrong] in notice
    assert len(searched) == 2


@pytest.mark.parametrize("work", ["read", "renew", "measure", "patch_sums"])
def test_what_the_device_reports_late_is_explained_wherever_it_shows(
    bound, sections, fake_cuda, monkeypatch, work
):
    """Making the context current reports errors of earlier launches."""
    graphs = sections("lenet")
    made, _ = bound(graphs)
    graph = graphs["train"]

    def enter(stream):
        raise fake_cuda.runtime.CUDARuntimeError("cudaErrorIllegalAddress")

    monkeypatch.setattr(fake_cuda.Stream, "__enter__", enter)
    given = {"read": (graph["loss"],), "renew": (), "measure": ("train", 1)}
    given["patch_sums"] = (graph["images"], np.zeros(1, np.int32), (2, 2))
    with pytest.raises(LibraryError, match="cudaErrorIllegalAddress"):
        getattr(made, work)(*given[work])


def test_memory_that_runs_out_in_a_launch_is_named_as_such(executable, fake_cuda):
    error = fake_cuda.driver.DriverError("CUDA_ERROR_OUT_OF_MEMORY")
    error.status = OUT_OF_MEMORY
    break_call(executable, "cudnnBackendExecute", error)
    with pytest.raises(LibraryError) as caught:
        executable.run("train")
    assert caught.value.function == ALLOCATION


def test_the_first_run_does_without_a_second_copy_where_memory_is_short(
    bound, sections, fake_cuda, monkeypatch
):
    """What the run before a capture changes waits on the host, then."""
    made, _ = bound(sections("lenet"), capture=True)
    graph = made.graphs["train"]
    weights = next(t for t in graph.tensors() if t.role == "parameter")
    values = np.random.default_rng(1).standard_normal(weights.shape).astype(np.float32)
    made.write(weights, values)

    def full(array):
        raise MemoryError("cudaErrorMemoryAllocation")

    monkeypatch.setattr(type(made._buffer(weights).array), "copy", full)
    binder = made._sections["train"]
    with made._restored(binder):
        made.write(weights, np.zeros_like(values))
    np.testing.assert_array_equal(made.read(weights), values)


@pytest.mark.parametrize("work", ["patch_sums", "run", "run_in_turn"])
def test_what_may_wait_for_the_whole_device_breaks_no_capture(bound, sections, monkeypatch, work):
    """Kernels are loaded, and sections bound anew, while no other thread captures."""
    made, _ = bound(sections("lenet"))
    held = []

    def seen(*_):
        held.append(runtime.CAPTURING._is_owned())

    if work == "patch_sums":
        monkeypatch.setattr(module, "patch_sums", seen)
        made.patch_sums(made.graphs["train"]["images"], np.zeros(1, np.int32), (2, 2))
    else:
        made._store.generation += 1
        bind = made._bind
        monkeypatch.setattr(made, "_bind", lambda: (seen(), bind()))
        getattr(made, work)("train" if work == "run" else ["train"])
    assert held == [True]

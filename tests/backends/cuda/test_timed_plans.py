"""How plans are timed and which is taken, and what becomes of what goes wrong meanwhile."""

from __future__ import annotations

from contextlib import contextmanager
from types import SimpleNamespace

import pytest
from dnnstack.backends.base import Options
from dnnstack.backends.cuda import timed_plans
from dnnstack.common.errors import CudnnError, LibraryError

from ...support.timed import Timed


def pointer(address):
    return SimpleNamespace(data=SimpleNamespace(ptr=address))


class Failure(RuntimeError):
    """As the error of a device that fails."""


def on_device(monkeypatch, empty):
    """Plans are timed on a device that allocates like this, on its stream."""
    inside = []

    @contextmanager
    def stream():
        inside.append(True)
        yield
        inside.pop()

    def allocate(*given):
        assert inside
        return empty(*given)

    monkeypatch.setattr(timed_plans, "device", lambda: SimpleNamespace(stream=stream()))
    monkeypatch.setattr(timed_plans, "cuda_api", lambda: SimpleNamespace(empty=allocate))
    monkeypatch.setattr(timed_plans, "device_errors", lambda: (Failure,))


def test_a_trial_is_closed_where_the_user_interrupts(monkeypatch):
    def stop():
        raise KeyboardInterrupt

    closed = []
    on_device(monkeypatch, lambda *_: pointer(0))
    binder = SimpleNamespace(products={"train/dense_1/forward": None}, convolutions={}, variants={})
    trial = SimpleNamespace(
        graphs=(), binders=lambda: [binder], close=lambda: closed.append("trial")
    )
    with pytest.raises(KeyboardInterrupt):
        timed_plans.timed_plans(lambda _: trial, {}, Options(interrupt=stop), 1.0)
    assert closed == ["trial"]


@pytest.mark.parametrize("step", ["workspace", "verified"])
def test_memory_that_runs_out_while_plans_are_timed_is_an_error_of_ours(monkeypatch, step):
    def none(*_):
        raise MemoryError("Out of memory")

    empty = none if step == "workspace" else lambda *_: pointer(0)
    on_device(monkeypatch, empty)
    product = SimpleNamespace(
        seconds=lambda index, _: 1.0 - 0.5 * index, count=lambda: 2, verified=none
    )
    binder = SimpleNamespace(products={"dense": product}, convolutions={}, variants={}, either={})
    closed = []
    trial = SimpleNamespace(
        graphs=(), binders=lambda: [binder], close=lambda: closed.append("trial")
    )
    with pytest.raises(LibraryError, match=r"cudaMalloc.*Out of memory"):
        timed_plans.timed_plans(lambda _: trial, {}, Options(), 1.0)
    assert closed == ["trial"]


def test_a_device_that_fails_while_plans_are_timed_is_explained(monkeypatch):
    def fail(*_):
        raise Failure("cudaErrorIllegalAddress")

    on_device(monkeypatch, fail)
    trial = SimpleNamespace(graphs=(), binders=list, close=lambda: None)
    with pytest.raises(LibraryError, match="cudaErrorIllegalAddress"):
        timed_plans.timed_plans(lambda _: trial, {}, Options(), 1.0)


class Wrong(Timed):
    """A way to compute something, none of whose candidates computes it."""

    def __init__(self, there=True):
        super().__init__(1e-6, 1e-6, right=False)
        self.there, self.plan = there, -1

    def build(self, index):
        return self.there

    def choose(self):
        if not self.there:
            raise CudnnError("cuDNN frontend", "pygraph", "no engine takes it", {})
        self.plan = 0


@pytest.mark.parametrize("there", [True, False])
def test_what_computes_wrongly_is_never_the_fastest(there):
    seconds, _ = timed_plans._rival(Wrong(there), 0, 1.0, [], "t")
    assert seconds == float("inf")


def test_a_layout_without_a_plan_says_so():
    with pytest.raises(CudnnError, match="no engine"):
        timed_plans.best(Wrong(there=False), 0, 1.0)
    assert timed_plans.best(Wrong(), 0, 1.0) == (float("inf"), 0)

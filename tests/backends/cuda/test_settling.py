"""The choices of a GPU: those of starts at once are the same; disturbed ones are found out."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest
from dnnstack.backends.base import Options
from dnnstack.backends.cuda import backend as backend_module
from dnnstack.backends.cuda import tuner
from dnnstack.backends.cuda.backend import CudaBackend
from dnnstack.backends.cuda.libraries import timing
from dnnstack.backends.tuning import UNEQUAL, Tuning


@pytest.fixture
def tables(stand_in, monkeypatch):
    """Executables are nothing but their tables."""

    def bound(graphs, tuning, streams, arithmetic, notices, *_):
        return SimpleNamespace(tuning=tuning, notices=notices)

    monkeypatch.setattr(backend_module.CudaBackend, "executable", staticmethod(bound))


def test_starts_at_once_take_the_choices_of_one(tables, sections, monkeypatch):
    """Each search would find something else; the others wait for the one that began."""
    began, found, searched = threading.Barrier(4), [], []

    def search(*_):
        searched.append(1)
        return {"streams": str(len(searched))}, True

    monkeypatch.setattr(backend_module, "search", search)
    graphs = sections("lenet")

    def start():
        backend = CudaBackend()
        began.wait(60)
        found.append(backend.compile(graphs, Options("tf32")).tuning)

    threads = [threading.Thread(target=start) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [table.choices for table in found] == [{"streams": "1"}] * 4
    assert len(searched) == 1


def test_a_checkpoint_may_name_a_choice_that_there_is_no_more(tables, sections, monkeypatch):
    """It is told, and others are searched; where nothing trains it does not matter."""
    monkeypatch.setattr(backend_module, "search", lambda *_: ({"streams": "2"}, True))
    graphs, backend = sections("lenet"), CudaBackend()
    present = backend.compile(graphs, Options("tf32", tune=False)).tuning
    every = {"layout": "nhwc", "pad": "8", "streams": "3", "ending": "batch", "overlap": "joins"}
    every |= {"apart": "x", "quiet": "y", "train/conv2d_1/forward": "0"}
    table = Tuning("cuda", present.environment, present.graph, every)
    kept = backend.compile(graphs, Options("tf32", tuning=table))
    assert (kept.tuning, kept.notices) == (table, ())
    old = Tuning("cuda", present.environment, present.graph, every | {"early": "weights"})
    made = backend.compile(graphs, Options("tf32", tuning=old))
    reason = "a choice of the tuning is not available now: 'weights' for 'early'"
    assert made.notices == (f"{UNEQUAL}: {reason}",)
    assert made.tuning.choices == {"streams": "2"}
    graphs = {"evaluate": graphs["evaluate"]}
    made = backend.compile(graphs, Options("tf32", tuning=old))
    assert made.notices == ()
    assert made.tuning.choices["layout"] == "nhwc"


@pytest.mark.parametrize("moment", range(5))
def test_a_search_beside_another_program_says_so(monkeypatch, moment):
    """Whenever that was at work: the GPU is looked at for each layout, and to the end."""
    looks = []

    def crowded():
        looks.append(1)
        return len(looks) == moment + 1

    binder = SimpleNamespace(steps=[])

    def build(choices):
        return SimpleNamespace(
            graphs=("train",),
            step_seconds=lambda *_: 1.0,
            close=lambda: None,
            binders=lambda: [binder],
        )

    monkeypatch.setattr(tuner, "crowded", crowded)
    monkeypatch.setattr(tuner, "timed_plans", lambda *_: {})
    monkeypatch.setattr(tuner, "available", lambda: True)
    _, undisturbed = tuner.search(build, "tf32", Options())
    assert len(looks) == 5
    assert not undisturbed


@pytest.mark.parametrize(
    ("waits", "busy"),
    [
        # Milliseconds on an H200: alone, with the odd pause; beside small kernels, large ones.
        ([0.014] * 9 + [0.26], False),
        ([0.02] * 9 + [8.0], False),
        ([0.17, 0.31, 0.33, 0.36], True),
        ([2.0, 2.4], True),
    ],
)
def test_taking_turns_with_another_program_is_noticed(fake_cuda, monkeypatch, waits, busy):
    now, count = [0.0], [0]

    def synchronize():
        now[0] += waits[count[0] % len(waits)] / 1e3
        count[0] += 1

    monkeypatch.setattr(timing, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    monkeypatch.setattr(timing.device().stream, "synchronize", synchronize, raising=False)
    assert timing.crowded() == busy
    assert count[0] > 1

"""Several steps in one list of launches, where there is no GPU."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from dnnstack.backends.cuda import executable
from dnnstack.backends.cuda.binding.launch_list import LaunchList
from dnnstack.backends.cuda.executable import MANY, MOST_LAUNCHES, OFTEN, TOGETHER


def test_how_many_steps_a_graph_holds(bound, sections, monkeypatch):
    made, _ = bound(sections("lenet"), capture=True)
    launched = []

    class Graph:
        def __init__(self, times):
            self.times = times

        def launch(self, stream):
            launched.append(self.times)

    monkeypatch.setattr(made, "_record", lambda sections, times: [Graph(times)])
    made.run("train", 2 * TOGETHER + 3)
    assert launched == [TOGETHER, TOGETHER, 1, 1, 1]
    launched.clear()
    # Of a section that runs often a graph holds more.
    made.run("train", OFTEN)
    launched.clear()
    made.run("train", MANY + 2 * TOGETHER + 1)
    assert launched == [MANY, TOGETHER, TOGETHER, 1]
    launched.clear()
    binder = next(b for b in made.binders() if b.graph.name == "train")
    binder.steps = binder.steps * MOST_LAUNCHES
    made.run("train", TOGETHER)
    assert launched == [1] * TOGETHER


def test_sections_in_turn_are_one_graph(bound, sections, monkeypatch):
    """Several steps of them; what no graph can hold is run one after the other."""
    made, _ = bound(sections("lenet"), capture=True)
    launched, recorded, alone = [], [], []

    def captured(work, stream):
        held = sum(1 for _ in work)
        recorded.append(held)
        return SimpleNamespace(launch=lambda stream: launched.append(held))

    monkeypatch.setattr(executable, "captured", captured)
    turn = ("train", "train", "evaluate")
    made.run_in_turn(turn, 2 * TOGETHER + 1)
    each = sum(len(made._sections[name].steps) for name in turn)
    assert recorded == [TOGETHER * each, each]
    assert launched == [TOGETHER * each] * 2 + [each]
    # Of what runs often a graph holds more.
    made.run_in_turn(turn, OFTEN)
    launched.clear()
    made.run_in_turn(turn, MANY + 1)
    assert MANY * each > MOST_LAUNCHES
    assert launched == [TOGETHER * each] * (MANY // TOGETHER) + [each]
    made.run_in_turn(turn[1:], OFTEN)
    launched.clear()
    made.run_in_turn(turn[1:], MANY + 1)
    each -= len(made._sections["train"].steps)
    assert launched == [MANY * each, each]
    fed, _ = bound(sections("lenet"), capture=True, streamed=True)
    run = fed._run
    monkeypatch.setattr(fed, "_run", lambda *given: (alone.append(given), run(*given)))
    fed.run_in_turn(turn, 2)
    assert alone == [(turn, 2), *[(("train",), 2), (("evaluate",), 1)] * 2]


def test_a_section_may_overlap_with_the_one_in_front(bound, sections, monkeypatch):
    """In a graph of several: one list of launches, of which only the first has none in front."""
    made, _ = bound(sections("lenet"), capture=True)
    found, listed = [], executable.launches

    def noted(steps, joins):
        found.append([*steps])
        return listed(found[-1], joins)

    monkeypatch.setattr(executable, "launches", noted)
    monkeypatch.setattr(executable, "captured", lambda work, stream: [*work])
    made._record(("train", "evaluate"), 3)
    each = [*made._sections["train"].steps, *made._sections["evaluate"].steps]
    assert found == [each * 3]


def test_data_that_are_fed_get_a_graph_a_step(bound, sections, monkeypatch):
    made, _ = bound(sections("lenet"), capture=True, streamed=True)
    recorded = []
    monkeypatch.setattr(made, "_record", lambda sections, times: recorded.append(times) or [])
    made.run("train", TOGETHER)
    assert recorded == [1]


def test_a_stream_that_has_waited_is_waited_for(fake_cuda):
    """Else the capture would end with a stream that never came back."""
    streams = [fake_cuda.Stream() for _ in range(3)]
    launches = LaunchList(fake_cuda, [SimpleNamespace(cuda=stream) for stream in streams])
    launches.current = 1
    launches.join([0])
    launches.current = 0
    launches.join(range(3))
    for step in launches.steps:
        step.launch()
    assert [len(stream.waited) for stream in streams] == [1, 1, 0]


@pytest.mark.parametrize(
    ("each", "repeats", "expected"),
    [
        # Slow: once to capture, then as often as it takes to be sure.
        (0.03, 20, [1] * 8),
        (0.3, 20, [1] * 2),
        # Fast: whole graphs, the first of which is captured.
        (0.001, 3, [1, 1, *[2 * TOGETHER] * 4]),
    ],
)
def test_how_many_steps_a_timing_takes(bound, sections, monkeypatch, each, repeats, expected):
    made, _ = bound(sections("lenet"), capture=True)
    ran, now = [], [0.0]

    def run(section, steps):
        ran.append(steps)
        now[0] += each * steps

    monkeypatch.setattr(made, "run", run)
    monkeypatch.setattr(made, "write", lambda *_: None)
    monkeypatch.setattr(executable.time, "perf_counter", lambda: now[0])
    assert made.step_seconds("train", repeats) == pytest.approx(each)
    assert ran == expected

"""Several steps in one list of launches, where there is no GPU."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from dnnstack.backends.cuda import executable
from dnnstack.backends.cuda.backend import CudaBackend
from dnnstack.backends.cuda.binding.launch_list import LaunchList
from dnnstack.backends.cuda.executable import MANY, MOST_LAUNCHES, OFTEN, TOGETHER
from dnnstack.backends.cuda.libraries import kernels
from dnnstack.graph.augmentations import RandomCrop, RandomFlip
from dnnstack.graph.ops import GatherBatch
from dnnstack.graph.ops.updates import ParameterUpdate
from dnnstack.graph.rewrites import rewritten
from dnnstack.optimizers.sgd import Sgd
from dnnstack.training.preprocessing import Preprocessing
from dnnstack.training.sections import Composition

from ...support import composed


def binder_of(bound, sections, streams="2", section="train", ending="", **options):
    choices = {"layout": "nhwc", "pad": "8", "streams": streams, "ending": ending}
    executable, _ = bound(sections("lenet"), choices=choices, **options)
    return next(b for b in executable.binders() if b.graph.name == section)


@pytest.mark.parametrize("streams", ["1", "2"])
def test_the_next_batch_is_gathered_behind_all_but_the_update(streams, bound, sections):
    binder = binder_of(bound, sections, streams)
    single, steps = binder.steps, binder.repeated(3)
    _, early = binder._early
    calls = [s.call for s in single if s.call is not None]
    assert isinstance(calls[0].op, GatherBatch)
    assert isinstance(calls[-1].op, ParameterUpdate)
    expected = [*calls[:-1], early, calls[-1], *calls[1:-1], early, calls[-1], *calls[1:]]
    launches = [s if s is early else s.call for s in steps if s is early or s.call is not None]
    assert launches == expected
    for at in [i for i, step in enumerate(steps) if step is early]:
        assert (steps[at - 1].call, steps[at - 1].stream) == (None, 1)


@pytest.mark.parametrize("streams", ["1", "2"])
@pytest.mark.parametrize("ending", ["tail,batch", "batch", "tail"])
def test_the_update_takes_along_what_the_choice_says(streams, ending, bound, sections):
    """The next batch behind every step of a graph but the last, instead of a launch beside it."""
    binder = binder_of(bound, sections, streams, ending=ending)
    single, steps = binder.steps, binder.repeated(3)
    calls = [s.call for s in single if s.call is not None]
    functions = [call.function for call in calls]
    assert functions[-1] == "step_end"
    assert ("dense_tail_gradients" in functions) == (ending == "batch")
    assert ("dense_tail_gradients" in calls[-1].arguments["with"]) == (ending != "batch")
    if ending == "tail":
        assert (binder._joined, steps.count(binder._early[1])) == (None, 2)
        return
    at, joined = binder._joined
    assert single[at].call is calls[-1]
    assert joined.call.arguments == calls[-1].arguments
    made = [s.call for s in steps if s.call is not None]
    assert made == [*calls[:-1], joined.call, *calls[1:-1], joined.call, *calls[1:]]
    assert binder._early[1] not in steps


def test_an_update_that_something_follows_takes_nothing_along(bound, sections):
    """An average of the parameters, say: the next batch is not the last thing that may wait."""
    network, scaling = sections.network("lenet"), Preprocessing.standardize([0.5], [0.2])
    optimizer = Composition(Sgd(momentum=0.9), averages=("ema",))
    given = (64, "data", 640, 10, 20, scaling, optimizer)
    graph = rewritten(composed.train_graph(network, *given), CudaBackend.rewrites)
    choices = {"layout": "nhwc", "pad": "8", "streams": "1", "ending": "tail,batch"}
    executable, _ = bound({"train": graph}, choices=choices)
    (binder,) = executable.binders()
    functions = [step.call.function for step in binder.steps if step.call]
    assert "step_end" not in functions
    assert {"dense_tail_gradients", "sgd_update"} <= {*functions}


def test_an_augmented_batch_is_gathered_early_too(bound, sections, monkeypatch):
    """By a counter of its own, with as much shared memory."""
    launched = []
    launch = kernels.Kernel.launch

    def remembered(kernel, stream, grid, block, arguments, shared=0):
        if kernel._name == "gather_augmented":
            launched.append((grid, arguments, shared))
        return launch(kernel, stream, grid, block, arguments, shared)

    monkeypatch.setattr(kernels.Kernel, "launch", remembered)
    network, scaling = sections.network("cifar"), Preprocessing.standardize([0.5] * 3, [0.2] * 3)
    given = (64, "data", 640, 10, 20, scaling, Sgd(momentum=0.9))
    graph = composed.train_graph(network, *given, augment=(RandomCrop(2), RandomFlip()))
    executable, _ = bound({"train": graph})
    (binder,) = executable.binders()
    (plain_grid, plain, size), (grid, early, shared) = launched
    assert (grid, shared) == (plain_grid, size) == (plain_grid, 16)
    differing = [at for at, (a, b) in enumerate(zip(plain, early, strict=True)) if a is not b]
    (step,) = differing
    assert plain[step] is executable._store.buffers[graph["step"]].array
    # Where the gathering in front left the number of the next step.
    assert early[step] is plain[-2]
    steps = binder.repeated(3)
    assert steps.count(binder._early[1]) == 2
    assert len(steps) > 3 * len(binder.steps)


def test_without_an_update_steps_only_follow_each_other(bound, sections):
    binder = binder_of(bound, sections, section="evaluate")
    assert binder.repeated(4) == binder.steps * 4


def test_a_single_step_is_as_it_was_bound(bound, sections):
    binder = binder_of(bound, sections)
    assert binder.repeated(1) == binder.steps


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


@pytest.mark.parametrize(("product", "early"), [("t1-2-8-1-1", "1"), ("0", "0")])
def test_a_tail_reads_early_behind_a_product_that_waits_alone(bound, sections, product, early):
    """What tells at once may run while the update in front of it still writes."""
    choices = {"layout": "nhwc", "pad": "8", "streams": "1", "overlap": "chains"}
    choices["train/dense_1/forward/gemm"] = product
    made, _ = bound(sections("lenet"), choices=choices)
    calls = [*made.calls("train")]
    at = next(i for i, call in enumerate(calls) if call.function == "dense_tail")
    assert (calls[at - 1].function == "tensor_dense") == (early == "1")
    assert calls[at].arguments["EARLY"] == early


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

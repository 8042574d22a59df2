"""What a search makes of errors and of what there is not; where there is no GPU.

What it tries, in which order, and what it takes is stored: ``test_goldens.py``.
"""

from __future__ import annotations

import weakref
from types import SimpleNamespace

import pytest
from dnnstack.backends.base import Options
from dnnstack.backends.cuda import tuner
from dnnstack.common.errors import CudnnError, LibraryError


def search(monkeypatch, seconds, available=True, names=(), closed=None, plans=lambda _: {}):
    """The choices of a search in which steps take what ``seconds`` of the choices says."""
    tried = []
    closed = [] if closed is None else closed
    calls = [
        SimpleNamespace(call=SimpleNamespace(function=n, arguments={}), behind=object())
        for n in names
    ]

    def build(choices):
        tried.append(dict(choices))

        def time(name, repeats):
            taken = seconds(choices)
            if isinstance(taken, Exception):
                raise taken
            return taken

        binder = SimpleNamespace(steps=calls)
        return SimpleNamespace(
            graphs=("train",),
            step_seconds=time,
            close=lambda: closed.append(choices),
            binders=lambda: [binder],
        )

    if plans is not None:
        monkeypatch.setattr(tuner, "timed_plans", lambda _, choices, *__: plans(choices))
    monkeypatch.setattr(tuner, "available", lambda: available)
    found, search.complete = tuner.search(build, "fp32", Options())
    return found, tried


def test_a_driver_that_refuses_joins_may_take_chains(monkeypatch):
    refused = LibraryError("CUDA", "cuLaunchKernelEx", "CUresult 900")

    def seconds(choices):
        return {None: 1.0, "joins": refused, "chains": 0.9}[choices.get("overlap")]

    assert search(monkeypatch, seconds)[0]["overlap"] == "chains"


PRODUCT, OTHER, FORWARD = (
    "train/dense_1/filter/gemm",
    "train/dense_2/filter/gemm",
    "train/dense_1/forward/gemm",
)


def uniting(lists):
    """Plans whose rivals are these."""

    def plans(_, choices, options, budget, rivals):
        rivals |= lists
        return {}

    return plans


def test_what_no_launch_takes_along_is_tried_once(monkeypatch):
    """With overlap and without."""
    _, tried = search(monkeypatch, lambda c: 1.0, names=["sgd_update"])
    assert sum("ending" in choices for choices in tried) == 2


def test_the_update_makes_one_product_at_most(monkeypatch):
    def seconds(choices):
        ends = [name for name in (PRODUCT, OTHER) if choices.get(name, "").startswith("e")]
        assert len(ends) <= 1
        return 1.0 - 0.1 * len(ends) - 0.1 * (OTHER in ends)

    lists = {PRODUCT: ["3", "e2"], OTHER: ["5", "e4"]}
    monkeypatch.setattr(tuner, "timed_plans", uniting(lists))
    found, _ = search(monkeypatch, seconds, plans=None, names=["step_end"])
    assert found[OTHER] == "e4"


def test_fewest_launches_are_tried_together_where_each_alone_loses(monkeypatch):
    """The product in the update's launch, what that takes along, one stream; then what goes with
    them in front."""

    def seconds(choices):
        ends = choices.get(PRODUCT) == "e2"
        taken = choices.get("ending") == "tail,batch"
        one = choices.get("streams", "1") == "1"
        if not (ends and taken and one):
            return 1.0 + 0.1 * ends + 0.1 * taken - 0.1 * (not one)
        return 0.8 if choices.get(FORWARD) == "t1" else 0.95

    lists = {PRODUCT: ["3", "e2", "e3"], FORWARD: ["2", "t1"]}
    monkeypatch.setattr(tuner, "timed_plans", uniting(lists))
    found, _ = search(monkeypatch, seconds, plans=None, names=["step_end"])
    assert (found[PRODUCT], found["ending"], found[FORWARD]) == ("e2", "tail,batch", "t1")
    assert found["streams"] == "1"
    # Where it does not pay, what was found before stays.
    found, _ = search(monkeypatch, lambda c: 1.0 + ("e2" in c.values()), plans=None)
    assert found.get(PRODUCT) != "e2"


def test_every_trial_is_closed_and_timed(monkeypatch):
    """Its memory is needed again, and building one takes a good part of the search's time."""
    refused = LibraryError("CUDA", "cuLaunchKernelEx", "CUresult 900")
    timed, closed = [], []

    def seconds(choices):
        timed.append(choices)
        return refused if choices.get("overlap") == "joins" else 1.0

    _, tried = search(monkeypatch, seconds, names=["dense_tail"], closed=closed)
    assert tried == timed == closed


def test_an_error_of_another_choice_is_not_hidden(monkeypatch):
    broken = LibraryError("CUDA", "cudaGraphLaunch", "an illegal memory access")
    with pytest.raises(LibraryError, match="illegal"):
        search(monkeypatch, lambda c: broken if c.get("streams") == "2" else 1.0)
    missing = CudnnError("cuDNN", "plan", "none")
    found, _ = search(monkeypatch, lambda c: missing if c.get("streams") == "2" else 1.0)
    assert found.get("streams", "1") == "1"


FULL = LibraryError("CUDA", "cudaMalloc", "Out of memory")


def refusing(key, value):
    """For trials and for timing their plans: no memory for such choices."""

    def plans(choices):
        if choices.get(key) == value:
            raise FULL
        return {}

    return plans


@pytest.mark.parametrize("where", ["trial", "plans", "streams"])
def test_choices_that_need_more_memory_than_there_is_are_left_out(monkeypatch, where):
    full = refusing(*{"streams": ("streams", "2")}.get(where, ("layout", "nhwc")))

    def seconds(choices):
        if where != "plans":
            full(choices)
        return 1.0

    found, _ = search(monkeypatch, seconds, plans=full if where == "plans" else lambda _: {})
    assert "streams" not in found
    assert found["layout"] == ("nhwc" if where == "streams" else "nchw")
    assert not search.complete
    search(monkeypatch, lambda c: 1.0)
    assert search.complete


def test_what_was_half_built_is_freed_before_the_next_trial(monkeypatch):
    class Memory:
        pass

    held = []

    def seconds(choices):
        assert not held or held[-1]() is None
        memory = Memory()
        held.append(weakref.ref(memory))
        try:
            raise MemoryError("Out of memory")
        except MemoryError as error:
            raise LibraryError("CUDA", "cudaMalloc", str(error)) from None

    with pytest.raises(LibraryError, match="Out of memory"):
        search(monkeypatch, seconds)
    assert len(held) == 2


def test_where_no_layout_can_be_had_the_search_says_why(monkeypatch):
    with pytest.raises(LibraryError, match="Out of memory"):
        search(monkeypatch, lambda c: FULL)
    with pytest.raises(LibraryError, match="Out of memory"):
        search(monkeypatch, lambda c: 1.0, plans=lambda c: refusing("layout", c["layout"])(c))


def test_what_is_refined_gets_its_share_of_the_seconds(monkeypatch):
    later = []
    refined = tuner._refined
    monkeypatch.setattr(
        tuner, "_refined", lambda *given: later.append(given[-1]) or refined(*given)
    )
    monkeypatch.setattr(tuner, "SECONDS", 30.0)
    for count in (1, 3):
        ways = [({"way": str(n)}, 1.0) for n in range(count - 1)]
        monkeypatch.setattr(tuner, "_overlap", lambda *_, ways=ways: ways)
        search(monkeypatch, lambda c: 1.0)
    assert later == [30.0 * tuner.LATER, *[10.0 * tuner.LATER] * 3]


def test_no_trial_where_the_gpu_cannot(monkeypatch):
    _, tried = search(monkeypatch, lambda c: 1.0, available=False)
    assert not any("overlap" in choices for choices in tried)


@pytest.mark.parametrize("launches", [10, 60])
def test_launches_of_what_is_rejected_switch_nothing_off(monkeypatch, launches):
    """A layout that is not taken may have many, and waits are none."""
    few = [SimpleNamespace(call=SimpleNamespace(function="step_end", arguments={}), behind=None)]
    waits = [SimpleNamespace(call=None, behind=None)] * 50

    def seconds(choices):
        return 2.0 if choices["layout"] == "nchw" else 1.0 - 0.2 * ("ending" in choices)

    def build(choices):
        steps = few * (launches if choices["layout"] == "nchw" else 10) + waits
        return SimpleNamespace(
            graphs=("train",),
            step_seconds=lambda *_: seconds(choices),
            close=lambda: None,
            binders=lambda: [SimpleNamespace(steps=steps)],
        )

    monkeypatch.setattr(tuner, "timed_plans", lambda *_: {})
    monkeypatch.setattr(tuner, "available", lambda: False)
    found, _ = tuner.search(build, "fp32", Options())
    assert "ending" in found

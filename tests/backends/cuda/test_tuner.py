"""What a search tries, in which order, and what it takes; where there is no GPU."""

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


def test_the_search_takes_overlap_where_it_is_faster(monkeypatch):
    found, _ = search(monkeypatch, lambda c: 0.8 if c.get("overlap") == "joins" else 1.0)
    assert found["overlap"] == "joins"
    found, tried = search(monkeypatch, lambda c: 1.0)
    assert "overlap" not in found
    # What works behind waits needs no trial without them.
    assert "chains" not in {c.get("overlap") for c in tried}


@pytest.mark.parametrize(("before", "after"), [("2", "1"), ("1", "2")])
def test_one_stream_and_two_are_tried_again_with_overlap(monkeypatch, before, after):
    def seconds(choices):
        streams = choices.get("streams", "1")
        if "overlap" in choices:
            return 0.6 if streams == after else 0.7
        return 0.8 if streams == before else 0.9

    found, _ = search(monkeypatch, seconds)
    assert (found["streams"], found["overlap"]) == (after, "joins")


def test_a_driver_that_refuses_joins_may_take_chains(monkeypatch):
    refused = LibraryError("CUDA", "cuLaunchKernelEx", "CUresult 900")

    def seconds(choices):
        return {None: 1.0, "joins": refused, "chains": 0.9}[choices.get("overlap")]

    assert search(monkeypatch, seconds)[0]["overlap"] == "chains"


def test_kernels_that_lose_by_it_stay_apart(monkeypatch):
    cost = {"dense_tail": -0.2, "sgd_update": 0.3, "max_pool": 0.004}

    def seconds(choices):
        if "overlap" not in choices:
            return 1.0
        apart = choices.get("apart", "").split(",")
        return 1.0 + sum(cost[name] for name in cost if name not in apart)

    found, _ = search(monkeypatch, seconds, names=list(cost))
    # What changes less than the noise of a timing is left as it is.
    assert (found["overlap"], found["apart"]) == ("joins", "sgd_update")
    cost["dense_tail"] = 0.1
    assert "overlap" not in search(monkeypatch, seconds, names=list(cost))[0]


def test_kernels_of_large_blocks_may_let_none_overlap_with_them(monkeypatch):
    names = ["tensor_conv", "dense_tail", "sgd_update"]

    def seconds(choices):
        if "overlap" not in choices:
            return 1.0
        quiet = choices.get("quiet", "").split(",")
        return 1.2 - 0.4 * ("tensor_conv" in quiet) - 0.1 * ("sgd_update" in quiet)

    found, _ = search(monkeypatch, seconds, names=names)
    assert (found["overlap"], found["quiet"]) == ("joins", "tensor_conv,sgd_update")
    # One that gains by telling alone is taken out again.
    other = {"tensor_conv": 0.3, "tensor_filter": -0.1}

    def mixed(choices):
        if "overlap" not in choices:
            return 1.0
        return 1.1 - sum(other.get(name, 0.0) for name in choices.get("quiet", "").split(","))

    found, _ = search(monkeypatch, mixed, names=["tensor_conv", "tensor_filter"])
    assert found["quiet"] == "tensor_conv"


@pytest.mark.parametrize(
    ("gains", "expected"),
    [
        ({"tail,batch": 0.1}, "tail,batch"),
        ({"tail,batch": 0.1, "batch": 0.2}, "batch"),
        ({"tail,batch": -0.1, "tail": 0.1}, "tail"),
        ({}, None),
    ],
)
def test_the_update_takes_along_what_makes_the_step_faster(gains, expected, monkeypatch):
    def seconds(choices):
        return 1.0 - gains.get(choices.get("ending", ""), 0.0)

    found, tried = search(monkeypatch, seconds, names=["step_end"])
    assert found.get("ending") == expected
    # Where no launch takes anything along one trial shows it, with overlap and without; of many
    # launches none is made.
    _, tried = search(monkeypatch, seconds, names=["sgd_update"])
    assert sum("ending" in choices for choices in tried) == 2
    many = ["step_end", *(str(i) for i in range(tuner.FEW_LAUNCHES))]
    _, tried = search(monkeypatch, seconds, names=many)
    assert not any("ending" in choices for choices in tried)


def test_overlap_pays_where_the_update_takes_something_along(monkeypatch):
    def seconds(choices):
        taken = choices.get("ending", "") == "tail,batch"
        return (1.1 - 0.3 * taken) if "overlap" in choices else (1.0 + 0.1 * taken)

    found, _ = search(monkeypatch, seconds, names=["step_end"])
    assert (found["overlap"], found["ending"]) == ("joins", "tail,batch")


def test_a_rival_is_taken_where_the_whole_step_is_faster(monkeypatch):
    cost = {"1": 0.0, "2": -0.1, "t4": -0.2, "p": 0.0, "q": 0.1}

    def plans(_, choices, options, budget, rivals):
        rivals |= {"a/gemm": ["2", "t4"], "b": ["q"]}
        return {"a/gemm": "1", "b": "p"}

    def seconds(choices):
        return 1.0 + sum(cost[choices[name]] for name in ("a/gemm", "b") if name in choices)

    monkeypatch.setattr(tuner, "timed_plans", plans)
    found, tried = search(monkeypatch, seconds, plans=None)
    assert (found["a/gemm"], found["b"]) == ("t4", "p")
    assert {c["b"] for c in tried} == {"p", "q"}


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


@pytest.mark.parametrize(("overlapping", "expected"), [(1.05, "joins"), (1.2, None)])
def test_what_is_nearly_as_fast_is_looked_into_further(monkeypatch, overlapping, expected):
    """With overlap a step is no faster until another product goes with it; much slower, it is out
    before."""

    def seconds(choices):
        if "overlap" not in choices:
            return 1.0
        return 0.8 if choices.get(FORWARD) == "t1" else overlapping

    monkeypatch.setattr(tuner, "timed_plans", uniting({FORWARD: ["2", "t1"]}))
    found, tried = search(monkeypatch, seconds, plans=None)
    assert found.get("overlap") == expected
    assert any(c.get(FORWARD) == "t1" and "overlap" in c for c in tried) == bool(expected)


def test_the_update_makes_one_product_at_most(monkeypatch):
    def seconds(choices):
        ends = [name for name in (PRODUCT, OTHER) if choices.get(name, "").startswith("e")]
        assert len(ends) <= 1
        return 1.0 - 0.1 * len(ends) - 0.1 * (OTHER in ends)

    lists = {PRODUCT: ["3", "e2"], OTHER: ["5", "e4"]}
    monkeypatch.setattr(tuner, "timed_plans", uniting(lists))
    found, _ = search(monkeypatch, seconds, plans=None, names=["step_end"])
    assert found[OTHER] == "e4"


def test_every_trial_is_closed_and_timed(monkeypatch):
    """Its memory is needed again, and building one takes a good part of the search's time."""
    refused = LibraryError("CUDA", "cuLaunchKernelEx", "CUresult 900")
    timed, closed = [], []

    def seconds(choices):
        timed.append(choices)
        return refused if choices.get("overlap") == "joins" else 1.0

    _, tried = search(monkeypatch, seconds, names=["dense_tail"], closed=closed)
    assert tried == timed == closed


def test_many_launches_are_not_looked_at_one_by_one(monkeypatch):
    names = [f"kernel_{i}" for i in range(tuner.FEW_LAUNCHES + 1)]
    found, tried = search(monkeypatch, lambda c: 0.9 if "overlap" in c else 1.0, names=names)
    assert found["overlap"] == "joins"
    assert not any("apart" in choices for choices in tried)


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


def test_no_table_is_tried_twice_for_its_rivals(monkeypatch):
    lists = {PRODUCT: ["3", "e2"], FORWARD: ["2", "t1"]}
    monkeypatch.setattr(tuner, "timed_plans", uniting(lists))
    _, tried = search(monkeypatch, lambda c: 1.0 - 0.1 * ("e2" in c.values()), plans=None)
    taken = [frozenset(c.items()) for c in tried if c.get(PRODUCT) == "e2" and "ending" in c]
    assert taken
    assert len(taken) == len(set(taken))

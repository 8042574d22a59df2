"""What compiling does on every backend, on one that records what it is asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from dnnstack.backends import settling, tuning_cache
from dnnstack.backends.base import Options
from dnnstack.backends.compiling import ChoiceError, CompilePlan, compiled
from dnnstack.backends.settling import DISTURBED
from dnnstack.backends.tuning import UNEQUAL, Tuning, fingerprint
from dnnstack.backends.tuning_cache import Turn, store
from dnnstack.backends.tuning_cache import kept as as_kept
from dnnstack.graph.graph import Graph
from dnnstack.graph.ops import Accumulate, Activation
from dnnstack.graph.rewrites import REWRITES, Rewrite

DEFAULTS = {"layout": "plain"}


@dataclass
class Recorder:
    """A backend that refuses choices named ``bad``; ``answers`` are what its searches find,
    ``quiet`` what it says when it is asked."""

    name: str = "recorder"
    rewrites: Mapping[str, Rewrite] = field(default_factory=lambda: REWRITES)
    answers: list[tuple[dict[str, str], bool]] = field(default_factory=list)
    quiet: list[bool] = field(default_factory=list)
    built: list[Mapping[str, str]] = field(default_factory=list)
    refusal: Exception = field(default_factory=lambda: ChoiceError("bad is no layout"))

    def precision(self, wanted: str) -> str:
        return "fp32" if wanted == "auto" else wanted

    def versions(self) -> dict[str, str]:
        return {"library": "1"}

    def compile(self, sections: Mapping[str, Graph], options: Options = Options()) -> Any:  # noqa: B008
        def planned(graphs: Any, trained: Any, precision: Any) -> CompilePlan[Any]:
            self.trained = sorted(trained)

            def build(graphs: Any, tuning: Tuning, notices: Any) -> Any:
                self.built.append(tuning.choices)
                if "bad" in tuning.choices.values():
                    raise self.refusal
                return tuning, notices

            return CompilePlan(
                build=build,
                refusals=(ChoiceError,),
                choices=DEFAULTS,
                search=lambda: self.answers.pop(0),
                quiet=lambda: self.quiet.pop(0),
                code="abc",
                extra=("extra",),
                training_only=("overlap",),
            )

        return compiled(self, sections, options, planned)  # type: ignore[arg-type]


def section(trains: bool = True) -> Graph:
    """An activation; for training a sum of gradients, too."""
    graph = Graph("train" if trains else "evaluate", 2, training=trains)
    x, y = graph.tensor("x", (2, 3), role="input"), graph.tensor("y", (2, 3))
    with graph.at("a", "forward"):
        graph.add(Activation(x=x, y=y, kind="relu"))
    if trains:
        step = graph.tensor("step", (1,), "int64", "state")
        one, total = graph.tensor("db", (3,), role="input"), graph.tensor("sum", (3,), role="state")
        with graph.at("a", "update"):
            graph.add(Accumulate(gradients=(one,), step=step, sums=(total,), parts=2, scale=0.5))
    graph.results["y"] = y
    return graph


TRAIN, EVALUATE = {"train": section()}, {"evaluate": section(trains=False)}


def test_what_a_table_was_made_for_and_that_it_is_kept():
    backend = Recorder(answers=[({"layout": "found"}, True)])
    tuning, notices = backend.compile({**TRAIN, **EVALUATE})
    assert (tuning.choices, notices, backend.trained) == ({"layout": "found"}, (), ["train"])
    assert list(tuning.environment.items()) == [
        ("library", "1"),
        ("dnnstack", "abc"),
        ("precision", "fp32"),
    ]
    assert backend.compile(TRAIN) == (tuning, ())
    assert backend.built == [{"layout": "found"}] * 2


def test_nothing_is_searched_where_nothing_trains_or_nobody_wants_it():
    backend = Recorder()
    for sections, options in ((EVALUATE, Options()), (TRAIN, Options(tune=False))):
        tuning, _ = backend.compile(sections, options)
        assert tuning.choices == DEFAULTS


def test_fusion_is_the_rewrites_that_the_backend_has():
    seen: list[str] = []

    def seeing(name: str) -> Rewrite:
        return lambda graph: seen.append(name) or graph  # type: ignore[func-returns-value]

    backend = Recorder(rewrites={name: seeing(name) for name in ("b", "a")})
    backend.compile(EVALUATE, Options(fusion=False))
    assert seen == []
    backend.compile(EVALUATE)
    assert seen == ["b", "a"]


def given(choices: dict[str, str]) -> Tuning:
    """A checkpoint's table of the present network and machine."""
    return replace(Recorder().compile(TRAIN, Options(tune=False))[0], choices=choices)


def alike(table: Tuning) -> Tuning:
    """A table as the cache has it: for all networks that differ in numbers alone."""
    return replace(table, graph=fingerprint(TRAIN, "extra", numbers=False))


@pytest.mark.parametrize("kept", ["checkpoint", "cache"])
def test_a_table_whose_choices_cannot_be_had_is_searched_anew(kept):
    backend = Recorder(answers=[({"layout": "found"}, True)])
    bad = given({"layout": "bad"})
    store(as_kept(alike(bad)))
    store(as_kept(alike(bad), thorough=True))
    options = Options(tuning=bad if kept == "checkpoint" else None)
    tuning, notices = backend.compile(TRAIN, options)
    assert tuning.choices == {"layout": "found"}
    assert notices == (f"{UNEQUAL}: a choice of the tuning is not available now: bad is no layout",)
    assert backend.built == [{"layout": "bad"}, {"layout": "found"}]
    assert backend.compile(TRAIN)[0] == tuning


def test_a_misfit_is_told_before_what_cannot_be_had(cache):
    """The table of another network in the checkpoint, a damaged one in the cache."""
    store(as_kept(alike(given({"layout": "bad"}))))
    backend = Recorder(answers=[({"layout": "found"}, True)])
    other = replace(given({"layout": "bad"}), graph="other")
    _, (first, second) = backend.compile(TRAIN, Options(tuning=other))
    assert first == f"{UNEQUAL}: it was made for another network, batch size or option"
    assert second.endswith("is not available now: bad is no layout")


def test_what_no_table_is_to_blame_for_is_raised(monkeypatch):
    """Default choices that cannot be had, and errors that are no refusals."""
    backend = Recorder(refusal=KeyError("a mistake"))
    with pytest.raises(KeyError):
        backend.compile(TRAIN, Options(tuning=given({"layout": "bad"})))
    assert len(backend.built) == 1
    monkeypatch.setitem(DEFAULTS, "layout", "bad")
    backend = Recorder()
    with pytest.raises(ChoiceError):
        backend.compile(TRAIN, Options(tune=False))
    assert len(backend.built) == 1


def test_what_another_process_has_just_found_is_not_searched_again(monkeypatch):
    """It was started at the same time, and both must compute the same bits."""
    first = Recorder(answers=[({"layout": "1"}, False)])
    second = Recorder(quiet=[True])

    @contextmanager
    def late(*arguments: Any) -> Iterator[Turn]:
        monkeypatch.setattr(settling, "turn", tuning_cache.turn)
        first.compile(TRAIN)
        with tuning_cache.turn(*arguments) as mine:
            yield mine

    monkeypatch.setattr(settling, "turn", late)
    tuning, notices = second.compile(TRAIN)
    assert tuning.choices["layout"] == "1"
    assert notices == (DISTURBED,)


def test_choices_for_training_alone_are_left_out_elsewhere():
    choices = {"layout": "other", "overlap": "joins"}
    backend, table = Recorder(), given(choices)
    assert backend.compile(EVALUATE, Options(tuning=table))[0].choices == {"layout": "other"}
    assert backend.compile(TRAIN, Options(tuning=table))[0].choices == choices


@pytest.mark.parametrize(
    ("name", "calls", "told"),
    [("recorder", "lecture", True), ("recorder", "best", False), ("cuda", "lecture", False)],
)
def test_where_the_calls_of_a_lecture_are_not_there_it_is_said(name, calls, told):
    _, notices = Recorder(name).compile(TRAIN, Options(calls=calls, tune=False))
    assert [text.startswith("run.calls: ") for text in notices] == [True] * told

"""Trials: their values, the journal, and which end early."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import pytest
from dnnstack.common.errors import CheckpointError, NonFiniteError
from dnnstack.common.locks import lock
from dnnstack.configs.search import Dimension, Search
from dnnstack.training.groups.journal import TRIALS, Journal, Trial
from dnnstack.training.groups.sampling import Ended, ends_early, front, need_optuna, sample
from dnnstack.training.groups.sweeping import Sweep

RATE = Dimension("optimizer.lr", 1e-3, 1.0, log=True)
WIDTH = Dimension("units", 8, 64, step=8, whole=True)
KIND = Dimension("schedule", values=("fixed", {"type": "poly", "power": 2}))
POWER = Dimension("power", 1, 3, whole=True, when={"schedule": ({"type": "poly", "power": 2},)})
SEARCH = Search((RATE, WIDTH, KIND, POWER), trials=30)


@pytest.fixture(autouse=True)
def _optuna() -> None:
    need_optuna()


def never(*given: Any) -> NoReturn:
    raise AssertionError(f"called with {given}")


def trials(search: Search, count: int, first: tuple[Ended, ...] = ()) -> list[Ended]:
    """Trials one after the other; the better, the nearer the rate is to 0.1."""
    found = list(first)
    while len(found) < count:
        chosen = sample(search, len(found), found)
        found.append(Ended(chosen, (-abs(chosen["optimizer.lr"] - 0.1),)))
    return found


@pytest.mark.parametrize("sampler", ["tpe", "random"])
def test_a_trial_depends_on_its_number_and_those_before_it_alone(sampler: str) -> None:
    search = Search(SEARCH.dimensions, sampler=sampler, trials=30)
    found = trials(search, 25)
    assert trials(search, 25, tuple(found[:13])) == found
    assert trials(Search(SEARCH.dimensions, sampler=sampler, seed=2), 3) != found[:3]
    for each in found:
        assert 1e-3 <= each.params["optimizer.lr"] <= 1
        assert each.params["units"] in WIDTH.grid()
        assert ("power" in each.params) == (each.params["schedule"] != "fixed")
    assert len({each.params["optimizer.lr"] for each in found}) == 25


def test_a_grid_is_gone_through_once() -> None:
    search = Search((WIDTH, Dimension("b", values=(1, 2))), sampler="grid")
    found = [sample(search, number, []) for number in range(16)]
    assert found[:3] == [{"units": 8, "b": 1}, {"units": 8, "b": 2}, {"units": 16, "b": 1}]
    assert len({tuple(each.values()) for each in found}) == 16 == len(search.grid())
    when = Search((KIND, replace(POWER, step=1), Dimension("b", values=(1, 2))), sampler="grid")
    assert [sample(when, number, []) for number in range(8)] == when.grid()
    assert ["power" in each for each in when.grid()] == [False] * 2 + [True] * 6


def test_what_is_worse_than_the_median_ends_early() -> None:
    search = Search((RATE,), prune=(3, 1))
    before = [
        Ended({"optimizer.lr": 0.1}, (last,), ((10, last / 2), (20, last)))
        for last in (0.2, 0.6, 0.8)
    ]
    assert ends_early(search, ((10, 0.1), (20, 0.5)), before)
    assert not ends_early(search, ((10, 0.1), (20, 0.7)), before)
    # Not at the first validation, not with too few trials, not without being asked to.
    assert not ends_early(search, ((10, 0.01),), before)
    assert not ends_early(search, ((10, 0.1), (20, 0.5)), before[:2])
    assert not ends_early(Search((RATE,)), ((10, 0.1), (20, 0.5)), before)
    lower = Search((RATE,), ("loss",), prune=(3, 1))
    assert ends_early(lower, ((10, 0.9), (20, 0.9)), before)
    assert not ends_early(lower, ((10, 0.1), (20, 0.1)), before)


def test_the_best_of_one_objective_and_of_two() -> None:
    assert front(SEARCH, [(0, (0.5,)), (1, (0.9,)), (2, (0.7,))]) == [1, 2, 0]
    two = Search((RATE,), ("accuracy", "seconds"))
    values = [(0, (0.9, 5.0)), (1, (0.8, 2.0)), (2, (0.8, 3.0)), (3, (0.7, 2.5)), (4, (0.6, 1.0))]
    assert front(two, values) == [0, 1, 4]


def test_a_journal_with_torn_and_foreign_lines(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    with journal.alone():
        journal.begin(Trial(0, {"a": [1, None]}))
        journal.begin(Trial(1, {"a": 2}))
    with (tmp_path / TRIALS).open("ab") as file:
        file.write(b'{"event": "begin", "trial": 2, "par')
    assert [each.number for each in journal.read()] == [0, 1]
    done = Trial(1, {"a": 2}, "complete", (0.5,), ((3, 0.25),), 1.5, 2.0)
    with journal.alone():
        journal.end(done)
        # A trial ends once, whatever is written later.
        journal.end(Trial(1, {"a": 2}, "failed", None, (), 0.0, 0.0, "no"))
    with (tmp_path / TRIALS).open("ab") as file:
        file.write(b'[]\n{"event": "end", "trial": 9, "state": "complete"}\n')
    assert journal.read() == [Trial(0, {"a": [1, None]}), done]
    held = journal.claim(done)
    assert held is not None
    assert journal.claim(done) is None
    held.release()
    again = journal.claim(done)
    assert again is not None
    again.release()


def test_a_lock_that_a_kill_left_goes_away_with_the_next_end(tmp_path: Path) -> None:
    """The process was killed between the record of the end and the deletion of its lock."""
    sweep = Sweep(tmp_path, Search((RATE,), trials=1))
    trial = Trial(0, {"optimizer.lr": 0.1})
    with sweep.journal.alone():
        sweep.journal.begin(trial)
        sweep.journal.end(replace(trial, state="failed"))
    left = tmp_path / f"{trial.name}.lock"
    left.write_text("pid 4711 on elsewhere\n", encoding="ascii")
    with lock(left):
        assert list(sweep.run(never, never)) == []
        # Another process has it still.
        assert left.exists()
    assert list(sweep.run(never, never)) == []
    assert not left.exists()


@pytest.mark.parametrize("other", ["pid 7 on elsewhere", ""])
def test_a_trial_that_two_processes_have_is_an_error(tmp_path: Path, other: str) -> None:
    """As where another machine keeps locks of its own: it has the trial still, or has ended it."""
    sweep = Sweep(tmp_path, Search((RATE,), trials=1))

    def train(trial: Trial, *rest: Any) -> NoReturn:
        if other:
            (tmp_path / f"{trial.name}.lock").write_text(f"{other}\n", encoding="ascii")
        else:
            sweep.journal.end(replace(trial, state="failed", why="elsewhere"))
        raise NonFiniteError("here")

    said = f"{tmp_path}/trial-1: was also trained by {other or 'another process'}, so locks"
    with pytest.raises(CheckpointError, match=said):
        list(sweep.run(train, never))
    assert [each.why for each in sweep.journal.read()] == ["" if other else "elsewhere"]


@pytest.mark.parametrize("objective", [("accuracy",), ("accuracy", "seconds")])
def test_trials_under_way_change_what_is_drawn_next(objective: tuple[str, ...]) -> None:
    """Also beside trials that were pruned, of one objective and of two."""
    search = Search((RATE,), objective)
    before = [
        Ended({"optimizer.lr": 0.01 * n}, None if n % 4 == 0 else (0.1 * n, 1.0)[: len(objective)])
        for n in range(1, 16)
    ]
    near = {"optimizer.lr": 0.15}
    alone, beside = (sample(search, 15, before, way)["optimizer.lr"] for way in ((), [near] * 5))
    assert alone != beside
    assert beside == sample(search, 15, before, [near] * 5)["optimizer.lr"]
    assert alone == sample(search, 15, before)["optimizer.lr"]

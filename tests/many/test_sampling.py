"""Trials: their values, the journal, and which end early."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from dataclasses import replace
from typing import Any, NoReturn

import pytest
from dnnstack.common.errors import CheckpointError, NonFiniteError
from dnnstack.common.locks import lock
from dnnstack.configs import load_config
from dnnstack.configs.search import Dimension, Search
from dnnstack.many.journal import TRIALS, Journal, Trial
from dnnstack.many.sampling import Ended, ends_early, front, need_optuna, sample
from dnnstack.many.sweeping import Sweep, open_sweep, read_search
from dnnstack.training.records.group import read_group

RATE = Dimension("optimizer.lr", 1e-3, 1.0, log=True)
WIDTH = Dimension("units", 8, 64, step=8, whole=True)
KIND = Dimension("schedule", values=("fixed", {"type": "poly", "power": 2}))
POWER = Dimension("power", 1, 3, whole=True, when={"schedule": ({"type": "poly", "power": 2},)})
SEARCH = Search((RATE, WIDTH, KIND, POWER), trials=30)
TWO = replace(SEARCH, objective=("accuracy", "loss"), sampler="nsga2", population=4)


@pytest.fixture(autouse=True)
def _optuna():
    need_optuna()


def never(*given: Any) -> NoReturn:
    raise AssertionError(f"called with {given}")


def trials(search: Search, count: int, first: tuple[Ended, ...] = ()) -> list[Ended]:
    """Trials one after the other; the better, the nearer the rate is to 0.1."""
    found = list(first)
    while len(found) < count:
        drawn = sample(search, len(found), found)
        rate, width = drawn.params["optimizer.lr"], drawn.params["units"]
        values = (-abs(math.log10(rate) + 1), float(width))[: len(search.objective)]
        found.append(Ended(drawn.params, values, generation=drawn.generation))
    return found


@pytest.mark.parametrize(
    "search",
    [
        SEARCH,
        replace(SEARCH, sampler="random"),
        replace(SEARCH, startup_trials=5, multivariate=True),
        replace(SEARCH, objective=("accuracy", "loss"), multivariate=True),
        replace(SEARCH, sampler="nsga2", population=4),
        TWO,
    ],
    ids=["tpe", "random", "together", "together-two", "nsga2", "nsga2-two"],
)
def test_a_trial_depends_on_its_number_and_those_before_it_alone(search):
    found = trials(search, 25)
    assert trials(search, 25, tuple(found[:13])) == found
    assert trials(replace(search, seed=2), 3) != found[:3]
    for each in found:
        assert 1e-3 <= each.params["optimizer.lr"] <= 1
        assert each.params["units"] in WIDTH.grid()
        assert ("power" in each.params) == (each.params["schedule"] != "fixed")
    # Children of nsga2 may have the rate of a parent.
    different = len({each.params["optimizer.lr"] for each in found})
    assert different == 25 or (search.sampler == "nsga2" and different > search.population)


def test_other_processes_draw_the_same(tmp_path):
    """Optuna keeps groups of keys in sets, whose order is another one in every process."""
    script = tmp_path / "draw.py"
    script.write_text(
        "import json\n"
        "from dnnstack.configs.search import Dimension, Search\n"
        "from dnnstack.many.sampling import Ended, need_optuna, sample\n"
        "need_optuna()\n"
        "keys = [Dimension(name, 0, 1) for name in 'abcdef']\n"
        "some = Dimension('h', 0, 1, when={'g': (2,)})\n"
        "search = Search((*keys, Dimension('g', values=(1, 2)), some), multivariate=True)\n"
        "found = []\n"
        "for n in range(14):\n"
        "    drawn = sample(search, n, found).params\n"
        "    found.append(Ended(drawn, (sum(drawn.values()),)))\n"
        "print(json.dumps(drawn))\n",
        encoding="utf-8",
    )
    said = {
        subprocess.run(
            [sys.executable, str(script)],
            env={**os.environ, "PYTHONHASHSEED": number},
            capture_output=True,
            check=True,
        ).stdout
        for number in "123"
    }
    assert len(said) == 1


def test_generations_follow_each_other():
    """Each as soon as the one before has as many complete trials as the population."""
    found = trials(TWO, 11)
    assert [each.generation for each in found] == [0] * 4 + [1] * 4 + [2] * 3
    # Those that ended early are not counted.
    early = [
        replace(each, values=None if n in (1, 2) else each.values, generation=0)
        for n, each in enumerate(found)
    ]
    assert sample(TWO, 5, early[:5]).generation == 0
    assert sample(TWO, 6, early[:6]).generation == 1
    # From the second one on, values come from the best of those before, but for mutations.
    before = {each.params["optimizer.lr"] for each in found[:4]}
    assert sum(each.params["optimizer.lr"] in before for each in found[4:8]) >= 2
    # Without what was noted, all would be the first one.
    assert sample(TWO, 11, [replace(each, generation=None) for each in found]).generation == 0
    assert sample(replace(TWO, population=12), 11, found[:4]).generation == 0
    assert sample(replace(TWO, sampler="tpe"), 3, found[:3]).generation is None


def test_the_children_of_a_generation_are_better():
    search = replace(TWO, objective=("accuracy",), population=10)
    found = trials(search, 60)
    first, last = (
        sum(each.values[0] for each in found if each.generation == n and each.values)
        for n in (0, 5)
    )
    assert last > first / 2


def test_many_generations_are_not_too_deep_a_recursion():
    search = Search((RATE,), ("accuracy",), "nsga2", population=2)
    found = [Ended({"optimizer.lr": 0.1}, (0.5,), generation=n // 2) for n in range(1200)]
    assert sample(search, 1200, found).generation == 600
    # A number that somebody else wrote.
    strange = [*found[:9], replace(found[9], generation=2**53)]
    assert sample(search, 10, strange).generation == 4


def test_the_first_trials_are_random():
    later = replace(SEARCH, startup_trials=20)
    found = trials(SEARCH, 12)
    assert trials(later, 12)[:10] == found[:10]
    assert trials(later, 12)[10:] != found[10:]


def test_keys_are_drawn_together_or_each_alone():
    search = replace(SEARCH, startup_trials=2)
    found = tuple(trials(search, 20))
    together, alone = (
        sample(replace(search, multivariate=flag), 20, found) for flag in (True, False)
    )
    assert together != alone


def test_a_sweep_of_an_older_version_goes_on(tmp_path, monkeypatch):
    """Its record of the search has no options of samplers."""
    monkeypatch.chdir(tmp_path)
    config = load_config("lenet.yaml").config
    path = open_sweep(config, SEARCH)
    written = json.loads(read_group(path).search)
    assert not {"startup_trials", "multivariate", "population"} & written.keys()
    assert open_sweep(config, replace(SEARCH, trials=40), str(path)) == path
    other = replace(TWO, dimensions=(RATE,), trials=None)
    path = open_sweep(config, other)
    assert json.loads(read_group(path).search)["population"] == 4
    assert read_search(path) == other
    for changed, told in (
        (replace(other, population=5), "search.sampler.population: 4 -> 5"),
        (replace(other, multivariate=False), "search.sampler.multivariate: not set -> false"),
        (replace(other, prune=(1, 2)), "prune: not set -> after_trials 1, after_validations 2"),
        (replace(other, dimensions=(WIDTH,)), f"{RATE.key}: is gone\n  search.keys.units: is new"),
    ):
        with pytest.raises(CheckpointError, match=told):
            open_sweep(config, changed, str(path))


def test_a_grid_is_gone_through_once():
    search = Search((WIDTH, Dimension("b", values=(1, 2))), sampler="grid")
    found = [sample(search, number, []).params for number in range(16)]
    assert found[:3] == [{"units": 8, "b": 1}, {"units": 8, "b": 2}, {"units": 16, "b": 1}]
    assert len({tuple(each.values()) for each in found}) == 16 == len(search.grid())
    when = Search((KIND, replace(POWER, step=1), Dimension("b", values=(1, 2))), sampler="grid")
    assert [sample(when, number, []).params for number in range(8)] == when.grid()
    assert ["power" in each for each in when.grid()] == [False] * 2 + [True] * 6


def test_what_is_worse_than_the_median_ends_early():
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


def test_the_best_of_one_objective_and_of_two():
    assert front(SEARCH, [(0, (0.5,)), (1, (0.9,)), (2, (0.7,))]) == [1, 2, 0]
    two = Search((RATE,), ("accuracy", "seconds"))
    values = [(0, (0.9, 5.0)), (1, (0.8, 2.0)), (2, (0.8, 3.0)), (3, (0.7, 2.5)), (4, (0.6, 1.0))]
    assert front(two, values) == [0, 1, 4]


def test_a_journal_with_torn_and_foreign_lines(tmp_path):
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


def test_a_journal_keeps_generations(tmp_path):
    journal, noted = Journal(tmp_path), Trial(1, {"a": 2}, generation=3)
    with journal.alone():
        journal.begin(Trial(0, {"a": 1}))
        journal.begin(noted)
    assert "generation" not in (tmp_path / TRIALS).read_text("utf-8").splitlines()[0]
    assert [each.generation for each in journal.read()] == [None, 3]
    done = replace(noted, state="complete", values=(0.5,))
    with journal.alone():
        journal.end(done)
    assert journal.read()[1] == done
    assert done.ended().generation == 3
    for wrong in ('"3"', "-1", "1.5", "1e300", "[1]"):
        line = f'{{"event": "begin", "trial": 2, "params": {{}}, "generation": {wrong}}}\n'
        with (tmp_path / TRIALS).open("a", encoding="utf-8") as file:
            file.write(line)
    assert [each.number for each in journal.read()] == [0, 1]


def test_a_lock_that_a_kill_left_goes_away_with_the_next_end(tmp_path):
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


@pytest.mark.parametrize("other", ["pid 7 on elsewhere", "", "values"])
def test_a_trial_that_two_processes_have_is_an_error(tmp_path, other):
    """As where another machine keeps locks of its own: it has the trial still, or has ended it, or
    has begun it with other values."""
    sweep = Sweep(tmp_path, Search((RATE,), trials=1))

    def train(trial: Trial, *rest: Any) -> NoReturn:
        if other == "values":
            (tmp_path / TRIALS).unlink()
            sweep.journal.begin(replace(trial, params={"optimizer.lr": 0.5}))
        elif other:
            (tmp_path / f"{trial.name}.lock").write_text(f"{other}\n", encoding="ascii")
        else:
            sweep.journal.end(replace(trial, state="failed", why="elsewhere"))
        raise NonFiniteError("here")

    who = other if other.startswith("pid") else "another process"
    said = f"{tmp_path}/trial-1: was also trained by {who}, so locks"
    with pytest.raises(CheckpointError, match=said):
        list(sweep.run(train, never))
    assert [each.why for each in sweep.journal.read()] == ["" if other else "elsewhere"]


@pytest.mark.parametrize("objective", [("accuracy",), ("accuracy", "seconds")])
def test_trials_under_way_change_what_is_drawn_next(objective):
    """Also beside trials that were pruned, of one objective and of two."""
    search = Search((RATE,), objective)
    before = [
        Ended({"optimizer.lr": 0.01 * n}, None if n % 4 == 0 else (0.1 * n, 1.0)[: len(objective)])
        for n in range(1, 16)
    ]
    near = {"optimizer.lr": 0.15}
    alone, beside = (
        sample(search, 15, before, way).params["optimizer.lr"] for way in ((), [near] * 5)
    )
    assert alone != beside
    assert beside == sample(search, 15, before, [near] * 5).params["optimizer.lr"]
    assert alone == sample(search, 15, before).params["optimizer.lr"]

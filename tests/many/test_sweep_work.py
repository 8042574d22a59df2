"""How many processes train what is asked for, and how a trial has ended."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
from dnnstack.configs.search import Dimension, Search
from dnnstack.many import sweep_work, sweeping
from dnnstack.many.journal import Trial
from dnnstack.many.outcome import Outcome
from dnnstack.many.planned import Planned
from dnnstack.many.sweeping import Sweep

GRID = Search((Dimension("seed", values=(1, 2, 3)),), sampler="grid")
SEEN = {"validations": ((1, 0.5, 0.5), (2, 0.75, 1.0)), "best_accuracy": 0.75, "seconds": 9.0}
MANY, FEW = Search((), trials=100), Search((), trials=2)


@pytest.mark.parametrize(
    ("wanted", "device", "threads", "what", "count"),
    [
        (None, "cpu", None, Planned("seeds", 3), 1),
        (2, "cpu", None, Planned("seeds", 3), 2),
        (4, "cpu", None, Planned("seeds", 3), 3),
        (None, "cpu", None, MANY, 8),
        (None, "cpu", 3, MANY, 2),
        (None, "cpu", 9, MANY, 1),
        (None, "auto", None, MANY, 8),
        (None, "cuda", None, MANY, 1),
        (5, "cuda", None, MANY, 5),
        (None, "cpu", None, FEW, 2),
        (None, "cpu", None, GRID, 3),
        (None, "cpu", None, Search((), seconds=1.0), 8),
    ],
)
def test_count_of_workers(monkeypatch, tmp_path, wanted, device, threads, what, count):
    """On a machine of 8 cores, without a GPU and then with one."""
    config = SimpleNamespace(run=SimpleNamespace(device=device, threads=threads))
    monkeypatch.setattr(sweep_work, "available_threads", lambda: 8)
    monkeypatch.setattr(sweep_work, "NVIDIA_DRIVER", tmp_path / "none")
    assert sweep_work.count_of_workers(wanted, config, what) == count
    monkeypatch.setattr(sweep_work, "NVIDIA_DRIVER", tmp_path)
    assert sweep_work.count_of_workers(wanted, config, what) == (1 if device == "auto" else count)


@pytest.mark.parametrize(
    ("objective", "said", "values"),
    [
        ("accuracy", {}, (0.75,)),
        ("loss", {}, (0.5,)),
        ("seconds", {"goal": True}, (9.0,)),
        ("seconds", {"goal": False}, "the goal was not reached"),
        ("accuracy", {"best_accuracy": None}, "no validation has measured accuracy"),
        ("loss", {"validations": ()}, "there was no validation"),
    ],
)
def test_how_a_trial_has_ended(tmp_path, objective, said, values):
    sweep = Sweep(tmp_path, Search((), (objective,)), lambda: False)
    ended = replace(Outcome(True, 2), **{**SEEN, **said})
    others: tuple[dict[str, float], ...] = ({},) * len(ended.validations)
    done = sweep._complete(Trial(0, {}), replace(ended, others=others))
    assert (done.values or done.why) == values


@pytest.mark.parametrize(("finished", "state"), [(False, "pruned"), (True, "complete")])
def test_a_trial_that_was_killed_after_the_decision_is_not_trained(
    tmp_path, monkeypatch, finished, state
):
    others: tuple[dict[str, float], ...] = ({}, {})
    found = replace(Outcome(finished, 2), **SEEN, others=others)
    monkeypatch.setattr(sweeping, "outcome", lambda run: found)
    monkeypatch.setattr(sweeping, "ends_early", lambda *given: True)
    sweep = Sweep(tmp_path, Search((), ("accuracy",)), lambda: False)
    done = sweep._trained(Trial(0, {}), [], lambda *given: pytest.fail("trained"), print)
    assert done.state == state

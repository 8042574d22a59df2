"""Ending early: by patience, through stops and resumes, in the same bits."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest
from dnnstack.backends.base import Backend
from dnnstack.configs import RunConfig
from dnnstack.training.listener import Summary
from dnnstack.training.records.formats.state import Best, Metrics, State
from dnnstack.training.records.formats.store import newest_checkpoint
from dnnstack.training.session import Session

from ..support.resuming import Ear, go

Make = Callable[..., RunConfig]
# Right answers of 32 in one validation after the other, each 10 steps: the third is the best.
CORRECT = {10: 8, 20: 9, 30: 20, 40: 20, 50: 12, 60: 19, 70: 24, 80: 25, 90: 1, 95: 2}
LONG = ("train={max_steps: 95, log_every: 7}", "checkpoint.best=true")


@pytest.fixture(autouse=True)
def _planned(monkeypatch: pytest.MonkeyPatch) -> None:
    def validate(self: Session, stop_requested: Callable[[], bool]) -> Metrics | None:
        if stop_requested():
            return None
        # Equal accuracies at 30 and 40, the later with the higher loss.
        return Metrics(1.0 + self.step / 1000, CORRECT[self.step], 32)

    monkeypatch.setattr(Session, "validate", validate)


def files(summary: Summary) -> tuple[str, dict[str, bytes]]:
    arrays = newest_checkpoint(summary.run / "checkpoints").arrays
    return (summary.run / "metrics.csv").read_text(), {n: a.tobytes() for n, a in arrays.items()}


def test_it_ends_after_so_many_without_improvement(tiny: Make, reference: Backend) -> None:
    done = go(tiny(*LONG, "train.patience=3"), reference)
    assert (done.state, done.early, done.step, done.total_steps) == ("finished", True, 60, 95)
    assert done.best is not None
    assert done.best.step == 30
    newest = newest_checkpoint(done.run / "checkpoints")
    assert (newest.state.step, newest.state.unimproved) == (60, 3)
    end = json.loads((done.run / "log.jsonl").read_text().splitlines()[-1])
    assert (end["event"], end["state"], end["early"]) == ("end", "finished", True)
    # The open window of the log gets its line, as at any end.
    assert [row.split(",")[0] for row in files(done)[0].splitlines()[-3:]] == ["56", "60", "60"]


@pytest.mark.parametrize(("patience", "step"), [(1, 40), (2, 50), (4, 95)])
def test_an_improvement_begins_the_count_anew(
    tiny: Make, reference: Backend, patience: int, step: int
) -> None:
    done = go(tiny(*LONG, f"train.patience={patience}"), reference)
    assert done.step == step
    assert done.early == (step < 95)


@pytest.mark.parametrize("stop_at", [33, 41, 50, 55])
def test_patience_survives_a_resume(tiny: Make, reference: Backend, stop_at: int) -> None:
    config = tiny(*LONG, "train.patience=3")
    whole = go(config, reference)
    half = go(config, reference, ear=Ear(stop_at))
    assert half.state == "interrupted"
    done = go(config, reference, half.run)
    assert (done.early, done.step) == (True, 60)
    assert files(done) == files(whole)


def test_more_patience_goes_on(tiny: Make, reference: Backend) -> None:
    whole = go(tiny(*LONG, "train.patience=4"), reference)
    short = go(tiny(*LONG, "train.patience=3"), reference)
    ear = Ear()
    again = go(tiny(*LONG, "train.patience=3"), reference, short.run, ear)
    assert (again.early, again.step) == (True, 60)
    assert "3 validations without improvement; raise train.patience" in ear.notices[0]
    assert files(again) == files(short)
    done = go(tiny(*LONG, "train.patience=4"), reference, short.run)
    assert (done.early, done.step) == (False, 95)
    assert files(done) == files(whole)


def test_what_counts_as_better(state: State) -> None:
    found = replace(state, step=9, best=Best(2, 0.5, 1.0), unimproved=1, validation_due=True)
    cases = [(17, 9.0, True), (16, 0.9, True), (16, 1.0, False), (15, 0.1, False)]
    for correct, loss, better in cases:
        after = found.validated(Metrics(loss, correct, 32))
        assert after.unimproved == (0 if better else 2)
        assert after.best == (Best(9, correct / 32, loss) if better else found.best)
        assert not after.validation_due
    assert replace(state, best=None).validated(Metrics(5.0, 0, 32)).best == Best(3, 0.0, 5.0)
    assert found.out_of_patience(1)
    assert not found.out_of_patience(2)
    assert not found.out_of_patience(None)

"""A stop at any step, and a resume, leave the records of a training that nobody stopped."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from dnnstack.training import trainer
from dnnstack.training.records.formats.run_log import CSV, LOG
from dnnstack.training.records.resume import open_resume
from dnnstack.training.records.saver import Saver
from dnnstack.training.trainer import train

from ....support.resuming import NOWHERE, Ear, assert_equal, go, resume
from ....support.stored import cases
from ....support.trainings import end_of

# What says when a process started and ended; a training that nobody stopped has one of each.
ENDS = ("start", "resume", "end")
TIMES = ("time", "seconds", "training_seconds", "images_per_second")
# 10 steps are an epoch, 25 the training, so the last validation is in the middle of one.
RULES = cases(__file__, "rules")


def lines(run: Path) -> list[dict[str, Any]]:
    """All lines of the log without times, except for those of starts and ends."""
    found = [json.loads(line) for line in (run / LOG).read_text().splitlines()]
    return [
        {key: value for key, value in line.items() if key not in TIMES}
        for line in found
        if line["event"] not in ENDS
    ]


def ends(run: Path) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in (run / LOG).read_text().splitlines()]
    return [line for line in found if line["event"] == "end"]


@pytest.mark.parametrize("rule", list(RULES))
def test_a_stop_at_any_step_changes_no_line(tiny, reference, rule):
    config = tiny(*RULES[rule])
    whole = go(config, reference)
    assert whole.early == rule.startswith("until")
    last = end_of(whole)
    # Every third step with each of the rules: all of an epoch with one or another.
    for step in range(list(RULES).index(rule) % 3, whole.step, 3):
        half = go(config, reference, stop_at=step)
        assert (half.state, half.step) == ("interrupted", step)
        done = resume(config, reference, half.run)
        assert lines(done.run) == lines(whole.run), step
        assert (done.run / CSV).read_bytes() == (whole.run / CSV).read_bytes(), step
        assert_equal(last, end_of(done))


@pytest.mark.parametrize("rule", ["validation and checkpoint at once", "each at steps of its own"])
def test_a_stop_at_every_step_changes_no_line(tiny, reference, rule):
    config = tiny(*RULES[rule])
    whole = go(config, reference)
    part = go(config, reference, stop_at=0)
    for step in range(1, whole.step + 1):
        part = resume(config, reference, part.run, stop_at=step)
    done = resume(config, reference, part.run)
    assert lines(done.run) == lines(whole.run)
    assert (done.run / CSV).read_bytes() == (whole.run / CSV).read_bytes()
    assert_equal(end_of(whole), end_of(done))


def test_what_a_stop_saved_is_in_the_line_of_its_end(tiny, reference):
    config = tiny("checkpoint={every_steps: 6, keep: 9}")
    for step, named in ((9, "step-9.safetensors"), (10, "step-10.safetensors"), (12, None)):
        half = go(config, reference, stop_at=step)
        (end,) = ends(half.run)
        assert (end["state"], end.get("checkpoint")) == ("interrupted", named)
        assert half.checkpoint is not None
        assert half.checkpoint.name == f"step-{step}.safetensors"
    (end,) = ends(go(config, reference).run)
    assert "checkpoint" not in end


class Killed(BaseException):
    """What no handler takes for an error."""


def test_a_kill_between_the_validation_and_its_checkpoint(tiny, reference, monkeypatch):
    """The first process is stopped with a validation due, the second killed before it has saved."""
    config = tiny("checkpoint={every_epochs: 1}", "train.log_every=5")
    whole = go(config, reference)
    half = go(config, reference, stop_at=10)

    def killed(saver: Saver, *_: Any) -> None:
        saver._log.event("checkpoint", 10, file="step-10.safetensors")
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(Saver, "save", killed)
        with pytest.raises(Killed):
            resume(config, reference, half.run)
    done = resume(config, reference, half.run)
    assert lines(done.run) == lines(whole.run)
    assert (done.run / CSV).read_bytes() == (whole.run / CSV).read_bytes()


def test_a_run_of_an_earlier_version_gets_the_order_of_an_undisturbed_one(tiny, reference):
    """Which wrote the line of a stop's checkpoint before the validation that was due."""
    config = tiny("checkpoint={every_epochs: 1}", "train.log_every=5")
    whole = go(config, reference)
    half = go(config, reference, stop_at=10)
    log = half.run / LOG
    *before, end = log.read_text().splitlines(keepends=True)
    line = json.dumps({"event": "checkpoint", "step": 10, "file": "step-10.safetensors"}) + "\n"
    log.write_text("".join([*before, line, end]))
    assert lines(resume(config, reference, half.run).run) == lines(whole.run)


def test_a_rollback_to_a_stop_with_a_validation_due(tiny, reference, monkeypatch):
    """The validation's line and the checkpoint's are there once, in their order."""
    rolling = "train={max_steps: 15, log_every: 100, on_nan: rollback}"
    config = tiny("checkpoint={every_epochs: 1}", rolling)
    half = go(config, reference, stop_at=10)
    bad = iter([float("nan")])
    real = trainer.Session.validate

    def validate(session: Any, stop: Any) -> Any:
        found = real(session, stop)
        return replace(found, loss=next(bad, found.loss)) if found is not None else None

    monkeypatch.setattr(trainer.Session, "validate", validate)
    ear = Ear()
    source = open_resume(half.run, ear.notice)
    done = train(config, reference, NOWHERE, resume=source, listener=ear)
    assert "going back to step 10" in ear.notices[-1]
    events = [(line["event"], line["step"]) for line in lines(done.run)]
    assert events[-6:] == [
        *(("rollback", 10), ("validation", 10), ("checkpoint", 10)),
        *(("train", 15), ("validation", 15), ("checkpoint", 15)),
    ]

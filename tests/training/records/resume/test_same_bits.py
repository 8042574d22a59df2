"""n steps, a resume and m steps give the bits of n + m steps, in weights and in records."""

from __future__ import annotations

import json

import pytest
from dnnstack.backends.tuning_cache import CachedTuning
from dnnstack.training import pace
from dnnstack.training.records.formats.run_log import LOG
from dnnstack.training.records.formats.store import checkpoint_steps, tensors_path
from dnnstack.training.records.resume import open_resume
from dnnstack.training.trainer import train

from ....support.resuming import NOWHERE, RULES, Ear, assert_equal, go, records, resume
from ....support.trainings import end_of


# 10 steps are an epoch, a line of the log comes every 4.
@pytest.mark.parametrize("split", [1, 8, 10, 13])
@pytest.mark.parametrize("rule", list(RULES))
def test_a_resume_changes_no_bit(tiny, backend, rule, split):
    # On a GPU a search would take longer than all of the training.
    config = tiny(*RULES[rule], f"run.tune={'false' if backend.name == 'cuda' else 'auto'}")
    whole = go(config, backend)
    half = go(config, backend, stop_at=split)
    assert (whole.state, half.state, half.step) == ("finished", "interrupted", split)
    done = resume(config, backend, half.run)
    assert done.run == half.run
    assert done.resumed_from == half.checkpoint
    assert (done.state, done.step) == ("finished", 25)
    assert_equal(end_of(whole), end_of(done))
    assert records(whole.run) == records(done.run)


def test_the_best_of_before_is_not_forgotten(tiny, reference):
    config = tiny(
        "train={epochs: 8, log_every: 10}",
        "optimizer={type: sgd, lr: 0.3, momentum: 0.9}",
        "checkpoint={every_epochs: 1, keep: 1, best: true}",
    )
    whole = go(config, reference)
    assert whole.best is not None
    after = whole.best.step + 1
    assert after < 80, "the last is the best: the test shows nothing"
    done = resume(config, reference, go(config, reference, stop_at=after).run)
    assert done.best == whole.best
    assert records(whole.run) == records(done.run)
    assert checkpoint_steps(done.run / "checkpoints") == [80, whole.best.step]


def test_how_steps_are_cut_into_chunks_changes_no_bit(tiny, backend, monkeypatch):
    # Other programs may disturb the first search, and another one may find other choices.
    monkeypatch.setattr(CachedTuning, "wants_another_search", lambda *_: False)
    config = tiny(*RULES["momentum"])
    single = go(config, backend)
    monkeypatch.setattr(pace, "CHUNK_SECONDS", 100.0)
    assert_equal(end_of(single), end_of(go(config, backend)))


def test_a_finished_run_goes_on_with_more_steps(tiny, reference):
    rules = RULES["momentum"]
    whole = go(tiny(*rules), reference)
    short = go(tiny(*rules, "train.max_steps=14"), reference)
    assert short.state == "finished"
    again = open_resume(short.run, lambda text: None)
    ear = Ear()
    done = train(tiny(*rules, "train.max_steps=14"), reference, NOWHERE, resume=again, listener=ear)
    assert done.step == 14
    assert "already at its end" in ear.notices[0]
    done = resume(tiny(*rules), reference, short.run)
    assert_equal(end_of(whole), end_of(done))
    rows, _ = records(done.run)
    # The line of the unfinished window at step 14 was taken back; its validation happened.
    assert (
        rows.replace(next(r for r in rows.splitlines(True) if r.startswith("14,")), "")
        == (records(whole.run)[0])
    )
    assert "max_steps: 25" in (done.run / "config.yaml").read_text()


def test_records_beyond_the_restored_step_are_cut(tiny, reference):
    config = tiny("checkpoint.every_steps=6", "checkpoint.keep=9")
    whole = go(config, reference)
    path = tensors_path(whole.run / "checkpoints", 12)
    ear = Ear()
    source = open_resume(path, ear.notice)
    assert "(18, 24, 25) are deleted when the next one is saved" in ear.notices[0]
    before = end_of(whole)
    expected = records(whole.run)
    done = train(config, reference, NOWHERE, resume=source)
    assert done.run == whole.run
    assert_equal(before, end_of(done))
    assert records(done.run) == expected


def test_a_moved_checkpoint_goes_on_in_a_new_folder(tiny, reference, tmp_path):
    config = tiny(*RULES["momentum"])
    whole = go(config, reference)
    half = go(config, reference, stop_at=13)
    assert half.checkpoint is not None
    moved = half.checkpoint.rename(tmp_path / "moved.safetensors")
    done = resume(config, reference, moved)
    assert done.run.name == "tiny-3"
    assert_equal(end_of(whole), end_of(done))


def test_a_run_without_a_checkpoint_starts_over_in_its_folder(tiny, reference):
    """A process that was killed before its first checkpoint can be resumed like any other."""
    config = tiny(*RULES["momentum"])
    whole = go(config, reference)
    half = go(config, reference, stop_at=9)
    for path in (half.run / "checkpoints").iterdir():
        path.unlink()
    ear = Ear()
    source = open_resume(half.run, ear.notice)
    assert source.checkpoint is None
    assert "has no checkpoint yet, so the run starts again from step 0" in ear.notices[0]
    done = train(config, reference, NOWHERE, resume=source, listener=ear)
    assert done.run == half.run
    assert done.resumed_from is None
    assert_equal(end_of(whole), end_of(done))
    assert records(whole.run) == records(done.run)
    events = [json.loads(line)["event"] for line in (done.run / LOG).read_text().splitlines()]
    assert (events[0], events.count("start"), events.count("resume")) == ("start", 1, 0)

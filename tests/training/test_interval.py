"""The interval of checkpoints that a training settles at its start."""

from __future__ import annotations

import pytest
from dnnstack.configs import parse_config
from dnnstack.training import interval, pace
from dnnstack.training.interval import epochs_between
from dnnstack.training.records.formats.store import checkpoint_steps, newest_checkpoint

from ..support.resuming import go, resume

OPEN = "checkpoint={keep: 9, best: false}"


@pytest.mark.parametrize(
    ("flops", "steps", "nbytes", "epochs"),
    [
        # 0.2 s for a save of no bytes, in steps of 2e-5 and 3e-5 s.
        (0, 1, 0, 10_000),
        (10**8, 1, 0, 6667),
        # An epoch of 0.1 s is enough twice, but not if there is anything to save.
        (8 * 10**8, 1000, 0, 2),
        (8 * 10**8, 1000, 5_000, 3),
        (8 * 10**8, 1001, 5_000, 2),
        # 4 s for a save of 0.2 s, in epochs of 0.1, 4 and 3 s.
        (8 * 10**8, 1000, 95_000_000, 40),
        (10**13, 4, 95_000_000, 1),
        (10**13, 3, 95_000_000, 2),
    ],
)
def test_a_save_is_paid_by_twenty_times_its_seconds(flops, steps, nbytes, epochs):
    assert epochs_between(flops, steps, nbytes) == epochs


def test_it_is_settled_before_the_first_step_and_recorded(tiny, reference, monkeypatch):
    """From what is known then; a batch in parts has as many operations as a whole one."""
    given = []

    def between(flops: int, steps: int, nbytes: int) -> int:
        given.append((flops, steps, nbytes))
        return 2

    monkeypatch.setattr(interval, "epochs_between", between)
    done = go(tiny(OPEN, "optimizer.momentum=0.9"), reference)
    assert checkpoint_steps(done.run / "checkpoints") == [25, 20]
    written = parse_config((done.run / "config.yaml").read_text(), "x").checkpoint
    assert (written.every_epochs, written.every_steps) == (2, None)
    learned = 4 * 25 + 4 + 144 * 10 + 10
    # A product is two operations; the filter of 5 x 5 has 12 x 12 places.
    least = 16 * 2 * (2 * 144 * 4 * 25 + 3 * 1440)
    ((flops, steps, nbytes),) = given
    assert (steps, nbytes) == (10, 8 * learned + 16384)
    assert least < flops < 1.6 * least
    go(tiny(OPEN, "optimizer.momentum=0.9", "train.accumulate=2"), reference)
    assert given[1] == given[0]


@pytest.mark.parametrize("written", ["every_steps: 6", "every_epochs: 1"])
def test_an_interval_of_the_config_stays(tiny, reference, monkeypatch, written):
    monkeypatch.setattr(interval, "epochs_between", lambda *_: pytest.fail("not asked for"))
    config = tiny(f"checkpoint={{{written}}}")
    done = go(config, reference)
    assert parse_config((done.run / "config.yaml").read_text(), "x") == config


def test_a_resume_keeps_the_interval_of_the_run(tiny, reference, monkeypatch):
    """Whatever would be settled now; that of the config of now, if it says one."""
    monkeypatch.setattr(pace, "CHUNK_SECONDS", 0.0)
    monkeypatch.setattr(interval, "epochs_between", lambda *_: 2)
    half = go(tiny(OPEN), reference, stop_at=13)
    monkeypatch.setattr(interval, "epochs_between", lambda *_: 1)
    done = resume(tiny(OPEN, "train.max_steps=45"), reference, half.run)
    folder = done.run / "checkpoints"
    assert checkpoint_steps(folder) == [45, 40, 20, 13]
    assert newest_checkpoint(folder).provenance.config.count("every_epochs: 2") == 1
    longer = tiny("checkpoint={every_steps: 26, keep: 9, best: false}", "train.max_steps=60")
    resume(longer, reference, half.run)
    assert checkpoint_steps(folder) == [60, 52, 45, 40, 20, 13]

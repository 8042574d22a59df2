"""What a resume refuses, and what it says of a changed config."""

from __future__ import annotations

import pytest
from dnnstack.common.errors import CheckpointError, LockedError, Warned
from dnnstack.configs import effective_yaml
from dnnstack.training.records.resume import open_resume
from dnnstack.training.records.runs import create_run
from dnnstack.training.trainer import train

from ....support.resuming import NOWHERE, RULES, Ear, go
from ....support.stored import cases


@pytest.mark.parametrize(
    ("override", "wanted"), cases(__file__, "a_config_that_does_not_fit_lists_the_differences")
)
def test_a_config_that_does_not_fit_lists_the_differences(tiny, reference, override, wanted):
    half = go(tiny(), reference, stop_at=1)
    source = open_resume(half.run, lambda text: None)
    with pytest.raises(CheckpointError, match="does not fit the config") as caught:
        train(tiny(override), reference, NOWHERE, resume=source)
    assert wanted in str(caught.value)
    # The folder was let go.
    open_resume(half.run, lambda text: None).close()


def test_what_may_change_is_told(tiny, reference):
    half = go(tiny(), reference, stop_at=1)
    ear = Ear()
    source = open_resume(half.run, ear.notice)
    changed = tiny("optimizer.lr=0.01", "train.max_steps=3", "train.log_every=2")
    done = train(changed, reference, NOWHERE, resume=source, listener=ear)
    assert done.step == 3
    assert ear.notices == ["resuming with a changed config: optimizer.lr: 0.05 -> 0.01"]
    assert isinstance(ear.notices[0], Warned)


def test_momentum_cannot_appear_from_nowhere(tiny, reference):
    half = go(tiny(), reference, stop_at=1)
    source = open_resume(half.run, lambda text: None)
    with pytest.raises(CheckpointError, match=r"kept nothing of each .* needs 'momentum'"):
        train(tiny("optimizer.momentum=0.9"), reference, NOWHERE, resume=source)


def test_a_shorter_training_than_the_checkpoint(tiny, reference):
    half = go(tiny(), reference, stop_at=9)
    source = open_resume(half.run, lambda text: None)
    with pytest.raises(CheckpointError, match=r"is of step 9, but the config ends .* 5 steps"):
        train(tiny("train.max_steps=5"), reference, NOWHERE, resume=source)


def test_a_run_in_use_is_not_resumed(tiny, tmp_path):
    with (
        create_run(tmp_path, "tiny", effective_yaml(tiny()), print) as run,
        pytest.raises(LockedError),
    ):
        open_resume(run.path, print)


def test_what_cannot_be_resumed(tiny, tmp_path):
    with pytest.raises(CheckpointError, match="is not the folder of a run"):
        open_resume(tmp_path, print)
    with pytest.raises(CheckpointError, match="no such file"):
        open_resume(tmp_path / "missing.safetensors", print)


def test_checkpoints_without_manifests_are_not_written_over(tiny, reference):
    """A lost manifest must not cost the checkpoint: it verifies itself when it is named."""
    half = go(tiny(*RULES["momentum"]), reference, stop_at=9)
    (saved,) = (half.run / "checkpoints").glob("step-*.safetensors")
    saved.with_name("step-5.safetensors").write_bytes(saved.read_bytes())
    for manifest in saved.parent.glob("*.json"):
        manifest.unlink()
    with pytest.raises(CheckpointError, match=r"step-5.*have no manifests.*--resume .*step-9"):
        open_resume(half.run, print)
    open_resume(saved, print).close()


def test_what_follows_the_length_is_told_when_that_changes(tiny, reference):
    rule = (
        "optimizer={type: sgd, lr: 0.05, lookahead: {}, "
        "groups: [{kind: bias, schedule: {type: poly}}]}"
    )
    half = go(tiny(rule), reference, stop_at=3)
    ear = Ear()
    source = open_resume(half.run, ear.notice)
    longer = tiny(rule, "train.max_steps=30")
    train(longer, reference, NOWHERE, resume=source, listener=ear)
    told = [text for text in ear.notices if "depends on the length of the training" in text]
    assert [text.partition(" depends")[0] for text in told] == [
        "optimizer.groups.0.schedule 'poly'",
        "optimizer.lookahead",
    ]


def test_an_override_that_is_not_repeated_is_told(tiny, reference):
    """What is repeated, replaced or without an effect is not, nor what no run recorded."""
    ear, sets = Ear(1), ("train.max_steps=4", "optimizer.lr=0.01", "run.threads=1")
    short = tiny(*sets)
    half = train(short, reference, NOWHERE, listener=ear, stop_requested=ear.stop, overrides=sets)

    def told(*repeated: str, stop_at: int) -> list[str]:
        ear = Ear(stop_at)
        source = open_resume(half.run, ear.notice)
        train(
            tiny(*repeated), reference, NOWHERE, resume=source, listener=ear,
            stop_requested=ear.stop, overrides=repeated,
        )  # fmt: skip
        return ear.notices

    assert told(*sets, stop_at=2) == []
    # As with the run's own config: nothing changes, and the record stays.
    ear = Ear(3)
    source = open_resume(half.run, ear.notice)
    train(short, reference, NOWHERE, resume=source, listener=ear, stop_requested=ear.stop)
    assert ear.notices == []
    assert told("train.max_steps=8", "optimizer.lr=0.02", stop_at=4) == [
        "resuming with a changed config: optimizer.lr: 0.01 -> 0.02"
    ]
    assert told("optimizer.lr=0.02", stop_at=5) == [
        "the run was started with --set train.max_steps=8; without it this goes on to step 25: "
        "repeat the --set, or press Ctrl-C"
    ]
    assert told("train.max_steps=9", stop_at=6) == [
        "the run was started with --set optimizer.lr=0.02; without it this changes "
        "optimizer.lr: 0.02 -> 0.05: repeat the --set, or press Ctrl-C"
    ]
    # Another length is meant.
    assert told("train={epochs: 2}", stop_at=7) == []
    assert told(stop_at=8) == [
        "the run was started with --set 'train={epochs: 2}'; without it this goes on to step 25 "
        "and changes train.log_every: absent -> 4: repeat the --set, or press Ctrl-C"
    ]
    assert told(stop_at=9) == []


def test_an_override_without_which_the_run_does_not_fit(tiny, reference):
    sets, ear = ("layers.0.filters=5",), Ear(1)
    half = train(
        tiny(*sets), reference, NOWHERE, listener=ear, stop_requested=ear.stop, overrides=sets
    )
    source = open_resume(half.run, ear.notice)
    with pytest.raises(CheckpointError, match=r"filters: 5 -> 4\nthe run was started with --set l"):
        train(tiny(), reference, NOWHERE, resume=source)

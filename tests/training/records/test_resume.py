"""n steps, a resume and m steps give the bits of n + m steps, in weights and in records."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from dnnstack.backends import tuning
from dnnstack.backends.base import Backend
from dnnstack.common.errors import CheckpointError, LockedError
from dnnstack.configs import RunConfig, effective_yaml
from dnnstack.training import pace
from dnnstack.training.listener import Progress, Silent, Started, Summary
from dnnstack.training.records.checkpoint import Checkpoint, read_checkpoint
from dnnstack.training.records.resume import open_resume
from dnnstack.training.records.run_log import CSV, LOG
from dnnstack.training.records.runs import create_run
from dnnstack.training.records.store import (
    checkpoint_steps,
    newest_checkpoint,
    tensors_path,
    write_checkpoint,
)
from dnnstack.training.trainer import train

Make = Callable[..., RunConfig]
NOWHERE = Path("unused")
VALIDATED = ("train.validate_every_epochs=1", "checkpoint.best=true")


class Ear(Silent):
    """Hears everything and asks for a stop at a step."""

    def __init__(self, stop_at: int | None = None) -> None:
        self.stop_at = stop_at
        self.notices: list[str] = []
        self.step = -1

    def notice(self, text: str) -> None:
        self.notices.append(text)

    def started(self, started: Started) -> None:
        self.step = started.step

    def progressed(self, progress: Progress) -> None:
        self.step = progress.step

    def stop(self) -> bool:
        return self.stop_at is not None and self.step >= self.stop_at


@pytest.fixture(autouse=True)
def _one_step_a_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace, "CHUNK_SECONDS", 0.0)


@pytest.fixture(params=["reference", "onednn", pytest.param("cuda", marks=pytest.mark.cuda)])
def backend(request: pytest.FixtureRequest) -> Backend:
    found: Backend = request.getfixturevalue(request.param)
    return found


def go(config: RunConfig, backend: Backend, stop_at: int | None = None) -> Summary:
    ear = Ear(stop_at)
    return train(config, backend, NOWHERE, listener=ear, stop_requested=ear.stop)


def resume(config: RunConfig, backend: Backend, path: Path, stop_at: int | None = None) -> Summary:
    ear = Ear(stop_at)
    source = open_resume(path, ear.notice)
    result = train(config, backend, NOWHERE, resume=source, listener=ear, stop_requested=ear.stop)
    assert ear.notices == []
    return result


def end_of(summary: Summary) -> Checkpoint:
    assert summary.checkpoint is not None
    return read_checkpoint(summary.checkpoint)


def records(run: Path) -> tuple[str, list[dict[str, object]]]:
    """metrics.csv, and log.jsonl without times and without what a resume adds."""
    timed = ("seconds", "images_per_second", "time")
    lines = [json.loads(line) for line in (run / LOG).read_text().splitlines()]
    kept = [
        {key: value for key, value in line.items() if key not in timed}
        for line in lines
        if line["event"] in ("train", "validation")
    ]
    return (run / CSV).read_text(), kept


def assert_equal(one: Checkpoint, other: Checkpoint) -> None:
    assert set(one.arrays) == set(other.arrays)
    for name, array in one.arrays.items():
        assert array.tobytes() == other.arrays[name].tobytes(), name
    assert one.state == other.state
    assert replace(one.provenance, config="") == replace(other.provenance, config="")


RULES = {
    "plain": (),
    "momentum": ("optimizer.momentum=0.9",),
    "everything": (
        "optimizer.momentum=0.9",
        "optimizer.nesterov=true",
        "optimizer.weight_decay=0.01",
        "optimizer.clip_norm=0.5",
        "schedule={type: cosine, warmup: {steps: 5}}",
        *VALIDATED,
    ),
    "adam": ("optimizer={type: adam, lr: 0.01, weight_decay: 0.01, clip_norm: 0.5}",),
    "adamw, averages": (
        "optimizer={type: adamw, lr: 0.01, ema: {decay: 0.8}, lookahead: {every: 4}}",
        *VALIDATED,
    ),
    "muon": (
        "optimizer={type: muon, lr: 0.1, rescale: true, rest: {type: adam, lr: 0.01}, "
        "ema: {decay: 0.8}}",
        *VALIDATED,
    ),
    # Both groups change in the middle of an epoch; 13 lies in the third phase.
    "groups": (
        "optimizer={type: adam, lr: 0.01, clip_norm: 0.5, groups: ["
        "{parameters: conv2d_1.*, freeze_after_epoch: 1.2},"
        "{kind: bias, lr_factor: 2, freeze_until_epoch: 0.3, schedule: {type: poly}}]}",
    ),
    "parts": (
        "optimizer={type: sgd, lr: 0.05, momentum: 0.9, clip_norm: 0.5, ema: {decay: 0.8}, "
        "groups: [{parameters: conv2d_1.weight, freeze_after_epoch: 1}]}",
        "train.accumulate=4",
        *VALIDATED,
    ),
    "composites": (
        "layers.1={residual: {body: [{conv2d: {filters: 8, kernel_size: 3, padding: 1}}, "
        "batch_norm, relu, dropout], shortcut: padding}}",
        "layers.2={concat: {branches: [[{conv2d: {filters: 3, kernel_size: 2, stride: 2}}], "
        "[max_pool2d, {residual: {body: [tanh]}}]]}}",
        "optimizer={type: sgd, lr: 0.01, momentum: 0.9}",
        *VALIDATED,
    ),
}


# 10 steps are an epoch, a line of the log comes every 4.
@pytest.mark.parametrize("split", [1, 8, 10, 13])
@pytest.mark.parametrize("rule", list(RULES))
def test_a_resume_changes_no_bit(tiny: Make, backend: Backend, rule: str, split: int) -> None:
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


def test_many_interruptions_change_no_bit(tiny: Make, reference: Backend) -> None:
    config = tiny(*RULES["everything"])
    whole = go(config, reference)
    part = go(config, reference, stop_at=0)
    assert part.step == 0
    for step in (3, 4, 11, 20, 24):
        part = resume(config, reference, part.run, stop_at=step)
        assert part.step == step
    done = resume(config, reference, part.run)
    assert_equal(end_of(whole), end_of(done))
    assert records(whole.run) == records(done.run)


def test_the_best_of_before_is_not_forgotten(tiny: Make, reference: Backend) -> None:
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


def test_how_steps_are_cut_into_chunks_changes_no_bit(
    tiny: Make, backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tiny(*RULES["momentum"])
    single = go(config, backend)
    monkeypatch.setattr(pace, "CHUNK_SECONDS", 100.0)
    assert_equal(end_of(single), end_of(go(config, backend)))


def test_a_finished_run_goes_on_with_more_steps(tiny: Make, reference: Backend) -> None:
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


def test_records_beyond_the_restored_step_are_cut(tiny: Make, reference: Backend) -> None:
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


def test_a_damaged_newest_checkpoint_is_told_and_made_again(tiny: Make, reference: Backend) -> None:
    config = tiny("checkpoint.every_steps=6")
    whole = go(config, reference)
    half = go(config, reference, stop_at=14)
    assert half.checkpoint is not None
    half.checkpoint.write_bytes(half.checkpoint.read_bytes()[:-1])
    ear = Ear()
    source = open_resume(half.run, ear.notice)
    assert "step-14.safetensors" in ear.notices[0]
    assert "using step-12.safetensors" in ear.notices[0]
    done = train(config, reference, NOWHERE, resume=source)
    assert_equal(end_of(whole), end_of(done))
    assert records(whole.run) == records(done.run)
    assert not half.checkpoint.exists()


def test_a_moved_checkpoint_goes_on_in_a_new_folder(
    tiny: Make, reference: Backend, tmp_path: Path
) -> None:
    config = tiny(*RULES["momentum"])
    whole = go(config, reference)
    half = go(config, reference, stop_at=13)
    assert half.checkpoint is not None
    moved = half.checkpoint.rename(tmp_path / "moved.safetensors")
    done = resume(config, reference, moved)
    assert done.run.name == "tiny-3"
    assert_equal(end_of(whole), end_of(done))


def test_optimizer_state_is_part_of_the_checkpoint(tiny: Make, reference: Backend) -> None:
    summary = go(tiny(*RULES["momentum"]), reference, stop_at=3)
    found = end_of(summary).arrays
    assert {name for name in found if name.startswith("momentum/")} == {
        f"momentum/{layer}.{kind}"
        for layer in ("conv2d_1", "dense_1")
        for kind in ("weight", "bias")
    }
    assert np.abs(found["momentum/dense_1.weight"]).max() > 0


def _layout(config: RunConfig, run: Path, layout: str) -> None:
    """Rewrite the newest checkpoint of a run as if its convolution had another layout."""
    found = newest_checkpoint(run / "checkpoints")
    table = found.provenance.tuning
    choices = dict.fromkeys(table.choices, layout)
    other = replace(table, choices=choices)
    provenance = replace(found.provenance, tuning=other)
    write_checkpoint(run / "checkpoints", found.arrays, found.state, provenance, keep=3)


def test_a_resume_takes_the_tuning_of_the_checkpoint(
    tiny: Make, onednn: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tiny(*RULES["momentum"])
    ends = {}
    for layout in ("nchw", "nhwc"):
        start = go(config, onednn, stop_at=0)
        _layout(config, start.run, layout)
        half = resume(config, onednn, start.run, stop_at=13)
        # Another process has measured again meanwhile and found the other layout.
        kept = end_of(half).provenance.tuning
        other = {"nchw": "nhwc", "nhwc": "nchw"}[layout]
        tuning.store(replace(kept, choices=dict.fromkeys(kept.choices, other)))
        ends[layout] = end_of(resume(config, onednn, half.run))
        assert set(ends[layout].provenance.tuning.choices.values()) == {layout}
        straight = go(config, onednn, stop_at=0)
        _layout(config, straight.run, layout)
        assert_equal(ends[layout], end_of(resume(config, onednn, straight.run)))
    one, two = ends["nchw"].arrays, ends["nhwc"].arrays
    assert any(one[name].tobytes() != two[name].tobytes() for name in one)


def test_a_swapped_tuning_changes_the_last_bits(tiny: Make, onednn: Backend) -> None:
    config = tiny(*RULES["momentum"])
    start = go(config, onednn, stop_at=0)
    _layout(config, start.run, "nchw")
    whole = end_of(resume(config, onednn, start.run))
    start = go(config, onednn, stop_at=0)
    _layout(config, start.run, "nchw")
    half = resume(config, onednn, start.run, stop_at=13)
    _layout(config, half.run, "nhwc")
    swapped = end_of(resume(config, onednn, half.run))
    differ = [n for n, a in whole.arrays.items() if a.tobytes() != swapped.arrays[n].tobytes()]
    assert differ
    for name in differ:
        np.testing.assert_allclose(whole.arrays[name], swapped.arrays[name], rtol=0.01, atol=1e-4)


def test_another_backend_goes_on_and_says_that_bits_may_differ(
    tiny: Make, reference: Backend, onednn: Backend
) -> None:
    config = tiny(*RULES["momentum"])
    half = go(config, onednn, stop_at=13)
    ear = Ear()
    source = open_resume(half.run, ear.notice)
    done = train(config, reference, NOWHERE, resume=source, listener=ear)
    assert len(ear.notices) == 1
    assert "onednn" in ear.notices[0]
    whole = end_of(go(config, reference)).arrays
    for name, array in end_of(done).arrays.items():
        np.testing.assert_allclose(array, whole[name], rtol=0.01, atol=1e-4)


@pytest.mark.parametrize(
    ("override", "wanted"),
    [
        ("seed=8", "seed: 7 -> 8"),
        ("data.batch_size=8", "data.batch_size: 16 -> 8"),
        ("data.validation=40", "data.validation: 32 -> 40"),
        ("data.normalize.mean=0.5", "data.normalize"),
        ("layers.0.filters=5", "layers.0"),
        ("data.dataset={strokes: {train_count: 300}}", "data.dataset"),
    ],
)
def test_a_config_that_does_not_fit_lists_the_differences(
    tiny: Make, reference: Backend, override: str, wanted: str
) -> None:
    half = go(tiny(), reference, stop_at=1)
    source = open_resume(half.run, lambda text: None)
    with pytest.raises(CheckpointError, match="does not fit the config") as caught:
        train(tiny(override), reference, NOWHERE, resume=source)
    assert wanted in str(caught.value)
    # The folder was let go.
    open_resume(half.run, lambda text: None).close()


def test_what_may_change_is_told(tiny: Make, reference: Backend) -> None:
    half = go(tiny(), reference, stop_at=1)
    ear = Ear()
    source = open_resume(half.run, ear.notice)
    changed = tiny("optimizer.lr=0.01", "train.max_steps=3", "train.log_every=2")
    done = train(changed, reference, NOWHERE, resume=source, listener=ear)
    assert done.step == 3
    assert ear.notices == ["resuming with a changed config: optimizer.lr: 0.05 -> 0.01"]


def test_momentum_cannot_appear_from_nowhere(tiny: Make, reference: Backend) -> None:
    half = go(tiny(), reference, stop_at=1)
    source = open_resume(half.run, lambda text: None)
    with pytest.raises(CheckpointError, match=r"lacks 'momentum/conv2d_1\.weight'"):
        train(tiny("optimizer.momentum=0.9"), reference, NOWHERE, resume=source)


def test_a_shorter_training_than_the_checkpoint(tiny: Make, reference: Backend) -> None:
    half = go(tiny(), reference, stop_at=9)
    source = open_resume(half.run, lambda text: None)
    with pytest.raises(CheckpointError, match=r"is of step 9, but the config ends .* 5 steps"):
        train(tiny("train.max_steps=5"), reference, NOWHERE, resume=source)


def test_a_run_in_use_is_not_resumed(tiny: Make, tmp_path: Path) -> None:
    with (
        create_run(tmp_path, "tiny", effective_yaml(tiny()), print) as run,
        pytest.raises(LockedError),
    ):
        open_resume(run.path, print)


def test_what_cannot_be_resumed(tiny: Make, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="is not the folder of a run"):
        open_resume(tmp_path, print)
    with pytest.raises(CheckpointError, match="no such file"):
        open_resume(tmp_path / "missing.safetensors", print)


def test_checkpoints_without_manifests_are_not_written_over(tiny: Make, reference: Backend) -> None:
    """A lost manifest must not cost the checkpoint: it verifies itself when it is named."""
    half = go(tiny(*RULES["momentum"]), reference, stop_at=9)
    (saved,) = (half.run / "checkpoints").glob("step-*.safetensors")
    saved.with_name("step-5.safetensors").write_bytes(saved.read_bytes())
    for manifest in saved.parent.glob("*.json"):
        manifest.unlink()
    with pytest.raises(CheckpointError, match=r"step-5.*have no manifests.*--resume .*step-9"):
        open_resume(half.run, print)
    open_resume(saved, print).close()


def test_a_run_without_a_checkpoint_starts_over_in_its_folder(
    tiny: Make, reference: Backend
) -> None:
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


def test_what_follows_the_length_is_told_when_that_changes(tiny: Make, reference: Backend) -> None:
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

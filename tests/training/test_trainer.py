"""A training from its start to its end: what it writes, says, keeps, and how it fails."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from dnnstack.common.errors import CheckpointError, DatasetError, NonFiniteError, ShapeError
from dnnstack.configs import effective_yaml, parse_config
from dnnstack.reports.history import History
from dnnstack.training.listener import Listener, Progress, Started
from dnnstack.training.records.formats import store as checkpoint_store
from dnnstack.training.records.formats.state import Metrics
from dnnstack.training.records.formats.store import checkpoint_steps, newest_checkpoint
from dnnstack.training.records.numerics import versions_of
from dnnstack.training.trainer import train

NOWHERE = Path("unused")


class Ear(Listener):
    def __init__(self) -> None:
        self.heard: list[tuple[Any, ...]] = []

    def notice(self, text: str) -> None:
        self.heard.append(("notice", text))

    def started(self, started: Started) -> None:
        self.heard.append(("started", started))

    def progressed(self, progress: Progress) -> None:
        self.heard.append(("progressed", progress))

    def logged(self, progress: Progress) -> None:
        self.heard.append(("logged", progress))

    def validated(self, step: int, metrics: Metrics, best: bool, seconds: float) -> None:
        self.heard.append(("validated", step, metrics, best))

    def saving(self, step: int, path: Path) -> None:
        self.heard.append(("saving", step, path))

    def of(self, kind: str) -> list[tuple[Any, ...]]:
        return [entry[1:] for entry in self.heard if entry[0] == kind]


def log_of(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]


def test_what_a_run_leaves_behind(tiny, backend):
    config = tiny("checkpoint={every_epochs: 1, keep: 2, best: false}")
    ear = Ear()
    summary = train(config, backend, NOWHERE, listener=ear)
    assert summary.state == "finished"
    assert (summary.step, summary.total_steps, summary.epoch) == (25, 25, 2.5)
    run = summary.run
    assert (run.parent / "latest").resolve() == run.resolve()
    assert parse_config((run / "config.yaml").read_text(), "x") == config
    assert checkpoint_steps(run / "checkpoints") == [25, 20]
    assert [entry["event"] for entry in log_of(run)] == [
        "start",
        *("train", "train", "validation", "checkpoint"),
        *("train", "train", "train", "validation", "checkpoint"),
        *("train", "train", "validation", "checkpoint"),
        "end",
    ]
    end = log_of(run)[-1]
    assert end["state"] == "finished"
    times = ("training_seconds", "validation_seconds", "saving_seconds")
    assert [end[name] for name in times] == [getattr(summary, name) for name in times]
    assert min(end[name] for name in times) > 0.0
    history = History.of(summary)
    assert history.seconds == sum(end[name] for name in times)
    assert (history.validation_seconds, history.saving_seconds) == tuple(end[n] for n in times[1:])
    rows = [line.split(",") for line in (run / "metrics.csv").read_text().splitlines()[1:]]
    assert [(row[0], row[2]) for row in rows] == [
        *(("4", "train"), ("8", "train"), ("10", "validation")),
        *(("12", "train"), ("16", "train"), ("20", "train"), ("20", "validation")),
        *(("24", "train"), ("25", "train"), ("25", "validation")),
    ]
    assert [float(row[1]) for row in rows[:3]] == [0.4, 0.8, 1.0]
    (started,) = ear.of("started")[0]
    assert (len(started.plan.train), len(started.plan.validation)) == (168, 32)
    assert started.backend == backend.name
    assert [entry[0] for entry in ear.of("saving")] == [10, 20, 25]
    assert [p.metrics.count for (p,) in ear.of("logged")] == [64] * 6 + [16]
    assert ear.of("progressed")[0][0].step == 1
    last = ear.of("progressed")[-1][0]
    assert (last.step, last.epoch, last.seconds_left) == (25, 2.5, 0.0)
    assert last.images_per_second > 0


def test_the_checkpoint_holds_what_others_need(tiny, backend):
    config = tiny()
    found = newest_checkpoint(train(config, backend, NOWHERE).run / "checkpoints").provenance
    assert found.config == effective_yaml(config)
    assert found.classes == tuple("0123456789")
    assert found.input_shape == (1, 28, 28)
    assert found.dataset == "strokes"
    assert found.preprocessing.scale == (1 / 255,)
    assert found.tuning.backend == backend.name
    assert found.versions == versions_of(backend)


def test_the_best_on_validation_is_kept(tiny, reference):
    config = tiny(
        "train={epochs: 8, log_every: 10}",
        "optimizer={type: sgd, lr: 0.3, momentum: 0.9}",
        "checkpoint={every_epochs: 1, keep: 1, best: true}",
    )
    ear = Ear()
    summary = train(config, reference, NOWHERE, listener=ear)
    validated = ear.of("validated")
    best = max(validated, key=lambda entry: (entry[1].accuracy, -entry[1].loss))
    assert summary.best is not None
    assert (summary.best.step, summary.best.accuracy) == (best[0], best[1].accuracy)
    assert set(checkpoint_steps(summary.run / "checkpoints")) == {80, best[0]}
    assert best[0] < 80, "the last is the best: the test shows nothing"
    record: tuple[float, float] = (-1.0, 0.0)
    for _, metrics, better in validated:
        assert better == ((metrics.accuracy, -metrics.loss) > record)
        record = max(record, (metrics.accuracy, -metrics.loss))


def test_the_last_good_checkpoint_stays(tiny, reference):
    # The rate grows by warmup: the first steps are harmless.
    config = tiny(
        "optimizer.lr=1e36",
        "schedule={type: fixed, warmup: {steps: 1000, start_factor: 0}}",
        "checkpoint={every_steps: 1, keep: 3, best: false}",
    )
    with pytest.raises(NonFiniteError):
        train(config, reference, NOWHERE)
    steps = checkpoint_steps(Path(config.run.dir) / "tiny" / "checkpoints")
    assert steps
    newest_checkpoint(Path(config.run.dir) / "tiny" / "checkpoints")


def test_a_full_disk_stops_the_run(tiny, reference, monkeypatch):
    def full(*args: Any) -> Path:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoint_store, "write_checkpoint", full)
    with pytest.raises(CheckpointError, match="No space left on device"):
        train(tiny("checkpoint={every_steps: 5}"), reference, NOWHERE)
    assert log_of(Path(tiny().run.dir) / "tiny")[-1]["state"] == "failed"


def test_a_wrong_shape_is_told_before_data_and_folder(tiny, reference, monkeypatch):
    def never(*args: Any) -> None:
        raise AssertionError("data was read")

    monkeypatch.setattr("dnnstack.training.trainer.load_data", never)
    config = tiny("layers=[{dense: {units: 10}}]")
    with pytest.raises(ShapeError, match="layer 1 'dense_1'"):
        train(config, reference, NOWHERE, file=Path("tiny.yaml"))
    assert not Path(config.run.dir).exists()


def test_missing_data_makes_no_folder(tiny, reference, tmp_path):
    config = tiny("data.dataset=mnist")
    with pytest.raises(DatasetError):
        train(config, reference, tmp_path)
    assert not Path(config.run.dir).exists()

"""Loggers: what other tools get of a training, also of one that is resumed or goes back."""

from __future__ import annotations

import json
import struct
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import dnnstack
import numpy as np
import pytest
from dnnstack.configs import parse_config
from dnnstack.reports.loggers import tensorboard
from dnnstack.training import trainer

from ..support.training_fixtures import TINY

STUB = """
import json
from pathlib import Path
FILE, FAILS = Path({file!r}), {fails!r}
def _told(*what):
    with FILE.open("a") as file:
        file.write(json.dumps(what, default=str) + "\\n")
class Image:
    def __init__(self, picture):
        self.size = picture.size
    def __str__(self):
        return "x".join(map(str, self.size))
class Run:
    def log(self, values, step):
        if step == FAILS:
            raise OSError("no network")
        _told("log", step, values)
    def finish(self):
        _told("finish")
def init(**given):
    print("logged in")
    _told("init", given)
    return Run()
def finish():
    _told("finish")
"""


@pytest.fixture
def trained(tmp_path):
    """Trains the tiny network of 10 steps an epoch with these overrides."""

    def train(*overrides: str, **given: Any) -> dnnstack.History:
        where = f"run={{device: numpy, dir: {tmp_path / 'runs'}}}"
        config = parse_config(TINY, "tiny.yaml", [where, *overrides])
        return dnnstack.train(config.model_dump(), **given)

    return train


@pytest.fixture
def stub(tmp_path, monkeypatch):
    """Makes a module of the interface of wandb; returns what reads the calls."""

    def make(name: str, fails: int | None = None) -> Any:
        file = tmp_path / f"{name}-calls"
        text = STUB.format(file=str(file), fails=fails)
        (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.delitem(sys.modules, name, raising=False)
        monkeypatch.delenv(f"{name.upper()}_PROJECT", raising=False)
        return lambda: [json.loads(line) for line in file.read_text().splitlines()]

    return make


def _events(run: Path) -> list[Any]:
    """What the only file of events holds, each with its step."""
    from tensorboardX.proto.event_pb2 import Event

    (path,) = (run / "tensorboard").iterdir()
    data, found = path.read_bytes(), []
    while data:
        (length,) = struct.unpack("<Q", data[:8])
        event = Event.FromString(data[12 : 12 + length])
        found += [(event.step, value) for value in event.summary.value]
        data = data[16 + length :]
    return found


def _scalars(run: Path) -> set[tuple[int, str, float]]:
    found = [(s, v.tag, v.simple_value) for s, v in _events(run) if v.HasField("simple_value")]
    assert len(found) == len(set(found))
    return set(found)


def _logged(run: Path) -> set[tuple[int, str, float]]:
    """The same of the log."""
    found = set()
    for line in map(json.loads, (run / "log.jsonl").read_text().splitlines()):
        for name in tensorboard._SCALARS.get(line["event"], ()):
            if line.get(name) is not None:
                tag = f"{line['event']}/{name}"
                found.add((line["step"], tag, float(np.float32(line[name]))))
    return found


def test_tensorboard_has_what_the_log_has(trained):
    run = trained("train.loggers=[tensorboard]").run
    assert _scalars(run) == _logged(run)
    steps = {step for step, tag, _ in _scalars(run) if tag == "train/loss"}
    assert steps == {4, 8, 12, 16, 20, 24, 25}
    assert {tag for _, tag, _ in _scalars(run)} >= {"validation/loss", "train/learning_rate"}
    others = {value.tag: (step, value) for step, value in _events(run)}
    pictures = {tag: step for tag, (step, value) in others.items() if value.HasField("image")}
    assert pictures == {"samples": 0, "filters": 25, "confusion": 25, "mistakes": 25}
    # Four rows of sixteen.
    assert (others["samples"][1].image.width, others["samples"][1].image.height) == (1022, 304)
    said = others["layers/text_summary"][1].tensor.string_val[0].decode()
    assert "    conv2d_1  conv2d  4x12x12\n" in said
    assert "lr: 0.05" in others["config/text_summary"][1].tensor.string_val[0].decode()
    content = others["_hparams_/session_start_info"][1].metadata.plugin_data.content
    assert b"optimizer.lr" in content
    assert "_hparams_/session_end_info" in others


def test_pictures_of_the_end_need_an_end_and_validation(trained, caplog):
    class Stop(dnnstack.Callback):
        def on_log(self, logs: dict[str, Any]) -> None:
            self.stop_training = True

    keys = ("train.loggers=[tensorboard]", "data.validation=0")
    for given in ({"callbacks": [Stop()]}, {"resume": True}):
        run = trained(*keys, **given).run
        assert {value.tag for _, value in _events(run) if value.HasField("image")} == {"samples"}
    # Stopped after a validation.
    late = Stop()
    late.on_validation_end, late.on_log = late.on_log, late.on_train_begin  # type: ignore[method-assign]
    stopped = trained(keys[0], "name=other", callbacks=[late])
    assert stopped.state == "interrupted"
    tags = {value.tag for _, value in _events(stopped.run) if value.HasField("image")}
    assert tags == {"samples"}
    assert not [r for r in caplog.records if "loggers: " in r.getMessage()]


def test_tensorboard_has_each_step_once_after_a_resume(trained):
    """Also where the logger is new, or the last line was that of an end that is none any more."""
    first = trained("train.max_steps=10")
    assert not (first.run / "tensorboard").exists()
    for steps in (18, 30):
        length = f"train={{max_steps: {steps}, log_every: 4, loggers: [tensorboard]}}"
        run = trained(length, resume=True).run
        assert run == first.run
        assert _scalars(run) == _logged(run)
    assert {step for step, *_ in _scalars(run)} >= {4, 10, 16, 20, 30}
    assert not {step for step, tag, _ in _scalars(run) if tag == "train/loss"} & {10, 18}


@pytest.mark.parametrize("every", [4, 10])
def test_tensorboard_goes_back_with_a_training(trained, monkeypatch, every):
    bad = iter([1.0, float("nan")])
    real = trainer.Session.validate

    def validate(session: Any, stop: Any) -> Any:
        found = real(session, stop)
        return replace(found, loss=found.loss * next(bad, 1.0))

    monkeypatch.setattr(trainer.Session, "validate", validate)
    length = f"max_steps: 25, log_every: {every}"
    rolling = f"train={{{length}, on_nan: rollback, loggers: [tensorboard]}}"
    run = trained(rolling, "checkpoint={every_epochs: 1}").run
    assert '"rollback"' in (run / "log.jsonl").read_text()
    assert _scalars(run) == _logged(run)


@pytest.mark.parametrize("name", ["wandb", "trackio"])
def test_a_tracker_gets_each_step_once(trained, stub, name, capsys):
    calls = stub(name)
    key = f"train.loggers=[{name}]"
    stop = [lambda logs: None]
    trained(key, "train.max_steps=12", callbacks=stop)
    run = trained(key, resume=True).run
    assert capsys.readouterr().out == ""
    first, second = (given for what, *given in calls() if what == "init")
    assert first[0]["config"]["optimizer"]["lr"] == 0.05
    same = "id" if name == "wandb" else "name"
    assert first[0][same] == second[0][same]
    assert first[0]["project"] == "tiny"
    assert [what for what, *_ in calls()].count("finish") == 2
    sent = [(step, values) for what, step, values in (c for c in calls() if c[0] == "log")]
    log = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    for event in ("train", "validation"):
        loss = f"{event}/loss"
        told = {step: values[loss] for step, values in sent if loss in values}
        assert len(told) == sum(loss in values for _, values in sent)
        assert told.items() >= {e["step"]: e["loss"] for e in log if e["event"] == event}.items()
    for picture, steps in (("samples", [0, 12]), ("confusion", [12, 25])):
        assert [step for step, values in sent if picture in values] == steps


def test_prometheus(trained):
    seen = []

    def look(logs: dict[str, Any]) -> None:
        path = runs[0] / "metrics.prom"
        seen.append(path.read_text() if path.exists() else "")

    class Where(dnnstack.Callback):
        def on_train_begin(self, logs: dict[str, Any]) -> None:
            runs.append(logs["run"])

    runs: list[Path] = []
    found = trained("train.loggers=[prometheus]", "name=a", callbacks=[Where(), look])
    assert 'dnnstack_running{run="a"} 1.0\n' in seen[1]
    assert 'dnnstack_step{run="a"} 4.0\n' in seen[1]
    lines = (found.run / "metrics.prom").read_text().splitlines()
    values = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    assert float(values['dnnstack_loss{run="a",split="train"}']) == found.history["loss"][-1]
    last = found.history["val_accuracy"][-1]
    assert float(values['dnnstack_accuracy{run="a",split="validation"}']) == last
    assert values['dnnstack_running{run="a"}'] == "0.0"
    assert values['dnnstack_step{run="a"}'] == values['dnnstack_total_steps{run="a"}'] == "25.0"
    types = [line for line in lines if line.startswith("# TYPE")]
    assert len(types) == len(set(types)) == len({key.split("{")[0] for key in values})
    assert all(line.endswith(" gauge") for line in types)


@pytest.mark.parametrize("fails", [0, 8, 25])
def test_one_that_fails_changes_no_bit(trained, stub, caplog, fails):
    """At its pictures, in the middle, or at the end."""
    plain = trained()
    calls = stub("wandb", fails)
    found = trained("train.loggers=[wandb, prometheus]")
    warned = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
    failed = "train.loggers: wandb failed and hears no more: OSError: no network"
    assert [text for text in warned if "loggers" in text] == [failed]
    # It is closed, as at the end.
    assert [what for what, *_ in calls()].count("finish") == 1
    assert (found.run / "metrics.prom").exists()
    assert (found.run / "metrics.csv").read_bytes() == (plain.run / "metrics.csv").read_bytes()
    name = Path("checkpoints") / "step-25.safetensors"
    assert (found.run / name).read_bytes()[-4096:] == (plain.run / name).read_bytes()[-4096:]


@pytest.mark.parametrize(
    ("name", "package", "wanted"),
    [
        ("tensorboard", "tensorboardX", r"'dnnstack\[tensorboard\]'"),
        ("wandb", "wandb", "wandb"),
        ("trackio", "trackio", "trackio"),
    ],
)
def test_a_missing_package_is_said_first(trained, tmp_path, monkeypatch, name, package, wanted):
    monkeypatch.setattr(trainer, "find_spec", lambda package: None)
    said = rf"needs the package {package}: python3 -m pip install {wanted}$"
    with pytest.raises(dnnstack.DnnstackError, match=said):
        trained(f"train.loggers=[{name}]")
    assert not (tmp_path / "runs").exists()


def test_runs_of_a_group_have_loggers(tmp_path, caplog):
    """And are calibrated, by the samples that they share."""
    where = f"run={{device: numpy, dir: {tmp_path / 'runs'}}}"
    keys = ("train.loggers=[tensorboard, prometheus]", "evaluate.calibrate=true")
    config = parse_config(TINY, "tiny.yaml", [where, *keys])
    report = dnnstack.train_group(config.model_dump(), seeds=2)
    assert [r.getMessage() for r in caplog.records if "pictures" in r.getMessage()] == []
    for run in (report.path / "seed-7", report.path / "seed-8"):
        assert _scalars(run) == _logged(run)
        assert {value.tag for _, value in _events(run)} >= {"samples", "confusion"}
        assert "dnnstack_running" in (run / "metrics.prom").read_text()
        assert [*(run / "checkpoints").glob("*calibration*")]


def test_missing_packages_are_said_before_a_group(tmp_path, monkeypatch):
    monkeypatch.setattr(trainer, "find_spec", lambda package: None)
    config = parse_config(TINY, "tiny.yaml", [f"run.dir={tmp_path}", "train.loggers=[wandb]"])
    with pytest.raises(dnnstack.DnnstackError, match="needs the package wandb"):
        dnnstack.train_group(config.model_dump(), seeds=2)
    assert not [*tmp_path.rglob("config.yaml")]


def test_files_that_cannot_be_written_are_warnings(trained, caplog):
    run = trained("train.max_steps=10").run
    (run / "tensorboard").write_text("")
    (run / "metrics.prom").mkdir()
    found = trained("train={max_steps: 20, loggers: [tensorboard, prometheus]}", resume=True)
    assert (found.run, found.state, found.step) == (run, "finished", 20)
    warned = [r.getMessage() for r in caplog.records if "loggers: " in r.getMessage()]
    assert sorted(text.split(" failed ")[0] for text in warned) == [
        *("train.loggers: prometheus", "train.loggers: tensorboard")
    ]


def test_threads_keep_their_standard_output(trained, stub, capsys):
    """Two trainings with a tool that prints."""
    stub("wandb")
    given = [("train.loggers=[wandb]", f"name={name}") for name in "ab"]
    work = [threading.Thread(target=trained, args=args) for args in given]
    before = sys.stdout
    for each in work:
        each.start()
    for each in work:
        each.join()
    assert sys.stdout is before
    assert capsys.readouterr().out == ""

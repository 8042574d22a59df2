"""``dnnstack.train_group`` and ``dnnstack.sweep``."""

from __future__ import annotations

import json
import logging
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import dnnstack
import pytest
from dnnstack.common.errors import CheckpointError, ConfigError, DnnstackError, UsageError
from dnnstack.many import trainings
from dnnstack.reports.sweep_report import SweepReport

from ..support.training_fixtures import TINY


def test_a_group_and_its_report(tmp_path):
    (tmp_path / "tiny.yaml").write_text(TINY, encoding="utf-8")
    config = tmp_path / "tiny.yaml"

    given = {"device": "numpy", "runs_dir": tmp_path / "runs", "seeds": 2}
    whole = dnnstack.train_group(config, resume="auto", **given)  # type: ignore[arg-type]
    assert (whole.finished, whole.planned) == (2, 2)
    assert whole.spreads["accuracy"].minimum <= whole.spreads["accuracy"].mean
    for resume in (True, "auto"):
        again = dnnstack.train_group(config, resume=resume, **given)  # type: ignore[arg-type]
        assert (again.path, again.runs) == (whole.path, whole.runs)
    assert re.fullmatch(
        r"<GroupReport of '.*tiny-seeds': 2 of 2 seeds finished, accuracy [\d.]+% on average, "
        r"deviation [\d.]+%>",
        repr(again),
    )
    compared = dnnstack.compare(*(again.path / name for name in again.runs), device="numpy")
    assert re.fullmatch(
        r"<Comparison on strokes \(test\), 20 samples: [\d.]+% and [\d.]+%, difference [+-][\d.]+%"
        r" \(95%: [+-][\d.]+% to [+-][\d.]+%\), p = [\d.]+>",
        repr(compared),
    )
    with pytest.raises(dnnstack.DnnstackError, match=r"^seeds: expected at least 2"):
        dnnstack.train_group(config, seeds=1)
    with pytest.raises(dnnstack.DnnstackError, match=r'take all with dnnstack.load_ensemble\("'):
        dnnstack.load("tiny-seeds", runs_dir=tmp_path / "runs")
    with pytest.raises(TypeError, match="either seeds or folds"):
        dnnstack.train_group(config)


def _searched(folder: Path, **given: Any) -> SweepReport:
    where = {"device": "numpy", "threads": 1, "runs_dir": folder / "runs"}
    return dnnstack.sweep(folder / "tiny.yaml", **where, **given)


@pytest.fixture
def search(tmp_path: Path) -> Path:
    values = "{sampler: grid, keys: {optimizer.lr: [0.1, 0.05, 0.01]}}"
    (tmp_path / "tiny.yaml").write_text(f"{TINY}search: {values}\n", encoding="utf-8")
    return tmp_path


def test_a_sweep_in_this_process_and_by_workers(search: Path) -> None:
    alone, apart = (_searched(search, workers=count) for count in (1, 2))
    assert [each.path.name for each in (alone, apart)] == ["tiny-sweep", "tiny-sweep-2"]
    assert len(alone.trials) == 3
    assert {trial.state for trial in alone.trials} == {"complete"}
    found = [
        {each.params["optimizer.lr"]: (each.state, each.values) for each in report.trials}
        for report in (alone, apart)
    ]
    assert found[0] == found[1]
    assert alone.best_config is not None
    assert apart.best_config is not None
    assert alone.best_config.read_bytes() == apart.best_config.read_bytes()
    for resume in (True, "auto", "tiny-sweep-2"):
        assert _searched(search, workers=2, resume=resume).path == apart.path


def test_runs_by_workers_are_those_of_this_process(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "tiny.yaml").write_text(TINY, encoding="utf-8")
    where = {"device": "numpy", "threads": 1, "runs_dir": tmp_path / "runs", "seeds": 2}
    table = dnnstack.load_config(tmp_path / "tiny.yaml")
    alone = dnnstack.train_group(table, **where)  # type: ignore[arg-type]
    apart = dnnstack.train_group(table, workers=2, **where)  # type: ignore[arg-type]
    assert alone.path != apart.path
    for name in alone.runs:
        texts = [(each.path / name / "metrics.csv").read_text("utf-8") for each in (alone, apart)]
        assert texts[0] == texts[1]
    with caplog.at_level(logging.INFO, "dnnstack"):
        change = {"train.goal": {"accuracy": 0.01}, "optimizer.lr": 1e30}
        failed = dnnstack.train_group(table, workers=2, overrides=change, **where)  # type: ignore[arg-type]
    assert failed.finished == 0
    assert any("seed-" in text for text in caplog.messages)


def test_an_error_of_the_process_of_workers_is_raised_here(search: Path) -> None:
    _searched(search, workers=2)
    with pytest.raises(CheckpointError, match=r"was begun with another config"):
        _searched(search, workers=2, resume=True, overrides={"train.epochs": 3})
    (search / "tiny.yaml").write_text(TINY, encoding="utf-8")
    with pytest.raises(ConfigError, match="has no block 'search'"):
        _searched(search)
    for workers in (0, 1025):
        with pytest.raises(UsageError, match=f"workers: expected .* from 1 to 1024 .got {workers}"):
            _searched(search, workers=workers)
    with pytest.raises(UsageError, match="callbacks: expected none with workers"):
        dnnstack.train_group(search / "tiny.yaml", seeds=2, workers=2, callbacks=[print])


@pytest.mark.parametrize("long", [False, True], ids=["a short job", "a job that fills a pipe"])
def test_a_process_of_workers_that_cannot_start_says_why(
    search: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], long: bool
) -> None:
    (search / "strange").mkdir()
    (search / "strange" / "pydantic.py").write_text("raise OSError('no such thing')\n", "utf-8")
    monkeypatch.setenv("PYTHONPATH", str(search / "strange"))
    changes = ["train.epochs=2"] * (6000 if long else 1)
    with pytest.raises(DnnstackError) as raised:
        _searched(search, workers=2, overrides=changes)
    said = str(raised.value)
    assert said.startswith("the process of the workers cannot start: OSError: no such thing; ")
    assert "workers=1" in said
    assert capfd.readouterr() == ("", "")


def test_a_process_of_workers_that_was_ended_is_told(
    search: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (search / "sitecustomize.py").write_text("import os\nos.kill(os.getpid(), 9)\n", "utf-8")
    monkeypatch.setenv("PYTHONPATH", str(search))
    with pytest.raises(DnnstackError, match="process of the workers has ended with status -9"):
        _searched(search, workers=2)


_INTERRUPTED = """
import signal, sys, threading, time
from pathlib import Path
import dnnstack

def stop():
    logs = []
    while not any('"train"' in path.read_text() for path in logs):
        time.sleep(0.05)
        logs = [*Path("runs").glob("*/seed-*/log.jsonl")]
    signal.raise_signal(signal.SIGINT)

threading.Thread(target=stop, daemon=True).start()
given = {"device": "numpy", "threads": 1, "overrides": {"train.epochs": 100000}}
try:
    dnnstack.train_group("tiny.yaml", seeds=2, workers=2, **given)
except KeyboardInterrupt as error:
    print(error)
"""


def test_ctrl_c_ends_the_workers_in_order(tmp_path: Path) -> None:
    (tmp_path / "tiny.yaml").write_text(TINY, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", _INTERRUPTED],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    wanted = "training was interrupted and saved; continue with resume='runs/tiny-seeds'\n"
    assert done.stdout == wanted
    logs = [path.read_text("utf-8") for path in tmp_path.glob("runs/tiny-seeds/seed-*/log.jsonl")]
    assert {json.loads(log.splitlines()[-1])["state"] for log in logs} == {"interrupted"}


def test_the_trainings_of_a_group_read_their_data_once(tmp_path, monkeypatch):
    (tmp_path / "tiny.yaml").write_text(TINY, encoding="utf-8")
    read: list[object] = []

    def counted(*given: object) -> object:
        read.append(given[1])
        return load_data(*given)  # type: ignore[arg-type]

    load_data = trainings.load_data
    monkeypatch.setattr(trainings, "load_data", counted)
    dnnstack.train_group(
        tmp_path / "tiny.yaml", seeds=2, device="numpy", runs_dir=tmp_path / "runs"
    )
    assert read == ["train"]

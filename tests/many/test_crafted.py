"""Folders of groups and compressions that somebody else has made: nothing in them leads elsewhere.

Their records are read as strictly as the files of YAML from which such folders begin.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from dnnstack.common.errors import CheckpointError
from dnnstack.configs import load_config
from dnnstack.configs.search import Dimension, Search
from dnnstack.many.journal import TRIALS, Journal, Trial
from dnnstack.many.planned import Planned
from dnnstack.many.sampling import need_optuna
from dnnstack.many.sweeping import read_search
from dnnstack.reports.sweep_report import report_sweep
from dnnstack.training.compressed.place import Record, StageResult, read_record
from dnnstack.training.records.group import Group, Member, read_group, write_group
from dnnstack.training.records.resume import open_member
from dnnstack.training.records.runs import create_run

RATE = Dimension("optimizer.lr", 1e-3, 1.0, log=True)
STEPS = Dimension("optimizer.momentum", 0.0, 0.5, step=0.1)
COUNT = Dimension("train.epochs", 2, 8, step=2, whole=True)
KIND = Dimension("schedule", values=("fixed", 1, True, {"type": "poly"}))
SEARCH = Search((RATE, STEPS, COUNT, KIND))


def sweep(folder: Path, search: Search | dict[str, Any] = SEARCH) -> Path:
    text = json.dumps(asdict(search) if isinstance(search, Search) else search)
    write_group(folder, Group("sweep", "name: x\n", (), text))
    return folder


@pytest.mark.parametrize(
    "search",
    [
        Search((Dimension("a", 0, 1, step=1e-4), replace(COUNT, step=0, high=10**6))),
        Search((Dimension("a", 1, 2, whole=True, step=1, log=True),), ("accuracy", "seconds")),
        Search((Dimension("a", values=(None,)),), ("loss",)),
        Search((Dimension("a", 0, 1, step=1),), ("seconds", "loss")),
    ],
)
def test_a_search_is_read_as_it_was_written(tmp_path, search):
    found = read_search(sweep(tmp_path, search))
    assert [asdict(each) for each in found.dimensions] == [
        {**asdict(each), "when": {}} for each in search.dimensions
    ]


@pytest.mark.parametrize(
    "changed",
    [
        replace(STEPS, step=1e-300),
        replace(STEPS, step=0.99e-4, high=1.0),
        replace(STEPS, step=0.6),
        replace(STEPS, step=-0.1),
        replace(STEPS, log=True, low=0.1),
        replace(RATE, low=0.0),
        replace(RATE, low=1.0),
        replace(RATE, low=2.0),
        replace(RATE, low=-math.inf, log=False),
        replace(RATE, low=-1.7e308, high=1.7e308, log=False),
        replace(KIND, log=True),
        replace(RATE, key="k" * 1001),
        Dimension("nothing"),
    ],
)
def test_a_key_that_no_file_has(tmp_path, changed):
    with pytest.raises(CheckpointError, match=r"group\.json: its search cannot be read: "):
        read_search(sweep(tmp_path, Search((changed,))))


@pytest.mark.parametrize(
    "wrong",
    [
        {"objective": []},
        {"objective": ["height"]},
        {"objective": ["loss", "loss"]},
        {"objective": ["loss", "accuracy", "seconds"]},
        {"dimensions": [asdict(RATE), asdict(RATE)]},
        {"dimensions": [{**asdict(KIND), "values": ["HUGE"]}]},
    ],
)
def test_a_search_that_no_file_has(tmp_path, wrong):
    path = sweep(tmp_path, {**asdict(SEARCH), **wrong})
    text = read_group(path).search.replace('"HUGE"', "9" * 5000)
    write_group(path, replace(read_group(path), search=text))
    with pytest.raises(CheckpointError, match=r"group\.json: its search cannot be read: "):
        read_search(path)


@pytest.mark.parametrize(
    ("each", "sound", "wrong"),
    [
        (RATE, (1e-3, 0.5, 1, 1.0), (9e-4, 1.1, True, "0.5", None, math.nan, math.inf, 10**400)),
        (STEPS, (0, 0.1, 0.1 + 0.2, 0.5), (0.05, 0.3001, -0.1, 0.6)),
        (COUNT, (2, 4, 8), (3, 4.0, 0, 10, False)),
        (KIND, ("fixed", 1, True, {"type": "poly"}), (1.0, False, "x", None, {})),
    ],
)
def test_what_a_key_can_be(each, sound, wrong):
    assert [value for value in sound if not each.takes(value)] == []
    assert [value for value in wrong if each.takes(value)] == []


BEGIN = '{"event": "begin", "trial": 0, "params": {"optimizer.lr": 0.5}}'


@pytest.mark.parametrize(
    "lines",
    [
        [BEGIN.replace("0.5", "7")],
        [BEGIN.replace("optimizer.lr", "run.dir")],
        [BEGIN.replace('"optimizer.lr": 0.5', f'"schedule": {"9" * 4000}')],
        [BEGIN, '{"event": "end", "trial": 0, "state": "complete"}'],
        [BEGIN, '{"event": "end", "trial": 0, "state": "complete", "values": [1, 2]}'],
        [BEGIN, '{"event": "end", "trial": 0, "state": "failed", "values": [1]}'],
    ],
)
def test_a_trial_that_its_search_cannot_have(tmp_path, lines):
    need_optuna()
    path = sweep(tmp_path)
    sound = BEGIN.replace('"trial": 0', '"trial": 4')
    (path / TRIALS).write_text("".join(f"{line}\n" for line in [sound, *lines]), encoding="utf-8")
    assert [trial.number for trial in Journal(path).read()] == [0, 4]
    with pytest.raises(CheckpointError, match=f"{TRIALS}: trial-1 does not fit the search"):
        report_sweep(path)
    (path / TRIALS).write_text(f"{sound}\n", encoding="utf-8")
    assert report_sweep(path).trials == [Trial(4, {"optimizer.lr": 0.5})]


def test_runs_that_others_have_added_to_a_group_are_not_trained(tmp_path):
    config = load_config("digits.yaml", [f"run.dir={tmp_path}"]).config
    planned = Planned("seeds", 2)
    path = replace(planned, count=3).folder(config)
    assert planned.folder(config, str(path)) == path
    group = read_group(path)
    added = Member("../elsewhere", ("data.root=/elsewhere",))
    write_group(path, replace(group, members=(*group.members, added)))
    with pytest.raises(CheckpointError, match="was begun with other seeds"):
        planned.folder(config, str(path))


def test_a_run_of_a_group_is_no_link(tmp_path):
    group, told = tmp_path / "group", list[str]()
    with create_run(tmp_path, "own", "name: own\n", told.append) as own:
        pass
    group.mkdir()
    assert open_member(group / "seed-1", told.append) is None
    (group / "seed-1").symlink_to(own.path)
    before = sorted(own.path.iterdir())
    with pytest.raises(CheckpointError, match="seed-1: is a symbolic link"):
        open_member(group / "seed-1", told.append)
    assert sorted(own.path.iterdir()) == before
    found = open_member(own.path, told.append)
    assert found is not None
    found.close()


def test_a_new_run_does_not_begin_behind_a_link(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "x").symlink_to(tmp_path / "elsewhere")
    with create_run(tmp_path / "runs", "x", "name: x\n", print) as run:
        assert run.path.name == "x-2"
    assert list((tmp_path / "elsewhere").iterdir()) == []


@pytest.mark.parametrize("name", ["..", "../x.dnnz", "/etc/passwd", "a/../../b", "a/", ".", "a\0b"])
def test_the_file_of_a_compression_is_in_its_folder(tmp_path, name):
    whole = json.loads(Record("x", "0" * 64, "{}", file="x.dnnz").to_json())
    (tmp_path / "compress.json").write_text(json.dumps({**whole, "file": name}), encoding="utf-8")
    with pytest.raises(CheckpointError, match="is not the name of a file or folder in it"):
        read_record(tmp_path)


@pytest.mark.parametrize(
    "path", ["a/../checkpoints/x", "x", "/checkpoints/x", "a\0b/checkpoints/x"]
)
def test_a_stage_is_in_the_folder_of_its_compression(tmp_path, path):
    stages = (StageResult("1-prune", "/elsewhere/1-prune/checkpoints/step-1.safetensors", 0.5),)
    whole = json.loads(Record("x", "0" * 64, "{}", stages=stages).to_json())
    text = json.dumps(whole)
    (tmp_path / "compress.json").write_text(text, encoding="utf-8")
    assert read_record(tmp_path).stages[0].folder == "1-prune"
    whole["stages"][0]["checkpoint"] = path
    (tmp_path / "compress.json").write_text(json.dumps(whole), encoding="utf-8")
    with pytest.raises(CheckpointError, match="is not the name of a file or folder in it"):
        read_record(tmp_path)

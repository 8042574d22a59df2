"""Files of groups and compressions: records, trials, sensitivity, and the YAML that begins them."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from typing import Any

from dnnstack.common.errors import DnnstackError
from dnnstack.configs.find import packaged_searches
from dnnstack.configs.search import Dimension, Search, load_search
from dnnstack.configs.stages import load_stages, packaged_stages
from dnnstack.many.journal import TRIALS, Journal
from dnnstack.many.planned import Planned
from dnnstack.many.sampling import need_optuna
from dnnstack.many.statistics import report_group
from dnnstack.many.sweeping import Sweep, read_search
from dnnstack.racing import Race, verified
from dnnstack.reports import (
    group_text,
    plots,
    sensitivity_report,
    staleness,
    sweep_plots,
    sweep_text,
)
from dnnstack.reports.bench import Bench, Timed
from dnnstack.reports.compressed_runs import compressed_runs
from dnnstack.reports.compression import report_compression
from dnnstack.reports.sweep_report import described, report_sweep
from dnnstack.training.compressed.place import Measured, Record, StageResult
from dnnstack.training.compressed.sensitivity import Curves, PrunedPoint, Sensitivity, SharedPoint
from dnnstack.training.records.formats.checkpoint import Checkpoint
from dnnstack.training.records.formats.dnnz import compressed_bytes
from dnnstack.training.records.formats.record import read_typed
from dnnstack.training.records.formats.run_log import LOG
from dnnstack.training.records.formats.state import START
from dnnstack.training.records.group import Group, write_group
from dnnstack.training.records.runs import COMPRESSION, GROUP, LATEST, find_run
from hypothesis import strategies as st

# Its list of fonts is read here, outside of what is watched.
from matplotlib import font_manager
from matplotlib.backends import backend_agg

from .compressed_files import _arrays
from .drawing import changed, encoded, lines, wrong_json
from .harness import LONGEST, Target
from .run_files import provenance

need_optuna()
# Loaded before the memory of a case is limited.
assert font_manager.fontManager
assert backend_agg.RendererAgg
_SEARCH = Search(
    (
        Dimension("optimizer.lr", 1e-4, 1.0, log=True),
        Dimension("train.epochs", 1, 4, step=1, whole=True),
        Dimension("data.batch_size", values=(2, 4, 8)),
        Dimension("optimizer.momentum", 0.0, 0.9, step=0.1, when={"data.batch_size": (2,)}),
    )
)
_CHOSEN = (
    {"optimizer.lr": 0.1, "train.epochs": 3, "data.batch_size": 4},
    {"optimizer.lr": 0.5, "train.epochs": 1, "data.batch_size": 2, "optimizer.momentum": 0.3},
)


def _written(search: Search) -> str:
    return json.dumps(asdict(search))


def _group(search: str) -> Group:
    return Group("sweep", provenance().config, (), search)


@cache
def _trial_lines() -> list[str]:
    found: list[dict[str, Any]] = []
    for number in range(12):
        params = {**_CHOSEN[number % 2], "optimizer.lr": 0.01 * (number + 1)}
        found.append({"event": "begin", "trial": number, "params": params})
        if number < 10:
            found.append(
                {
                    "event": "end",
                    "trial": number,
                    "state": "complete",
                    "values": [0.05 * number],
                    "reports": [[4, 0.05 * number]],
                    "seconds": 1.5,
                    "epochs": 2.0,
                    "why": "",
                }
            )
    found.append({"event": "end", "trial": 10, "state": "failed", "why": "no\nend", "seconds": 1})
    return [json.dumps(each) for each in found]


def _sweep_in(folder: Path, search: str, trials: bytes) -> Path:
    path = folder / "x-sweep"
    path.mkdir()
    write_group(path, _group(search))
    (path / TRIALS).write_bytes(trials)
    return path


def _report(path: Path) -> None:
    """As ``runs`` and ``report`` do; without pixels, which take most of the time."""
    group_text.as_text(report_group(path))
    search = read_search(path)
    trials = Journal(path, search).read()
    sweep_text.listed(path, search, trials)
    json.dumps(described(path, search, trials), allow_nan=False)
    found = report_sweep(path)
    sweep_text.report_text(found)
    json.dumps(found.to_json(), allow_nan=False)
    draw, plots.drawn = plots.drawn, lambda figure, form: bytes(len(figure().axes))
    try:
        sweep_plots.draw_sweep(found, path)
    finally:
        plots.drawn = draw


def _read_search_record(data: bytes, folder: Path) -> None:
    path = _sweep_in(folder, "", b"".join(line.encode() + b"\n" for line in _trial_lines()))
    text = data.decode("utf-8", "replace")
    write_group(path, _group(text))
    _report(path)


def _read_group(data: bytes, folder: Path) -> None:
    path = _sweep_in(folder, _written(_SEARCH), b"")
    (path / GROUP).write_bytes(data)
    if report_group(path).kind == "sweep":
        _report(path)


def _read_trials(data: bytes, folder: Path) -> None:
    path = _sweep_in(folder, _written(_SEARCH), data)
    _report(path)
    sweep = Sweep(path, _SEARCH)
    assert [trial.number for trial in sweep.journal.read()] == sorted(
        trial.number for trial in Journal(path).read()
    )
    sweep.journal.clear()


_RECORD = Record(
    "runs/x/checkpoints/step-3.safetensors",
    "0" * 64,
    "{}",
    (Measured("test", 0.5, 0.1, 10),),
    (StageResult("1-prune", "runs/c/1-prune/checkpoints/step-9.safetensors", 0.5),),
    (Measured("test", 0.25, 0.5, 10),),
    "x.dnnz",
    31400,
    json.dumps({"source": "a", "parameters": {"x": {"weights": 1}}}),
)


@cache
def _small() -> bytes:
    return compressed_bytes(Checkpoint(Path("x"), START, provenance(), _arrays()))


def _read_compression(data: bytes, folder: Path) -> None:
    path, told = folder / "runs" / "x-compressed", []
    path.mkdir(parents=True)
    (path / COMPRESSION).write_bytes(data)
    (path / "x.dnnz").write_bytes(_small())
    for each in compressed_runs(folder / "runs", told.append):
        str(each)
        json.dumps(each.to_json(), allow_nan=False)
        json.dumps([stage.folder for stage in each.record.stages])
    found = report_compression(path, told.append)
    json.dumps(found.to_json(), allow_nan=False)
    found.as_text(80)
    assert all(len(text) <= LONGEST for text in told)


@cache
def _sensitivity() -> bytes:
    points = (PrunedPoint(0.5, 0.9, 0.1), PrunedPoint(0.1, 0.5, 0.7))
    curves = Curves(7840, points, (SharedPoint(8, 0.9, 0.1), SharedPoint(1, 0.1, 2.0)))
    found = Sensitivity(Path("x"), 10, 0.9, 0.1, {"dense_1.weight": curves})
    return json.dumps(found.to_json()).encode()


def _read_sensitivity(data: bytes, folder: Path) -> None:
    (folder / sensitivity_report.DATA).write_bytes(data)
    (folder / "x.dnnz").write_bytes(_small())
    told: list[str] = []
    found = report_compression(folder / "x.dnnz", told.append)
    found.as_text(80)
    json.dumps(found.to_json(), allow_nan=False)
    if found.sensitivity is None:
        raise DnnstackError(*told)
    sensitivity_report.figure_of(found.sensitivity)


def _read_latest(data: bytes, folder: Path) -> None:
    runs = folder / "runs"
    (runs / "x").mkdir(parents=True)
    (runs / "x" / "config.yaml").write_text("name: x\n")
    (runs / LATEST).write_bytes(data)
    assert find_run(None, runs).samefile(runs / "x")


_UPDATES = [json.dumps({"event": "train", "step": n, "staleness": {"1": n}}) for n in range(4)]


def _read_staleness(data: bytes, folder: Path) -> None:
    (folder / LOG).write_bytes(data)
    told: list[str] = []
    draw, plots.drawn = plots.drawn, lambda figure, form: bytes(len(figure().axes))
    try:
        staleness.draw_staleness(folder, told.append)
    finally:
        plots.drawn = draw
    if told:
        raise DnnstackError(*told)


def _read_search(data: bytes, folder: Path) -> None:
    (folder / "x.yaml").write_bytes(data)
    search = load_search(folder / "x.yaml")[1]
    search.check()
    path = _sweep_in(folder, _written(replace(search, trials=None, seconds=None)), b"")
    assert read_search(path).dimensions == search.dimensions


def _read_stages(data: bytes, folder: Path) -> None:
    (folder / "x.yaml").write_bytes(data)
    load_stages(folder / "x.yaml")


@cache
def _searches() -> list[bytes]:
    return [load_search(name)[0].text.encode() for name in packaged_searches()]


@cache
def _stages() -> list[bytes]:
    return [load_stages(name).path.read_bytes() for name in packaged_stages()]


def _members() -> bytes:
    folds = Planned("folds", 2)
    return json.dumps(asdict(Group("folds", "name: x\n", folds.members(None)))).encode()  # type: ignore[arg-type]


def _groups() -> list[bytes]:
    return [json.dumps(asdict(_group(_written(_SEARCH)))).encode(), _members()]


def _record() -> dict[str, Any]:
    found = json.loads(_RECORD.to_json())
    assert isinstance(found, dict)
    return found


_LOADED = json.loads(_written(_SEARCH))

_BENCH = Bench(
    "x.yaml",
    "onednn",
    {"threads": "2"},
    (Timed(64, {"step": (1.0, 2.0, 3.0)}, {"torch": 1.5}, 2048, 0.25),),
)
_RACE = Race("x", 0.5, "name: x\n", ("a", "b"), (0.5, 0.6), (1.0, 2.0), 0.55, 0.25, {}, {"a": "0"})


def _read_bench_file(data: bytes, folder: Path) -> None:
    (folder / "x.json").write_bytes(data)
    _BENCH.slower(read_typed(folder / "x.json", 1 << 20, Bench))


def _read_race(data: bytes, folder: Path) -> None:
    (folder / "x.json").write_bytes(data)
    verified(folder / "x.json")[0].as_text()


def _told(found: Bench | Race) -> Target:
    stored, read = json.dumps(found.to_json()).encode(), _read_race
    if isinstance(found, Bench):
        read = _read_bench_file
    strategy = encoded(wrong_json(json.loads(stored))) | changed(lambda: [stored])
    return Target(type(found).__name__.lower(), read, strategy, lambda: [stored])


GROUP_FILES = (
    _told(_BENCH),
    _told(_RACE),
    Target(
        "search-record",
        _read_search_record,
        encoded(wrong_json(_LOADED)) | changed(lambda: [_written(_SEARCH).encode()]),
        lambda: [_written(_SEARCH).encode()],
    ),
    Target(
        "group",
        _read_group,
        encoded(wrong_json(json.loads(_groups()[0]))) | changed(_groups),
        _groups,
    ),
    Target(
        "trials",
        _read_trials,
        lines(_trial_lines(), st.sampled_from(_trial_lines()).map(json.loads).flatmap(wrong_json)),
        lambda: ["".join(f"{line}\n" for line in _trial_lines()).encode()],
    ),
    Target(
        "compression",
        _read_compression,
        encoded(wrong_json(_record())) | changed(lambda: [_RECORD.to_json()]),
        lambda: [_RECORD.to_json()],
    ),
    Target(
        "sensitivity",
        _read_sensitivity,
        encoded(wrong_json(json.loads(_sensitivity()))) | changed(lambda: [_sensitivity()]),
        lambda: [_sensitivity()],
    ),
    Target("latest", _read_latest, changed(lambda: [b"x\n"]), lambda: [b"x\n"]),
    Target(
        "staleness",
        _read_staleness,
        lines(_UPDATES, st.sampled_from(_UPDATES).map(json.loads).flatmap(wrong_json)),
        lambda: ["\n".join(_UPDATES).encode()],
    ),
    Target("search", _read_search, changed(_searches, 4), _searches),
    Target("stages", _read_stages, changed(_stages, 4), _stages),
)

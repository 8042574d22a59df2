"""What trainings leave: runs, groups, sweeps, compressions, and what they say under way."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from dnnstack.configs import parse_config
from dnnstack.configs.schema.stages import PaperConfig
from dnnstack.configs.search import Dimension, Search
from dnnstack.many.journal import Trial
from dnnstack.many.outcome import Outcome
from dnnstack.many.statistics import GroupReport, Spread, over_all
from dnnstack.reports.compress_report import CompressedReport
from dnnstack.reports.compressed_runs import CompressedRun
from dnnstack.reports.compression import CompressionReport
from dnnstack.reports.group_text import as_text as group_text
from dnnstack.reports.group_text import groups_text
from dnnstack.reports.runs_report import RunReport
from dnnstack.reports.runs_report import as_text as runs_text
from dnnstack.reports.sensitivity_report import as_text as sensitivity_text
from dnnstack.reports.sweep_report import SweepReport, described
from dnnstack.reports.sweep_text import as_text as best_text
from dnnstack.reports.sweep_text import listed, report_text, trial_line
from dnnstack.training.assemble import build_network, describe_data
from dnnstack.training.compressed.place import Measured, Record, StageResult
from dnnstack.training.network import Network
from dnnstack.training.records.formats.dnnz import Compressed
from dnnstack.training.records.formats.dnnz_arrays import Cost

from ..support.described import as_json, at_widths, joined
from ..support.training_fixtures import TINY
from .golden_objects import sensitivity

VALIDATED, TESTED = Measured("validation", 0.75, 1.0, 40), Measured("test", 0.5, 1.5, 40)
STAGES = (
    StageResult("1-prune", "c/1-prune/checkpoints/step-9.safetensors", 0.25, (VALIDATED,), 2.5),
    StageResult("2-share", "c/2-share/checkpoints/step-9.safetensors", 0.2, (VALIDATED, TESTED)),
)
RECORD = Record(
    "runs/net/checkpoints/step-1.safetensors", "a" * 64, "{}", (VALIDATED, TESTED), STAGES,
    (VALIDATED, TESTED), "net.dnnz", 8000,
)  # fmt: skip


def network() -> Network:
    config = parse_config(TINY, "tiny.yaml", [])
    return build_network(config, describe_data(config), Path("tiny.yaml"))


def _runs() -> str:
    def one(run: str, **more: Any) -> RunReport:
        values = {
            "path": Path("runs", run), "config": run, "state": "finished", "early": False,
            "step": 40, "total_steps": 40, "best_accuracy": 0.98765, "best_step": 30,
            "seconds": 59.5, "started": 100.0, "error": None,
        }  # fmt: skip
        return RunReport(run=run, **{**values, **more})

    small = CompressedRun(Path("runs/c"), RECORD, Path("runs/c/net.dnnz"), 1000)
    gone = replace(small, bytes=None)
    begun = replace(small, file=None, bytes=None)
    begun = replace(begun, record=replace(RECORD, after=(), file="", stages=STAGES[:1]))
    none = replace(small, record=replace(RECORD, float32_bytes=0, after=()))
    first = replace(begun, record=replace(begun.record, stages=()))
    reports = [
        one("net", compressed=(small, gone, begun, none, first), versions={"numpy": "2"}),
        one("a-run-with-a-very-long-name-that-does-not-fit-into-a-line-of-80-columns"),
        one("new", best_accuracy=None, total_steps=None, step=0, seconds=0.0, config=None),
        one("hour", state="failed", error="no", seconds=3599.5),
        one("long", state="died", seconds=360_000_000.0, early=True),
        one("short", state="interrupted", seconds=3599.4),
        one("damaged", seconds=3.6e39, versions={}),
        one("damaged too", seconds=-1.0),
    ]
    data = as_json([each.to_json() for each in reports[:3]])
    texts = [at_widths(lambda width: runs_text(reports, width), 80, 200)]
    return joined(*texts, runs_text(reports[:2], 40), data)


def _group(kind: Any = "seeds", finished: bool = True) -> GroupReport:
    accuracies = (0.9, 0.875, 0.8)
    runs = {
        f"run-{n}": Outcome(True, 40, share, 1 - share, 90, 100, share + 0.05, None, 10.0 * n, 4.0)
        for n, share in enumerate(accuracies, 1)
    }
    if not finished:
        runs["run-3"] = Outcome(False, 7)
    done = [run for run in runs.values() if run.finished]
    names = ("accuracy", "best_accuracy", "loss", "seconds")
    spreads = {name: Spread.of([getattr(run, name) for run in done]) for name in names}
    together = over_all(done) if kind == "folds" else None
    return GroupReport(Path("runs", f"tiny-{kind}"), kind, 3, runs, spreads, together)


def _groups() -> str:
    begun = replace(_group(finished=False), runs={"run-1": Outcome(False, 3)}, spreads={})
    alone = {name: Spread.of([0.5]) for name in ("accuracy", "best_accuracy", "loss", "seconds")}
    one = replace(_group(), runs={"run-1": _group().runs["run-1"]}, spreads=alone)
    reports = [_group(), _group("folds"), _group("sweep", False), begun, one]
    states = [*("finished",) * 3, "running", "died"]
    return joined(
        *(group_text(each, 80) for each in reports[1:]),
        at_widths(lambda width: group_text(reports[0], width), 80),
        at_widths(lambda width: groups_text(reports, width, states), 80),
        groups_text(reports, 60),
        *(f"{each!r}\n{as_json(each.to_json())}" for each in reports[1:4]),
    )


SEARCH = Search(
    (
        Dimension("optimizer.lr", 1e-3, 1.0, log=True),
        Dimension("layers.dense_1.units", 8, 64, whole=True),
        Dimension("schedule", values=("fixed", {"type": "poly", "power": 2})),
    ),
    ("accuracy",),
)
TRIALS = [
    *(
        Trial(
            n, {"optimizer.lr": 0.1 / (n + 1), "layers.dense_1.units": 8 + n, "schedule": "fixed"},
            "complete", (0.9 - n / 100, 1.5 * n), (), 3.0, 2.0,
        )
        for n in range(21)
    ),
    Trial(21, {"optimizer.lr": 0.123456}, "pruned", why="worse than\nthe median"),
    Trial(22, {"optimizer.lr": 1.0, "schedule": {"type": "poly", "power": 2}}, "failed", why="no"),
    Trial(23, {}),
]  # fmt: skip


def _of_one(trials: list[Trial]) -> list[Trial]:
    return [replace(t, values=None if t.values is None else t.values[:1]) for t in trials]


def _sweep() -> str:
    path, trials = Path("runs/tiny-sweep"), _of_one(TRIALS)
    shares = {"accuracy": {"optimizer.lr": 0.25, "schedule": 0.7}}
    report = SweepReport(path, SEARCH, trials, trials[:21], shares, {})
    lines = [trial_line(SEARCH, each, trials[18:19]) for each in trials[18:]]
    few = trials[-3:]
    return joined(
        *lines,
        at_widths(lambda width: best_text(path, SEARCH, trials[:8], width), 80),
        best_text(path, SEARCH, trials),
        at_widths(lambda width: listed(path, SEARCH, trials[19:], width), 80, 40),
        best_text(path, SEARCH, few),
        listed(path, SEARCH, []),
        report_text(report),
        report_text(replace(report, importance={}, trials=trials[:1])),
        report_text(replace(report, importance={}, trials=few)),
        as_json(described(path, SEARCH, trials[20:])),
    )


def _sweep_of_two() -> str:
    path, search = Path("runs/tiny-sweep"), replace(SEARCH, objective=("accuracy", "seconds"))
    trials = [replace(TRIALS[n], values=(n / 10, 5.0 + n * n)) for n in (0, 1, 2)]
    trials += [replace(TRIALS[3], values=(0.0, 9.0)), TRIALS[21]]
    shares = {"accuracy": {"schedule": 0.7}, "seconds": {"optimizer.lr": 0.005}}
    report = SweepReport(path, search, trials, trials[:3], shares, {})
    losses = replace(search, objective=("loss",))
    return joined(
        trial_line(search, trials[0], trials),
        trial_line(losses, replace(trials[0], values=(0.25,)), []),
        report_text(report),
        as_json(report.to_json()),
    )


def _compressed(integers: bool = False, coded: bool = True) -> CompressedReport:
    width = 5 if coded else 0
    costs = {
        "conv2d_1.weight": Cost(100, 25, 60, 8, width, 30, 75, 60),
        f"{'a_block.' * 5}conv2d_1.bias": Cost(4, 4, 16),
        "dense_1.weight": Cost(1440, 288, 500, 1, width, 300, 288, 1201),
        "dense_1.bias": Cost(0, 0, 0, number_bits=8),
    }
    found = {"dense_1": SimpleNamespace(bits=8)} if integers else {}
    checkpoint = SimpleNamespace(path=Path("c/net.dnnz"), quantization=found)
    return CompressedReport(Compressed(cast(Any, checkpoint), costs, 800, 0.004), network())


def _compressions() -> str:
    paper = PaperConfig.model_validate(
        {
            "title": "Somebody 1999", "times": 40, "error": 1.58,
            "rows": {"dense_1.weight": [8, 6, 4.4, 5, 3.7, 2.32]},
        }
    )  # fmt: skip
    whole = replace(_compressed(), record=RECORD, paper=paper)
    file = CompressionReport(Path("c"), RECORD, whole, sensitivity(2), None)
    begun = replace(RECORD, stages=STAGES[:1], after=(), file="")
    half = CompressionReport(Path("c"), begun, None, None, None)
    bare = CompressionReport(Path("c"), replace(begun, stages=(), before=()), None, None, None)
    reports = [_compressed(), _compressed(coded=False), _compressed(integers=True)]
    at_once = replace(reports[0], compressed=replace(reports[0].compressed, seconds=0.0))
    return joined(
        *(each.as_text() for each in reports),
        file.as_text(),
        at_widths(whole.as_text, 60),
        at_widths(file.as_text, 50),
        replace(whole, paper=paper.model_copy(update={"error": None})).as_text(),
        half.as_text(),
        bare.as_text(),
        *(as_json(each.to_json()) for each in (file, half, bare, reports[0], reports[2], at_once)),
        as_json(json.loads(RECORD.to_json())),
    )


def _sensitivity() -> str:
    found = sensitivity(3)
    lost = replace(found, accuracy=0.99, count=20_000)
    return joined(sensitivity_text(found), sensitivity_text(lost), as_json(found.to_json()))


RUNS: dict[str, Callable[[], str]] = {
    "runs": _runs,
    "groups": _groups,
    "sweep": _sweep,
    "sweep_of_two_objectives": _sweep_of_two,
    "compressions": _compressions,
    "sensitivity_text": _sensitivity,
}

"""The table of groups: what is shown of seeds and of the trials of a search."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from dnnstack.many.group import create_group
from dnnstack.many.journal import Journal, Trial
from dnnstack.many.statistics import report_group
from dnnstack.reports.group_text import groups_text
from dnnstack.reports.runs_report import group_state
from dnnstack.training.records.group import Group, Kind, Member

from ..support.stored import cases


def _group(folder: Path, kind: Kind, *states: str) -> Path:
    """A group whose runs ended in these states, with accuracies of 0.1, 0.2, 0.6, ..."""
    path = create_group(folder, f"tiny-{kind}", Group(kind, ""))
    for number, (state, accuracy) in enumerate(zip(states, (0.1, 0.2, 0.6), strict=False), 1):
        run = path / f"run-{number}"
        run.mkdir()
        (run / "config.yaml").write_text("name: run\n", encoding="utf-8")
        numbers = {"accuracy": accuracy, "loss": 1.0, "best": True}
        lines = [
            {"event": "start", "step": 0, "time": 1.0, "total_steps": 9},
            {"event": "validation", "step": 9, **numbers},
            {"event": "end", "step": 9, "state": state, "training_seconds": 1.0},
        ]
        text = "".join(f"{json.dumps(line)}\n" for line in lines)
        (run / "log.jsonl").write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("states", "planned", "expected"), cases(__file__, "a_group_has_the_state_of_its_runs")
)
def test_a_group_has_the_state_of_its_runs(tmp_path, states, planned, expected):
    assert group_state(_group(tmp_path, "seeds", *states), planned) == expected


def test_a_trial_that_has_no_folder_yet_is_to_be_trained(tmp_path):
    path = _group(tmp_path, "sweep")
    journal = Journal(path)
    with journal.alone():
        journal.begin(Trial(0, {}))
    (_, row) = groups_text([report_group(path)], 80, ["interrupted"]).splitlines()
    assert row.split()[3] == "0/1"
    with journal.alone():
        journal.end(Trial(0, {}, "failed", why="a config that does not fit"))
    assert report_group(path).planned == 0


@pytest.mark.parametrize("kept", [("correct",), ("count",), (), ("correct", "count")])
def test_samples_are_summed_up_only_where_all_folds_have_counted_them(
    tmp_path: Path, kept: tuple[str, ...]
) -> None:
    """Logs of older versions have no counts."""
    path = create_group(
        tmp_path, "tiny-folds", Group("folds", "", members=(Member("run-1"), Member("run-2")))
    )
    for member in (1, 2):
        counts = {"correct": 2 + member, "count": 5}
        if member == 2:
            counts = {key: counts[key] for key in kept}
        line = {"event": "validation", "step": 9, "accuracy": 0.5, "loss": 1.0, "best": True}
        lines = [{**line, **counts}, {"event": "end", "step": 9, "state": "finished"}]
        run = path / f"run-{member}"
        run.mkdir()
        text = "".join(f"{json.dumps(each)}\n" for each in lines)
        (run / "log.jsonl").write_text(text, encoding="utf-8")
        (run / "config.yaml").write_text("name: run\n", encoding="utf-8")
    found = report_group(path).together
    assert (found is not None) == (len(kept) == 2)
    assert found is None or (found["correct"], found["count"], found["accuracy"]) == (7, 10, 0.7)

"""``train --seeds`` and ``--folds``: the runs of a group, their table, kills and resumes."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from dnnstack.training.inference.intervals import wilson
from dnnstack.training.records.formats.store import newest_checkpoint

from .conftest import TINY

Run = Callable[..., subprocess.CompletedProcess[str]]
TRAIN = ("train", "--config", "tiny.yaml", "--device", "numpy", "--threads", "1")
SHORT = ("--set", "train={epochs: 1, log_every: 5}")


def _state(group: Path) -> dict[str, Any]:
    """What the runs of a group leave, without times."""
    found: dict[str, Any] = {}
    for run in sorted(path.parent for path in group.glob("fold-*/config.yaml")):
        newest = newest_checkpoint(run / "checkpoints", lambda text: None)
        arrays = {name: array.tobytes() for name, array in newest.arrays.items()}
        found[run.name] = arrays, (run / "metrics.csv").read_text("utf-8")
    return found


def test_folds_that_are_killed_go_on_where_they_were(child, tmp_path):
    argv = (*TRAIN, *SHORT, "--folds", "3", "--stratified")
    for name in ("whole", "killed"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "tiny.yaml").write_text(TINY, encoding="utf-8")
    count = tmp_path / "count"
    whole = child(tmp_path / "whole", *argv, kill_at=0, count_file=str(count))
    assert whole.status == 0, whole.text
    points = int(count.read_text("utf-8"))
    killed = tmp_path / "killed"
    # In the first run, in the second, and in the rest.
    for share in (0.3, 0.2, 0.2):
        again = ("--resume",) if (killed / "runs" / "tiny-folds" / "group.json").exists() else ()
        ended = child(killed, *argv, *again, kill_at=int(points * share))
        assert ended.status == -signal.SIGKILL, ended.text
    group = Path("runs/tiny-folds")
    # As where the kill has come between the end of the first run and its picture.
    (killed / group / "fold-1" / "curves.png").unlink(missing_ok=True)
    done = child(killed, *argv, "--resume")
    assert done.status == 0, done.text
    assert len(list(killed.glob(f"{group}/fold-*/curves.png"))) == 3
    expected = _state(tmp_path / "whole" / group)
    assert list(expected) == ["fold-1", "fold-2", "fold-3"]
    assert _state(killed / group) == expected
    # Every sample was validated once.
    assert "of 480 samples, each validated once)" in done.text


def test_more_folds_than_samples_begin_no_group(run, tmp_path):
    done = run(*TRAIN, "--folds", "481", status=1)
    assert "error: --folds: 480 samples cannot be divided into 481 folds" in done.stderr
    assert not (tmp_path / "runs").exists()


def test_a_group_goes_on_with_its_own_config_only(run):
    assert run(*TRAIN, *SHORT, "--folds", "2", "-q").returncode == 0
    for change, message in (
        (("--set", "optimizer.lr=0.3", "--folds", "2"), "optimizer.lr: 0.1 -> 0.3"),
        (("--folds", "3"), "was begun with other folds: 2"),
        (("--folds", "2", "--stratified"), "was begun with other folds: 2"),
        (("--seeds", "2"), "runs: has no group 'tiny-seeds' to resume"),
    ):
        done = run(*TRAIN, *SHORT, *change, "--resume", status=1)
        assert message in done.stderr
    found = json.loads(run("runs", "--group", "tiny-folds", "--json").stdout)["together"]
    assert found["count"] == 480
    assert found["accuracy_interval"] == [*wilson(found["correct"], 480)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--seeds", "2", "--folds", "2"], "--seeds and --folds cannot be used together"),
        (["--stratified"], "--stratified needs --folds"),
        (["--workers", "2"], "--workers needs --seeds or --folds"),
        (["--seeds", "1"], "'--seeds': expected at least 2 (got 1)"),
        (["--seeds", "two"], "'--seeds': expected a whole number (got 'two')"),
        (["--threads", "0"], "'--threads': expected a number from 1 to 1024 (got 0)"),
        (["--seeds", "2", "--ranks", "2"], "--seeds and --ranks cannot be used together"),
    ],
)
def test_wrong_usage(run, arguments, message):
    done = run(*TRAIN, *arguments, status=2)
    assert message in done.stderr

"""``dnnstack sweep``: its trials, kills and resumes, several workers, mistakes.

``DNNSTACK_SWEEP_KILLS`` sets the number of random kills.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from dnnstack.configs import load_config

from .conftest import TINY

Child = Callable[..., Any]
Run = Callable[..., subprocess.CompletedProcess[str]]
KILLS = int(os.environ.get("DNNSTACK_SWEEP_KILLS", "3"))
SEARCH = """\
search:
  trials: 5
  prune: {after_trials: 2, after_validations: 0}
  keys:
    optimizer.lr: {low: 0.003, high: 0.3, log: true}
    optimizer.momentum: [0.0, 0.9]
"""
SWEEP = ("sweep", "--config", "tiny.yaml", "--device", "numpy", "--threads", "1")
JOURNAL = Path("runs/tiny-sweep/trials.jsonl")


def _folder(parent: Path, name: str, search: str = SEARCH) -> Path:
    (parent / name).mkdir()
    text = TINY.replace("epochs: 2", "epochs: 1") + search
    (parent / name / "tiny.yaml").write_text(text, encoding="utf-8")
    return parent / name


def _trials(folder: Path) -> list[dict[str, Any]]:
    """The lines of the journal, without times."""
    lines = (folder / JOURNAL).read_text("utf-8").splitlines()
    return [{**json.loads(line), "seconds": 0} for line in lines]


def test_killed_at_random_it_makes_the_same_trials(child: Child, tmp_path: Path) -> None:
    whole = _folder(tmp_path, "whole")
    count = tmp_path / "count"
    done = child(whole, *SWEEP, kill_at=0, count_file=str(count))
    assert done.status == 0, done.text
    expected = _trials(whole)
    assert len(expected) == 10
    killed, points = _folder(tmp_path, "killed"), int(count.read_text("utf-8"))
    rng = random.Random(19)
    for _ in range(KILLS):
        again = ("--resume",) if (killed / "runs/tiny-sweep/group.json").exists() else ()
        ended = child(killed, *SWEEP, *again, kill_at=rng.randrange(1, points // 3))
        assert ended.status in (0, -signal.SIGKILL), ended.text
    done = child(killed, *SWEEP, "--resume")
    assert done.status == 0, done.text
    assert _trials(killed) == expected
    best = "runs/tiny-sweep/best.yaml"
    assert (killed / best).read_bytes() == (whole / best).read_bytes()
    assert load_config(killed / best).config.name == "tiny-best"
    for run in sorted((whole / "runs/tiny-sweep").glob("trial-*/metrics.csv")):
        same = killed / "runs/tiny-sweep" / run.parent.name / run.name
        assert same.read_bytes() == run.read_bytes()


def test_two_workers_share_the_trials(
    environment: dict[str, str], run_in: Run, tmp_path: Path
) -> None:
    folder = _folder(tmp_path, "two", SEARCH.replace("trials: 5", "trials: 1"))
    assert run_in(folder, *SWEEP).returncode == 0
    text = (folder / "tiny.yaml").read_text("utf-8")
    (folder / "tiny.yaml").write_text(text.replace("trials: 1", "trials: 6"), encoding="utf-8")
    command = [sys.executable, "-m", "dnnstack.cli", *SWEEP, "--resume", "--json"]
    workers = [
        subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.PIPE)
        for _ in range(2)
    ]
    assert [worker.communicate(timeout=300)[0] != b"" for worker in workers] == [True, True]
    assert [worker.returncode for worker in workers] == [0, 0]
    for event in ("begin", "end"):
        numbers = [each["trial"] for each in _trials(folder) if each["event"] == event]
        assert sorted(numbers) == list(range(6))
    listed = json.loads(run_in(folder, "runs", "--sweep", "tiny-sweep", "--json").stdout)
    assert (listed["kind"], len(listed["runs"])) == ("sweep", 6)


def test_trials_that_fail_are_told_and_the_others_go_on(run_in: Run, tmp_path: Path) -> None:
    search = "search:\n  sampler: grid\n  keys: {layers.conv2d_1.kernel_size: [5, 40]}\n"
    done = run_in(_folder(tmp_path, "fails", search), *SWEEP)
    assert done.returncode == 0, done.stderr
    assert "trial-1: accuracy " in done.stdout
    assert "trial-2: failed: " in done.stdout
    assert "runs/tiny-sweep: 2 trials, 1 complete, 1 failed" in done.stdout


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("high: 0.3", "high: 0.2"), "search: the keys, objective, sampler, seed or pruning"),
        (("batch_size: 32", "batch_size: 30"), "data.batch_size: 32 -> 30"),
    ],
)
def test_a_sweep_goes_on_with_its_own_config_only(
    run_in: Run, tmp_path: Path, change: tuple[str, str], message: str
) -> None:
    folder = _folder(tmp_path, "other", SEARCH.replace("trials: 5", "trials: 1"))
    assert run_in(folder, *SWEEP).returncode == 0
    text = (folder / "tiny.yaml").read_text("utf-8")
    (folder / "tiny.yaml").write_text(text.replace(*change, 1), encoding="utf-8")
    done = run_in(folder, *SWEEP, "--resume")
    assert done.returncode == 1
    assert message in done.stderr


def test_a_mistake_is_told_before_anything_is_written(run_in: Run, tmp_path: Path) -> None:
    folder = _folder(tmp_path, "bad", SEARCH.replace("high: 0.3", "high: 0.001"))
    done = run_in(folder, *SWEEP)
    assert done.returncode == 1
    assert "tiny.yaml:19:19: search.keys.optimizer.lr: the range is empty" in done.stderr
    assert not (folder / "runs").exists()

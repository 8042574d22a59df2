"""``train --seeds N --workers K``: the runs that are made without, whatever dies meanwhile."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import numpy as np
import pytest
from dnnstack.many.group import Claims
from dnnstack.training.records.formats.store import newest_checkpoint

from ..support.own_group import in_own_group
from .conftest import TINY
from .test_groups import TRAIN

Run = Callable[..., subprocess.CompletedProcess[str]]
_RUNS = ("seed-1", "seed-2", "seed-3", "seed-4")


def _left(group: Path) -> dict[str, tuple[str, dict[str, bytes]]]:
    """What the runs of a group leave, without times."""
    found = {}
    for run in sorted(path.parent for path in group.glob("[fs]*-*/config.yaml")):
        newest = newest_checkpoint(run / "checkpoints", lambda text: None)
        arrays = {name: array.tobytes() for name, array in newest.arrays.items()}
        found[run.name] = (run / "metrics.csv").read_text("utf-8"), arrays
    return found


def _begun(
    folder: Path, environment: dict[str, str], epochs: int
) -> AbstractContextManager[subprocess.Popen[str]]:
    """Four runs in two processes."""
    (folder / "tiny.yaml").write_text(TINY, encoding="utf-8")
    argv = (*TRAIN, "--set", f"train.epochs={epochs}", "--seeds", "4", "--workers", "2")
    return in_own_group((sys.executable, "-m", "dnnstack.cli", *argv), folder, environment)


def _trains(folder: Path, count: int) -> None:
    """Wait until as many runs have logged a step."""
    while True:
        found = folder.glob("runs/*/*/log.jsonl")
        # The link to the latest is no other run.
        logs = [path.read_bytes() for path in found if not path.parent.is_symlink()]
        if sum(b'"train"' in text for text in logs) >= count:
            return
        time.sleep(0.05)


def _children(process: int) -> list[int]:
    text = Path(f"/proc/{process}/task/{process}/children").read_text()
    return [int(pid) for pid in text.split()]


def test_they_are_the_runs_that_are_made_one_after_the_other(run, tmp_path):
    for kind, workers in (("--seeds", "3"), ("--folds", "2")):
        alone = run(*TRAIN, kind, "3")
        together = run(*TRAIN, kind, "3", "--workers", workers)
        assert (together.returncode, together.stderr) == (0, "")
        group = tmp_path / f"runs/tiny-{kind[2:]}"
        assert _left(group.with_name(f"{group.name}-2")) == _left(group)
        table = [text.partition(" 3 of 3 ")[2].split() for text in (alone.stdout, together.stdout)]
        assert len(table[0]) > 20
        names = [word for word in table[1] if word.startswith(kind[2:-1])]
        assert names == [word for word in table[0] if word.startswith(kind[2:-1])]
    assert "workers     2, threads of each: 1" in together.stdout
    assert together.stdout.count(": finished, accuracy ") == 3


def test_the_run_of_a_worker_that_is_killed_is_taken_by_another(environment, tmp_path):
    for name in ("whole", "killed"):
        (tmp_path / name).mkdir()
    with _begun(tmp_path / "whole", environment, 8) as process:
        assert process.wait(300) == 0
    with _begun(tmp_path / "killed", environment, 8) as process:
        for finished in (0, 1):
            _trains(tmp_path / "killed", 2 + finished)
            os.kill(_children(process.pid)[0], signal.SIGKILL)
            time.sleep(0.3)
        text = process.communicate(timeout=300)[0]
    assert process.returncode == 0, text
    assert "a worker was ended by SIGKILL" in text
    group = "runs/tiny-seeds"
    assert tuple(_left(tmp_path / "whole" / group)) == _RUNS
    assert _left(tmp_path / "killed" / group) == _left(tmp_path / "whole" / group)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGUSR2])
def test_a_signal_ends_all_of_them_in_order(environment, run_in, tmp_path, number):
    with _begun(tmp_path, environment, 100_000) as process:
        _trains(tmp_path, 2)
        # Ctrl-C reaches all processes of a terminal.
        (os.killpg if number == signal.SIGINT else os.kill)(process.pid, number)
        text = process.communicate(timeout=300)[0]
    assert process.returncode == 128 + number, text
    last = text.splitlines()[-1]
    assert last.startswith("resume with dnnstack train ")
    assert "--seeds 4 --workers 2 --resume runs/tiny-seeds" in last
    states = [
        json.loads(path.read_text("utf-8").splitlines()[-1])["state"]
        for path in tmp_path.glob("runs/tiny-seeds/*/log.jsonl")
    ]
    assert set(states) == {"interrupted"}
    # It is the config of this length that it goes on with.
    (tmp_path / "tiny.yaml").write_text(TINY, encoding="utf-8")
    other = run_in(tmp_path, *TRAIN, "--seeds", "4", "--workers", "2", "--resume", status=1)
    assert "train.epochs: 100000 -> 2" in other.stderr


@pytest.mark.parametrize("workers", [["--workers", "2"], ["--workers", "1"], []])
def test_a_training_that_diverges_does_not_end_the_others(run, tmp_path, workers):
    rate = ("--set", "optimizer.lr=1.0e30")
    done = run(*TRAIN, *rate, "--seeds", "3", *workers, status=1)
    assert all(f"dnnstack: error: seed-{n}: step 2: " in done.stderr for n in (1, 2, 3))
    assert "0 of 3 seeds finished" in done.stdout


def test_a_goal_that_is_missed_is_told_by_the_status(run):
    goal = ("--set", "train.goal.accuracy=0.999")
    assert run(*TRAIN, *goal, "--seeds", "2", "--workers", "2").returncode == 3


def test_processes_share_out_numbers_and_give_back_what_they_took():
    with Claims() as claims:
        _share_out(claims)


def _share_out(claims: Claims) -> None:
    assert claims.take(3)
    ours, theirs = os.pipe()
    pid = os.fork()
    if not pid:
        os.write(theirs, bytes([claims.take(3), claims.take(4), claims.take(4)]))
        signal.pause()
    os.close(theirs)
    assert os.read(ours, 3) == bytes([False, True, True])
    assert not claims.take(4)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    os.close(ours)
    assert claims.take(4)
    assert np.array_equal([claims.take(n) for n in range(5)], [True] * 5)

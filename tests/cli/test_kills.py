"""SIGKILL at random instants and at every point of the protocol of files, then a resume.

What is compared with a run that nobody disturbed: every array of the last checkpoint, its metrics,
all of ``metrics.csv``, and ``log.jsonl`` without times and without the lines that say when a
process started and ended. ``DNNSTACK_KILLS`` sets the number of random kills.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from dnnstack.training.records.formats.store import checkpoint_steps, newest_checkpoint

from ..support.stored import beside

Child = Callable[..., Any]
Run = Callable[..., subprocess.CompletedProcess[str]]

KILLS = int(os.environ.get("DNNSTACK_KILLS", "20"))
pytestmark = pytest.mark.timeout(600 if KILLS <= 30 else 0)

# 13 steps are an epoch; checkpoints, log lines and validations come at different steps.
CONFIG = beside(__file__, "kills_config.yaml")
TRAIN = ("train", "--config", "net.yaml", "--threads", "1", "--device")


def _folder(parent: Path, name: str, steps: int, every: int) -> Path:
    folder = parent / name
    folder.mkdir()
    text = CONFIG.replace("STEPS", str(steps)).replace("EVERY", str(every))
    (folder / "net.yaml").write_text(text, encoding="utf-8")
    return folder


def _resume(folder: Path) -> tuple[str, ...]:
    """Nothing to resume before there is a folder."""
    return ("--resume",) if (folder / "runs" / "net" / "config.yaml").exists() else ()


def _log(folder: Path) -> list[dict[str, Any]]:
    untimed = {"seconds", "images_per_second", "time", "training_seconds"}
    lines = (folder / "runs" / "net" / "log.jsonl").read_text("utf-8").splitlines()
    entries = [json.loads(line) for line in lines]
    return [
        {key: value for key, value in entry.items() if key not in untimed}
        for entry in entries
        if entry["event"] not in ("start", "resume", "end")
    ]


def _assert_equal(undisturbed: Path, killed: Path) -> None:
    assert [path.name for path in (killed / "runs").glob("net*")] == ["net"]
    one, two = (newest_checkpoint(f / "runs/net/checkpoints") for f in (undisturbed, killed))
    assert one.state == two.state
    assert {name: a.tobytes() for name, a in one.arrays.items()} == {
        name: a.tobytes() for name, a in two.arrays.items()
    }
    rows = [(f / "runs/net/metrics.csv").read_text("utf-8") for f in (undisturbed, killed)]
    assert rows[0] == rows[1]
    assert _log(undisturbed) == _log(killed)


def test_random_kills(child, tmp_path):
    chosen = random.Random(1)
    steps, every = 300, 30
    whole = _folder(tmp_path, "whole", steps, every)
    done = child(whole, *TRAIN, "numpy")
    assert done.status == 0, done.text
    kills = resumed = 0
    for attempt in itertools.count():
        folder = _folder(tmp_path, f"killed-{attempt}", steps, every)
        finished = False
        while not finished:
            # Late enough to get on, early enough to come often.
            delay = chosen.uniform(0.0, done.seconds * 0.7)
            options = {"kill_after": delay} if kills < KILLS else {}
            resume = _resume(folder)
            ended = child(folder, *TRAIN, "numpy", *resume, **options)
            assert ended.status in (0, -signal.SIGKILL), ended.text
            finished = ended.status == 0
            kills += not finished
            resumed += bool(resume) and not finished
        _assert_equal(whole, folder)
        if kills >= KILLS:
            break
    assert resumed > KILLS // 3, "too many came before the first checkpoint"


def test_a_kill_loses_three_intervals_at_most(child, tmp_path):
    """With a disk on which a checkpoint takes longer than the steps up to the next one: the steps
    since the last one, those of one that waits, and those of one that is being written."""
    chosen = random.Random(3)
    every, count = 12, tmp_path / "steps"
    lost = []
    for attempt in range(max(4, KILLS // 4)):
        folder = _folder(tmp_path, f"killed-{attempt}", 10_000, every)
        count.write_text("0")
        slow = {"save_seconds": 0.15, "steps_file": str(count)}
        delay = chosen.uniform(0.8, 1.6)
        argv = (*TRAIN, "numpy", "--set", "data.validation=0")
        ended = child(folder, *argv, kill_after=delay, **slow)
        assert ended.status == -signal.SIGKILL, ended.text
        saved = checkpoint_steps(folder / "runs" / "net" / "checkpoints")
        lost.append(int(count.read_text()) - max(saved, default=0))
    # Here a chunk is a step, and one may be done before it is counted.
    assert max(lost) <= 3 * every + 1
    assert max(lost) > every + 1


@pytest.mark.parametrize("case", ["saving", "rollback"])
def test_a_kill_at_every_point_of_the_protocol(child, tmp_path, case):
    """Before and after every open, write, fsync, rename, close and deletion of a whole run."""
    steps, every = (5, 2) if case == "saving" else (4, 3)
    fault = {"nan_at": 4, "nan_above": 0.025} if case == "rollback" else {}
    argv = (*TRAIN, "numpy", "--set", "schedule=fixed", "--set", "optimizer.lr=0.03")
    whole, counted = (_folder(tmp_path, name, steps, every) for name in ("whole", "counted"))
    done = child(whole, *argv, **fault)
    assert done.status == 0, done.text
    # Counted apart, for a first run may also write the cache of the data.
    count = tmp_path / "count"
    done = child(counted, *argv, kill_at=0, count_file=str(count), **fault)
    assert done.status == 0, done.text
    rollbacks = [entry for entry in _log(whole) if entry["event"] == "rollback"]
    assert len(rollbacks) == (1 if case == "rollback" else 0)
    points = int(count.read_text())
    assert points > 60
    # About thirteen of them by default, others in the other case; all from 200 kills on.
    stride = max(1, 3 * points // (2 * KILLS)) if KILLS < 200 else 1
    for point in range(1 + (case == "rollback"), points + 1, stride):
        folder = _folder(tmp_path, f"killed-{point}", steps, every)
        first = child(folder, *argv, kill_at=point, **fault)
        assert first.status == -signal.SIGKILL, first.text
        second = child(folder, *argv, *_resume(folder), **fault)
        assert second.status == 0, f"point {point}: {second.text}"
        if (folder / "runs" / "net-2").exists():
            # Killed before it had a config: a folder that is no run yet.
            assert not (folder / "runs" / "net" / "config.yaml").exists()
            continue
        _assert_equal(whole, folder)


def test_a_kill_while_a_kill_is_recovered_from(child, tmp_path):
    """The resume itself is killed at each of its points: cutting the log, the config, the saves."""
    steps, every = 8, 3
    whole = _folder(tmp_path, "whole", steps, every)
    assert child(whole, *TRAIN, "numpy").status == 0
    folder = _folder(tmp_path, "killed", steps, every)
    assert child(folder, *TRAIN, "numpy", kill_at=50).status == -signal.SIGKILL
    for point in itertools.count(1, 2):
        ended = child(folder, *TRAIN, "numpy", *_resume(folder), kill_at=point)
        if ended.status == 0:
            break
        assert ended.status == -signal.SIGKILL, ended.text
    assert point > 3
    _assert_equal(whole, folder)

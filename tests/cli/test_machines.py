"""A sweep on two machines that share its folder: each mounts it elsewhere, and sees nothing else.

The machines are namespaces of one kernel, with equal process numbers on both.
"""

from __future__ import annotations

import json
import os
import re
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from dnnstack.training.records.formats.store import checkpoint_steps

from ..support.namespaces import Machine, permitted, start
from .conftest import TINY

Child = Callable[..., Any]
Start = Callable[..., Machine]
RUNS, SWEEP = "runs", "tiny-sweep"
WORDS = ("sweep", "--config", "tiny.yaml", "--device", "numpy", "--threads", "1")
# Trials that are the same in any order, long enough for both machines to have some.
SEARCH = """\
checkpoint: {every_epochs: 1}
search:
  trials: TRIALS
  sampler: random
  keys: {optimizer.lr: {low: 0.003, high: 0.3, log: true}}
"""
EPOCHS, LAST = 12, 156
# To one process a share whose locks reach no other machine is one that grants all of them.
LOCAL_LOCKS = """\
import fcntl, runpy
fcntl.flock = lambda descriptor, operation: None
runpy.run_module("dnnstack.cli", run_name="__main__")
"""


def _folder(parent: Path, name: str, trials: int) -> Path:
    (parent / name).mkdir()
    text = TINY.replace("epochs: 2", f"epochs: {EPOCHS}") + SEARCH.replace("TRIALS", str(trials))
    (parent / name / "tiny.yaml").write_text(text, encoding="utf-8")
    return parent / name


def _journal(folder: Path) -> list[dict[str, Any]]:
    """Its lines, without times."""
    lines = (folder / RUNS / SWEEP / "trials.jsonl").read_text("utf-8").splitlines()
    return [{**json.loads(line), "seconds": 0} for line in lines]


def _holders(folder: Path) -> dict[str, str]:
    """The trials that are under way, each with the machine and number of its process."""
    found = {}
    for path in (folder / RUNS / SWEEP).glob("trial-*.lock"):
        try:
            text = path.read_text("utf-8")
        except FileNotFoundError:
            continue
        if match := re.fullmatch(r"pid (\d+) on (\S+)\n", text):
            found[path.stem] = f"{match[2]}:{match[1]}"
    return found


def _newest(folder: Path, trial: str) -> int:
    """The step of its newest checkpoint; 0: there is none."""
    return max(checkpoint_steps(folder / RUNS / SWEEP / trial / "checkpoints"), default=0)


def _wait(found: Callable[[], Any], machines: Sequence[Machine]) -> Any:
    """What ``found`` returns once there is something."""
    end = time.monotonic() + 120
    while not (value := found()):
        assert time.monotonic() < end
        assert all(each.process.poll() is None for each in machines), "ended too early"
        time.sleep(0.01)
    return value


@pytest.fixture(scope="module", autouse=True)
def _namespaces():
    """Before anything is trained in vain."""
    permitted()


@pytest.fixture(scope="module")
def whole(child, tmp_path_factory):
    """A sweep that one process has made alone."""
    folder = _folder(tmp_path_factory.mktemp("whole"), "one", 6)
    done = child(folder, *WORDS, "--workers", "1")
    assert done.status == 0, done.text
    return folder


@pytest.fixture
def shared(whole, child, tmp_path):
    """A folder with a sweep that has been begun, and has one trial."""
    folder = _folder(tmp_path, "shared", 6)
    done = child(folder, *WORDS, "--workers", "1", "--set", "search.trials=1")
    assert done.status == 0, done.text
    return folder


@pytest.fixture
def machine(command, environment, shared):
    """Start a machine that takes part, with its own place of the folder of runs."""
    with ExitStack() as stack:

        def begin(name: str, *words: str, command: Sequence[str] = command) -> Machine:
            place = f"{name}/mounted"
            runs = f"/tmp/{place}/{RUNS}"
            own = ("--runs-dir", runs, "--resume", SWEEP if name == "one" else f"{runs}/{SWEEP}")
            found = start(name, shared, place, [*command, *WORDS, *own, *words], environment)
            stack.enter_context(found.process)
            stack.callback(found.process.kill)
            return found

        yield begin


def _assert_as_alone(shared: Path, whole: Path) -> None:
    """Every trial was begun and ended once, with the numbers of the sweep of one process."""
    found, expected = (sorted(map(json.dumps, _journal(each))) for each in (shared, whole))
    assert found == expected
    for run in sorted((whole / RUNS / SWEEP).glob("trial-*/metrics.csv")):
        same = shared / RUNS / SWEEP / run.parent.name / run.name
        assert same.read_bytes() == run.read_bytes(), run.parent.name
    ours, theirs = (
        {path.name for path in (each / RUNS / SWEEP).iterdir() if path.name[0] != "."}
        for each in (shared, whole)
    )
    assert ours == theirs
    # The folder of runs is that of the machine that wrote the file.
    ours_best, theirs_best = (
        re.sub(r"(?m)^  dir: .*", "", (each / RUNS / SWEEP / "best.yaml").read_text("utf-8"))
        for each in (shared, whole)
    )
    assert ours_best == theirs_best


@pytest.mark.parametrize("workers", ["1", "2"])
def test_two_machines_share_a_sweep(machine, shared, whole, workers):
    machines = [machine(name, "--workers", workers) for name in ("one", "two")]
    took: dict[str, set[str]] = {}
    while any(each.process.poll() is None for each in machines):
        for trial, holder in _holders(shared).items():
            took.setdefault(trial, set()).add(holder)
        time.sleep(0.01)
    for each in machines:
        each.output()
    _assert_as_alone(shared, whole)
    assert len(took) == 5, took
    assert all(len(holders) == 1 for holders in took.values()), took
    holders = {holder for each in took.values() for holder in each}
    assert {holder.partition(":")[0] for holder in holders} == {"one", "two"}
    # The first process is the worker: nothing but the machine's name tells these two apart.
    assert workers != "1" or holders == {"one:1", "two:1"}


def test_a_machine_dies_and_the_other_one_takes_over(machine, shared, whole):
    """In the middle of the trials of both its workers."""
    one, two = machines = [machine(name, "--workers", "2") for name in ("one", "two")]

    def begun() -> list[str]:
        """Trials of the first machine that have a checkpoint, while the other one works, too."""
        holders = _holders(shared)
        if not any(holder.startswith("two:") for holder in holders.values()):
            return []
        own = [trial for trial, holder in holders.items() if holder.startswith("one:")]
        # Late ones might have ended before the machine does.
        return [trial for trial in own if 0 < _newest(shared, trial) <= LAST // 2]

    left = _wait(begun, machines)[0]
    newest = _newest(shared, left)
    one.end()
    two.output()
    _assert_as_alone(shared, whole)
    log = (shared / RUNS / SWEEP / left / "log.jsonl").read_text("utf-8").splitlines()
    resumed = [each for each in map(json.loads, log) if each["event"] == "resume"]
    assert [each["step"] >= newest > 0 for each in resumed] == [True], resumed


def test_locks_that_each_machine_keeps_alone_are_told(machine, shared, whole, command):
    own = [*command[:-2], "-c", LOCAL_LOCKS]
    words = ("--workers", "1", "--set", "search.trials=2")
    one = machine("one", *words, command=own)
    _wait(lambda: _holders(shared), [one])
    os.kill(one.first, signal.SIGSTOP)
    assert "trial-2: accuracy " in machine("two", *words, command=own).output()
    os.kill(one.first, signal.SIGCONT)
    told = one.process.communicate(timeout=300)[0]
    assert one.process.returncode == 1, told
    assert "/trial-2: was also trained by another process, so locks" in told
    assert _journal(shared) == _journal(whole)[:4]

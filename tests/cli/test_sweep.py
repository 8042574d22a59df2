"""``dnnstack sweep``: its trials, kills and resumes, several workers, mistakes.

``DNNSTACK_SWEEP_KILLS`` sets the number of random kills, of one process and of several.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dnnstack.backends.ahead import NVIDIA_DRIVER
from dnnstack.backends.keeping import Keeping
from dnnstack.configs import load_config
from dnnstack.configs.search import load_search
from dnnstack.many.screen import Screen
from dnnstack.many.trainings import Trainings

from ..support.mnist_files import write
from ..support.own_group import in_own_group
from ..support.ran import ran
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
WORKERS = ("sweep", "--config", "tiny.yaml", "--device", "numpy", "--threads", "1", "--workers")
SWEEP = (*WORKERS, "1")
# Trials that are the same in any order, long enough to be killed.
RANDOM = """\
search:
  trials: 6
  sampler: random
  keys: {optimizer.lr: {low: 0.003, high: 0.3, log: true}}
"""
SHORT = "data.validation=20"
JOURNAL = Path("runs/tiny-sweep/trials.jsonl")


def folder_of(parent: Path, name: str, search: str = SEARCH, epochs: int = 1) -> Path:
    (parent / name).mkdir()
    text = TINY.replace("epochs: 2", f"epochs: {epochs}") + search
    (parent / name / "tiny.yaml").write_text(text, encoding="utf-8")
    return parent / name


def lines_of(folder: Path) -> list[dict[str, Any]]:
    """The lines of the journal, without times."""
    lines = (folder / JOURNAL).read_text("utf-8").splitlines()
    return [{**json.loads(line), "seconds": 0} for line in lines]


def killed_often(child: Child, parent: Path, search: str, seed: int) -> tuple[Path, Path]:
    """The folders of a sweep of one process and of one that was killed at random, in which the
    journals are the same."""
    whole, count = folder_of(parent, "whole", search), parent / "count"
    done = child(whole, *SWEEP, kill_at=0, count_file=str(count))
    assert done.status == 0, done.text
    killed, points = folder_of(parent, "killed", search), int(count.read_text("utf-8"))
    rng = random.Random(seed)
    for _ in range(KILLS):
        again = ("--resume",) if (killed / "runs/tiny-sweep/group.json").exists() else ()
        ended = child(killed, *SWEEP, *again, kill_at=rng.randrange(1, points // 3))
        assert ended.status in (0, -signal.SIGKILL), ended.text
    done = child(killed, *SWEEP, "--resume")
    assert done.status == 0, done.text
    assert lines_of(killed) == lines_of(whole)
    return whole, killed


def test_killed_at_random_it_makes_the_same_trials(child, tmp_path):
    whole, killed = killed_often(child, tmp_path, SEARCH, 19)
    assert len(lines_of(whole)) == 10
    best = "runs/tiny-sweep/best.yaml"
    assert (killed / best).read_bytes() == (whole / best).read_bytes()
    assert load_config(killed / best).config.name == "tiny-best"
    for run in sorted((whole / "runs/tiny-sweep").glob("trial-*/metrics.csv")):
        same = killed / "runs/tiny-sweep" / run.parent.name / run.name
        assert same.read_bytes() == run.read_bytes()


def test_trials_of_a_process_share_what_is_compiled(tmp_path: Path) -> None:
    base, _ = load_search(folder_of(tmp_path, "kept") / "tiny.yaml", ["run.device=numpy"])
    trainings = Trainings(base, lambda settings: base, Screen(), lambda: False)
    assert isinstance(trainings.device(), Keeping)


def _workers(process: int) -> list[int]:
    """The workers of a sweep; none once it has ended."""
    try:
        return [
            int(pid) for pid in Path(f"/proc/{process}/task/{process}/children").read_text().split()
        ]
    except OSError:
        return []


def kill_some(process: subprocess.Popen[str], rng: random.Random) -> int:
    """Kill the sweep or some of its workers, each after a while; how many were killed."""
    assert process.stdout is not None
    process.stdout.readline()
    kills = 0
    while process.poll() is None and kills < 3:
        try:
            process.wait(rng.uniform(0.1, 1.0))
        except subprocess.TimeoutExpired:
            workers = _workers(process.pid)
            victim = rng.choice([process.pid, *workers])
            with suppress(ProcessLookupError):
                os.kill(victim, signal.SIGKILL)
                kills += 1
            if victim == process.pid:
                break
    return kills


def _assert_whole(folder: Path, whole: Path) -> None:
    """Every trial was begun once and ended once, with the numbers of an undisturbed sweep."""
    found, expected = (
        {t["trial"]: t for t in lines_of(f) if t["event"] == "end"} for f in (folder, whole)
    )
    events = [(each["event"], each["trial"]) for each in lines_of(folder)]
    assert sorted(events) == sorted((event, n) for event in ("begin", "end") for n in expected)
    assert found == expected
    for run in sorted((whole / "runs/tiny-sweep").glob("trial-*/metrics.csv")):
        same = folder / "runs/tiny-sweep" / run.parent.name / run.name
        assert same.read_bytes() == run.read_bytes()
    # Temporary files of processes that were killed stay for an hour.
    ours, theirs = (
        {path.name for path in (one / "runs/tiny-sweep").iterdir() if path.name[0] != "."}
        for one in (folder, whole)
    )
    assert ours == theirs


@pytest.mark.timeout(600 if KILLS <= 10 else 0)
def test_kills_of_the_sweep_and_of_workers_lose_no_trial(child, environment, tmp_path):
    # Longer trials are hit more often; a few kills need not take their time.
    epochs = 12 if KILLS > 3 else 5
    whole = folder_of(tmp_path, "whole", RANDOM, epochs)
    done = child(whole, *WORKERS, "2")
    assert done.status == 0, done.text
    rng, kills = random.Random(7), 0
    command = [sys.executable, "-m", "dnnstack.cli", *WORKERS]
    for attempt in itertools.count():
        folder = folder_of(tmp_path, f"killed-{attempt}", RANDOM, epochs)
        for _ in range(3):
            again = ("--resume",) if (folder / "runs/tiny-sweep/group.json").exists() else ()
            with subprocess.Popen(
                [*command, "2", *again],
                cwd=folder,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            ) as process:
                kills += kill_some(process, rng)
                # Workers of a sweep that is gone write to this pipe until they have ended.
                process.communicate(timeout=300)
            if kills >= KILLS:
                break
        done = child(folder, *WORKERS, "2", "--resume")
        assert done.status == 0, done.text
        _assert_whole(folder, whole)
        if kills >= KILLS:
            break


def test_a_signal_ends_all_workers_in_order(environment, tmp_path):
    folder = folder_of(tmp_path, "whole", RANDOM, epochs=100_000)
    command = (sys.executable, "-m", "dnnstack.cli", *WORKERS, "2")
    with in_own_group(command, folder, environment) as process:
        runs = [folder / f"runs/tiny-sweep/trial-{n}/log.jsonl" for n in (1, 2)]
        while not all(run.exists() and b"train" in run.read_bytes() for run in runs):
            time.sleep(0.05)
        workers = _workers(process.pid)
        # Ctrl-C reaches all processes of a terminal.
        os.killpg(process.pid, signal.SIGINT)
        text = process.communicate(timeout=300)[0]
    assert process.returncode == 128 + signal.SIGINT
    assert len(workers) == 2
    assert not any(Path(f"/proc/{pid}").exists() for pid in workers)
    for run in runs:
        assert json.loads(run.read_text("utf-8").splitlines()[-1])["state"] == "interrupted"
    assert "2 trials, 2 open" in text
    assert text.splitlines()[-1].endswith(" --workers 2 --resume runs/tiny-sweep")


def test_processes_started_by_hand_share_the_trials(environment, run_in, tmp_path):
    folder = folder_of(tmp_path, "two", SEARCH.replace("trials: 5", "trials: 1"))
    assert run_in(folder, *SWEEP).returncode == 0
    text = (folder / "tiny.yaml").read_text("utf-8")
    (folder / "tiny.yaml").write_text(text.replace("trials: 1", "trials: 6"), encoding="utf-8")
    command = [sys.executable, "-m", "dnnstack.cli", *SWEEP, "--resume", "--json"]
    workers = [
        subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.PIPE)
        for _ in range(2)
    ]
    # Each waits for the other's last trial, so both know all.
    for worker in workers:
        states = [t["state"] for t in json.loads(worker.communicate(timeout=300)[0])["trials"]]
        assert len(states) == 6
        assert "open" not in states
    assert [worker.returncode for worker in workers] == [0, 0]
    for event in ("begin", "end"):
        numbers = [each["trial"] for each in lines_of(folder) if each["event"] == event]
        assert sorted(numbers) == list(range(6))
    listed = json.loads(run_in(folder, "runs", "--sweep", "tiny-sweep", "--json").stdout)
    assert (listed["kind"], len(listed["runs"])) == ("sweep", 6)


def test_trials_that_fail_are_told_and_the_others_go_on(run_in, tmp_path):
    search = "search:\n  sampler: grid\n  keys: {layers.conv2d_1.kernel_size: [5, 40]}\n"
    done = run_in(folder_of(tmp_path, "fails", search), *SWEEP, status=0)
    assert "trial-1: accuracy " in done.stdout
    assert "trial-2: failed: " in done.stdout
    assert "runs/tiny-sweep: 2 trials, 1 complete, 1 failed" in done.stdout
    assert done.stdout.endswith("\nnext        dnnstack report runs/tiny-sweep\n")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("high: 0.3", "high: 0.2"), "search.keys.optimizer.lr: is another"),
        (
            ("trials: 1", "sampler: {type: tpe, startup_trials: 3}\n  trials: 1"),
            "search.sampler.startup_trials: 10 -> 3",
        ),
        (("trials: 1", "seed: 9\n  trials: 1"), "search.seed: 1 -> 9"),
        (("batch_size: 32", "batch_size: 30"), "data.batch_size: 32 -> 30"),
    ],
)
def test_a_sweep_goes_on_with_its_own_config_only(run_in, tmp_path, change, message):
    folder = folder_of(tmp_path, "other", SEARCH.replace("trials: 5", "trials: 1"))
    assert run_in(folder, *SWEEP).returncode == 0
    text = (folder / "tiny.yaml").read_text("utf-8")
    (folder / "tiny.yaml").write_text(text.replace(*change, 1), encoding="utf-8")
    done = run_in(folder, *SWEEP, "--resume", status=1)
    assert message in done.stderr


@pytest.mark.parametrize(
    ("objective", "budget", "trials"),
    [
        ("loss", "epochs: 2.5", 3),
        ("seconds", "trials: 2", 2),
        ("[accuracy, seconds]", "seconds: 1e-6", 1),
    ],
)
def test_every_objective_and_budget(child, tmp_path, objective, budget, trials):
    search = f"search: {{objective: {objective}, {budget}, keys: {{optimizer.lr: [0.1]}}}}\n"
    folder = folder_of(tmp_path, "goal", search, epochs=2)
    text = (folder / "tiny.yaml").read_text("utf-8")
    goal = text.replace("epochs: 2", "epochs: 2, goal: {accuracy: 0.05}", 1)
    (folder / "tiny.yaml").write_text(goal, encoding="utf-8")
    done = child(folder, *SWEEP)
    assert done.status == 0, done.text
    ended = [each for each in lines_of(folder) if each["event"] == "end"]
    assert [(each["trial"], each["state"]) for each in ended] == [
        (n, "complete") for n in range(trials)
    ]
    for name, value in zip(objective.strip("[]").split(", "), ended[0]["values"], strict=True):
        log = (folder / "runs/tiny-sweep/trial-1/log.jsonl").read_text("utf-8").splitlines()
        lines = [json.loads(line) for line in log]
        found = [line for line in lines if line["event"] == "validation"]
        expected = {
            "loss": min(line["loss"] for line in found),
            "accuracy": max(line["accuracy"] for line in found),
            "seconds": lines[-1]["training_seconds"],
        }
        assert value == expected[name]


def test_a_config_from_a_pipe_is_read_once(command, environment, tmp_path):
    """And so one that is changed while a sweep or seeds train is not read again."""
    search = "search: {trials: 2, keys: {optimizer.lr: [0.1, 0.2]}}\n"
    folder = folder_of(tmp_path, "piped", search)
    (folder / "plain.yaml").write_text(TINY, encoding="utf-8")
    rest = "--device numpy --threads 1 --set name=tiny --set train.epochs=1"
    for line in (
        "sweep --config <(cat tiny.yaml) --workers 2",
        "train --config <(cat plain.yaml) --seeds 2",
    ):
        script = f"{shlex.join(command)} {line} {rest}"
        done = ran(["bash", "-c", script], cwd=folder, env=environment)
        assert done.returncode == 0, done.stderr


@pytest.mark.skipif(NVIDIA_DRIVER.exists(), reason="this machine may have a GPU")
def test_a_missing_gpu_is_told_before_anything_is_written(run_in, tmp_path):
    """Also where each worker opens the device for itself."""
    folder = folder_of(tmp_path, "one")
    words = ("sweep", "--config", "tiny.yaml", "--device", "cuda", "--workers", "2")
    done = run_in(folder, *words, status=1)
    assert done.stderr.startswith("dnnstack: error: device 'cuda'")
    assert not (folder / "runs").exists()


def test_data_that_a_trial_asks_for_in_vain(run_in, tmp_path):
    """If no trial asks for other data, the sweep ends instead."""
    cases = {"data.dataset: [mnist, strokes]": 0, "optimizer.lr: [1]": 1, "data.batch_size: [8]": 1}
    for number, (key, status) in enumerate(cases.items()):
        search = f"search:\n  sampler: grid\n  keys: {{{key}}}\n"
        folder = folder_of(tmp_path, str(number), search)
        words = ("--set", "data.dataset=mnist") if status else ()
        done = run_in(folder, *SWEEP, *words, "--data-dir", str(tmp_path), "--set", SHORT)
        assert done.returncode == status, done.stderr
        assert ("trial-1: failed: " in done.stdout) == (not status)


def test_a_sweep_of_failures_alone_fails(run_in, tmp_path):
    search = "search:\n  sampler: grid\n  keys: {layers.conv2d_1.kernel_size: [39, 40]}\n"
    done = run_in(folder_of(tmp_path, "fails", search), *SWEEP, status=1)
    assert done.stderr.endswith("dnnstack: error: runs/tiny-sweep: every trial failed\n")


def test_the_test_set_is_not_read(run_in, tmp_path):
    rng = np.random.default_rng(3)
    pictures = rng.integers(0, 256, (120, 28, 28)), np.arange(120) % 10
    write(tmp_path, *pictures)
    assert not list((tmp_path / "mnist").glob("t10k*"))
    search = "search:\n  sampler: grid\n  keys: {optimizer.lr: [0.1, 0.2]}\n"
    words = ("--set", "data.dataset=mnist", "--data-dir", str(tmp_path), "--set", SHORT)
    done = run_in(folder_of(tmp_path, "one", search), *SWEEP, *words, status=0)
    assert "2 trials, 2 complete" in done.stdout

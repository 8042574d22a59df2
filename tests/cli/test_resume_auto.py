"""``--resume auto``: one command for the first start of a job and for every later one."""

from __future__ import annotations

import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from dnnstack.common.locks import lock
from dnnstack.training.records.formats.store import newest_checkpoint

from ..support.stored import cases
from .conftest import TINY

Child = Callable[..., Any]
Run = Callable[..., subprocess.CompletedProcess[str]]
MACHINE = ("--device", "numpy", "--threads", "1")
TRAIN = ("train", "--config", "tiny.yaml", *MACHINE, "--resume", "auto")
FOLDS = (*TRAIN, "--folds", "2", "--set", "train={epochs: 1, log_every: 5}")
SEARCH = """\
search:
  trials: 3
  sampler: random
  keys: {optimizer.lr: {low: 0.003, high: 0.3, log: true}}
"""
STAGES = 'stages: [{prune: {keep: {"*.weight": 0.5}}, train: {max_steps: 3}}]\n'
RUN = Path("runs/tiny")


def _end(run: Path) -> Any:
    """The bits of a run's newest checkpoint and its rows of metrics."""
    arrays = newest_checkpoint(run / "checkpoints").arrays
    return {n: a.tobytes() for n, a in arrays.items()}, (run / "metrics.csv").read_text("utf-8")


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "tiny.yaml").write_text(TINY, encoding="utf-8")
    return tmp_path


@pytest.fixture
def finished(folder, trained):
    """A folder with a finished run of its own."""
    shutil.copytree(trained / "runs", folder / "runs", symlinks=True)
    return folder


def _only(folder: Path, *names: str) -> bool:
    return sorted(path.name for path in (folder / "runs").iterdir()) == sorted(names)


def test_the_same_command_until_it_succeeds(child, folder, trained):
    """Killed before there is a folder, before the first checkpoint, and in the middle."""
    count = folder / "count"
    (folder / "whole").mkdir()
    (folder / "whole/tiny.yaml").write_text(TINY, encoding="utf-8")
    assert child(folder / "whole", *TRAIN, kill_at=0, count_file=str(count)).status == 0
    points = int(count.read_text("utf-8"))
    for kill_at in (1, points // 8, points * 2 // 3, points // 3):
        assert child(folder, *TRAIN, kill_at=kill_at).status == -signal.SIGKILL
    done = child(folder, *TRAIN)
    assert done.status == 0, done.text
    assert "resumed     at step" in done.text
    assert _only(folder, "tiny", "latest")
    assert _end(folder / RUN) == _end(trained / RUN) == _end(folder / "whole" / RUN)


def test_a_run_without_a_checkpoint_starts_over_in_its_folder(run, finished, trained):
    shutil.rmtree(finished / RUN / "checkpoints")
    done = run(*TRAIN, status=0)
    assert "starts again from step 0" in done.stderr
    assert _end(finished / RUN) == _end(trained / RUN)
    assert _only(finished, "tiny", "latest")


def test_a_stop_before_the_first_step_names_the_same_command(child, folder):
    ended = child(folder, *TRAIN, phase="compile", signal=signal.SIGTERM)
    assert ended.status == 143, ended.text
    assert ended.text.splitlines()[-1].endswith(" --resume auto")
    # No lock is left, and no folder.
    assert _only(folder)


def test_of_a_finished_run_nothing_is_left_to_do(run, finished):
    before = _end(finished / RUN)
    done = run(*TRAIN, status=0)
    assert "nothing left to do: training is already at its end, step 26" in done.stderr
    assert _end(finished / RUN) == before
    assert _only(finished, "tiny", "latest")


def test_first_weights_are_taken_at_the_first_start_alone(run, finished):
    argv = (*TRAIN, "--set", "name=next", "--init-from", "tiny", "--set", "train.max_steps=4")
    first = run(*argv, status=0)
    assert "init        " in first.stdout
    again = run(*argv, status=0)
    assert "init        " not in again.stdout
    assert _only(finished, "tiny", "next", "latest")


@pytest.mark.parametrize(
    ("fault", "said"), cases(__file__, "nothing_is_started_beside_a_run_that_cannot_go_on")
)
def test_nothing_is_started_beside_a_run_that_cannot_go_on(run, finished, fault, said):
    more: tuple[str, ...] = ()
    if fault == "config missing":
        (finished / RUN / "config.yaml").unlink()
    elif fault == "config damaged":
        (finished / RUN / "config.yaml").write_text("\0\0\0")
    elif fault == "checkpoints damaged":
        for path in (finished / RUN / "checkpoints").glob("*.safetensors"):
            path.write_bytes(path.read_bytes()[:-1])
    else:
        more = ("--set", "layers.0.conv2d.filters=5")
    done = run(*TRAIN, *more, status=1)
    assert said in done.stderr
    assert str(RUN) in done.stderr
    assert _only(finished, "tiny", "latest")


def test_runs_of_other_names_are_no_obstacle(run, finished):
    """``tiny-2`` is a name of its own; an empty folder was left by a process that was killed."""
    (finished / RUN).rename(finished / "runs/tiny-2")
    config = finished / "runs/tiny-2/config.yaml"
    config.write_text(config.read_text().replace("name: tiny", "name: tiny-2"))
    (finished / "runs/tiny-3").mkdir()
    run(*TRAIN, "--set", "train.max_steps=2", status=0)
    assert "name: tiny\n" in (finished / "runs/tiny-3/config.yaml").read_text()


def test_another_process_that_starts_or_trains_is_not_doubled(run, finished):
    with lock(finished / RUN / "lock"):
        done = run(*TRAIN)
    assert done.returncode == 1
    assert "runs/tiny: is in use" in done.stderr
    shutil.rmtree(finished / RUN)
    with lock(finished / "runs/.tiny.lock", keep=False):
        done = run(*TRAIN)
    assert done.returncode == 1
    assert "runs/.tiny.lock is locked by pid" in done.stderr
    assert not (finished / RUN).exists()


def test_two_starts_at_once_make_one_run(environment, command, folder, trained):
    children = [
        subprocess.Popen(
            [*command, *TRAIN],
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    errors = [child.communicate(timeout=300)[1] for child in children]
    statuses = [child.returncode for child in children]
    assert 0 in statuses
    for status, text in zip(statuses, errors, strict=True):
        refused = "is locked by pid" in text or "is in use" in text
        # One that comes after the other has ended finds nothing left to do.
        assert (status, refused) in {(0, False), (1, True)}
    assert _end(folder / RUN) == _end(trained / RUN)
    assert _only(folder, "tiny", "latest")


def test_folds_begin_and_go_on(child, folder):
    group = folder / "runs/tiny-folds"
    stopped = child(folder, *FOLDS, phase="train", at_call=2, signal=signal.SIGTERM)
    assert stopped.status == 143, stopped.text
    done = child(folder, *FOLDS)
    assert done.status == 0, done.text
    assert "resumed     at step " in done.text
    assert child(folder, *FOLDS).status == 0
    (group / "group.json").unlink()
    damaged = child(folder, *FOLDS)
    assert damaged.status == 1
    assert "tiny-folds: may be what is to go on" in damaged.text
    assert _only(folder, "tiny-folds")


def test_a_sweep_is_begun_once_by_processes_that_all_take_part(environment, command, folder):
    pytest.importorskip("optuna")
    (folder / "tiny.yaml").write_text(f"{TINY}{SEARCH}".replace("epochs: 2", "epochs: 1"))
    argv = ("sweep", "--config", "tiny.yaml", *MACHINE, "--workers", "1", "--resume", "auto")
    children = [
        subprocess.Popen([*command, *argv], cwd=folder, env=environment, stderr=subprocess.PIPE)
        for _ in range(2)
    ]
    for child in children:
        errors = child.communicate(timeout=300)[1]
        assert child.returncode == 0, errors
    assert _only(folder, "tiny-sweep")
    assert len([*(folder / "runs/tiny-sweep").glob("trial-*/config.yaml")]) == 3


def test_a_compression_begins_and_goes_on(run, finished):
    (finished / "small.yaml").write_text(STAGES)
    argv = ("compress", "--config", "small.yaml", *MACHINE, "--resume", "auto")
    run(*argv, status=0)
    again = run(*argv, status=0)
    assert "step 3/3" not in again.stdout
    assert _only(finished, "tiny", "tiny-compressed", "latest")

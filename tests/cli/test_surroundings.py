"""What lies in the current folder, or is set around a command: strangers' modules and settings,
a folder that is gone, libraries that talk, files that may not grow."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import dnnstack
import pytest
from dnnstack.cli.main import main
from dnnstack.common import errors
from dnnstack.common.errors import BackendUnavailableError
from dnnstack.reports.drawings import Drawings
from dnnstack.training.ranks import world

from ..support.ran import ran
from ..support.ranks import needs_launcher
from .conftest import TINY, Result

MODULES = ("dnnstack", "json", "numpy", "random", "yaml")
TRAIN = ("train", "--config", "tiny.yaml", "--device", "numpy", "--threads", "1")


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "tiny.yaml").write_text(TINY)
    (tmp_path / "search.yaml").write_text(TINY + "search: {keys: {seed: [1, 2]}, sampler: grid}\n")
    return tmp_path


@pytest.fixture
def hostile(folder):
    """Its modules leave a mark if they are run, and settings of libraries that never end."""
    for name in MODULES:
        mark = f"open({str(folder / 'ran')!r}, 'a').write({name!r})\nraise SystemExit(9)\n"
        (folder / f"{name}.py").write_text(mark)
    for name in ("matplotlibrc", "ucx.conf"):
        os.mkfifo(folder / name)
    return folder


def by_name(environment: dict[str, str], folder: Path, *words: str) -> Result:
    """Run the command by its name, in a folder."""
    return ran(
        [str(Path(sys.executable).with_name("dnnstack")), *words],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
    )


@pytest.mark.parametrize(
    "words",
    [
        TRAIN,
        (*TRAIN, "--seeds", "2", "--workers", "2"),
        ("sweep", "--config", "search.yaml", *TRAIN[3:], "--workers", "2"),
        pytest.param((*TRAIN, "--ranks", "2"), marks=needs_launcher),
    ],
    ids=["alone", "seeds", "sweep", "ranks"],
)
def test_no_file_of_the_current_folder_is_run_or_read(environment, hostile, words):
    done = by_name(environment, hostile, *words, "-q")
    assert done.returncode == 0, done.stderr
    assert not (hostile / "ran").exists()
    assert not done.stderr


def test_nor_by_a_process_that_draws(trained, hostile, monkeypatch):
    said: list[str] = []
    run = hostile / "run"
    run.mkdir()
    (run / "metrics.csv").write_bytes((trained / "runs/tiny/metrics.csv").read_bytes())
    monkeypatch.chdir(hostile)
    with Drawings(said.append, True) as drawn:
        drawn.draw(Path("run"))
    assert said == []
    assert (run / "curves.png").exists()
    assert not (hostile / "ran").exists()


def test_nor_by_the_process_of_a_programs_workers(hostile, cache, monkeypatch):
    monkeypatch.chdir(hostile)
    monkeypatch.setenv("DNNSTACK_CACHE", str(cache))
    done = dnnstack.train_group("tiny.yaml", seeds=2, workers=2, device="numpy", threads=1)
    assert done.finished == 2
    assert not (hostile / "ran").exists()


def test_modules_of_pythonpath_are_found_in_ranks(folder):
    """Also where it names a folder beside the current one."""
    (folder / "own").mkdir()
    (folder / "own/dnnstack_probe.py").write_text("def found():\n    return 7\n")
    done = subprocess.run(
        [sys.executable, "-c", world.called("dnnstack_probe", "found")],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": "own"},
    )
    assert done.returncode == 7


@pytest.mark.parametrize(
    "words",
    [TRAIN, ("doctor",), ("eval",), ("new", "pictures"), ("sweep", *TRAIN[1:]), ("runs",)],
    ids=lambda words: words[0],
)
def test_a_folder_that_is_gone(tmp_path, monkeypatch, capsys, words):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert main(words) == 1
    assert capsys.readouterr().err == (
        "dnnstack: error: the current folder has been removed, or made anew; go to a folder that "
        "exists: cd\n"
    )


def test_other_files_that_are_missing_are_no_such_folder():
    assert errors.told(FileNotFoundError(2, "No such file or directory")) is None


def test_what_libraries_print_leaves_json_whole(environment, folder):
    words = ("explain", "--config", "tiny.yaml", "--device", "cpu", "--threads", "1", "--json")
    plain = by_name(environment, folder, *words)
    talking = by_name({**environment, "ONEDNN_VERBOSE": "1"}, folder, *words)
    assert (plain.returncode, talking.returncode) == (0, 0), talking.stderr
    assert json.loads(talking.stdout).keys() == json.loads(plain.stdout).keys()
    assert "onednn_verbose,info" in talking.stderr
    assert "onednn_verbose" not in plain.stderr


def test_what_onednn_prints_is_not_lost_at_a_sudden_end(environment, folder):
    """As that of workers is."""
    words = ["explain", "--config", "tiny.yaml", "--device", "cpu", "--threads", "1"]
    code = f"import os\nfrom dnnstack.cli.main import main\nmain({words})\nos._exit(0)\n"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        env={**environment, "ONEDNN_VERBOSE": "1"},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    assert "onednn_verbose,info" in done.stdout


@needs_launcher
def test_what_libraries_print_leaves_the_output_of_ranks_whole(environment, folder):
    words = ("train", "--config", "tiny.yaml", "--device", "cpu", "--threads", "1", "--ranks", "2")
    done = by_name({**environment, "ONEDNN_VERBOSE": "1"}, folder, *words)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].startswith("next ")
    assert "onednn_verbose" not in done.stdout
    assert "onednn_verbose" in done.stderr


def test_a_picture_that_may_not_grow_is_told_quietly_too(environment, folder):
    command = shlex.join([sys.executable, "-m", "dnnstack.cli", *TRAIN, "-q"])
    done = ran(["bash", "-c", f"ulimit -f 40; exec {command}"], cwd=folder, env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stderr == (
        "dnnstack: warning: runs/tiny/curves.png: the curves were not drawn (File too large)\n"
    )


def test_a_launcher_that_may_not_be_executed(tmp_path, monkeypatch):
    (tmp_path / "mpiexec").write_text("#!/bin/sh\n")
    monkeypatch.setattr(world, "launcher", lambda: tmp_path / "mpiexec")
    monkeypatch.setattr(world, "check_mpi", lambda: None)
    # On a cluster standard output stays as it is.
    monkeypatch.setenv("SLURM_PROBE", "1")
    with pytest.raises(BackendUnavailableError) as caught:
        world.launch(2, [], ())
    assert f"{tmp_path}/mpiexec cannot be started: Permission denied; install" in str(caught.value)


def test_what_may_not_be_done_without_a_file_is_no_fault_of_the_output():
    assert errors.told(PermissionError(13, "Permission denied")) is None
    assert errors.told(PermissionError(13, "Permission denied", "a")) == "a: Permission denied"
    assert "standard output: cannot be written" in (errors.told(OSError(28, "full")) or "")

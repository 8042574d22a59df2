"""The command as a person runs it: a process of its own, in a folder of its own."""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from ..support import mistakes
from ..support.forking import Commands
from ..support.ran import ran
from ..support.stored import beside
from ..support.unrendered import _unrendered, rendered

__all__ = ["_unrendered", "rendered"]

Result = subprocess.CompletedProcess[str]
Run = Callable[..., Result]
SUPPORT = Path(__file__).parents[1] / "support"

# An odd batch for evaluation leaves a partial last one in every split.
TINY = beside(__file__, "tiny.yaml")


@pytest.fixture(scope="session")
def cache(tmp_path_factory):
    """One cache for all processes: drawn pictures and tuning tables."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="session")
def environment(cache):
    """Nothing of the user's own, and no network; output is buffered as usual."""
    # COLUMNS is that of pytest's workers, not of a terminal.
    own = ("DNNSTACK_", "OPENBLAS_", "PYTHONUNBUFFERED", "COLUMNS", "LINES")
    kept = {key: value for key, value in os.environ.items() if not key.startswith(own)}
    return {**kept, "DNNSTACK_CACHE": str(cache), "DNNSTACK_OFFLINE": "1"}


@pytest.fixture(scope="session")
def command():
    """How a process begins; a warning of any library is an error."""
    return [sys.executable, "-W", "error", "-m", "dnnstack.cli"]


def ended(done: Result, status: int | None) -> Result:
    """The same, with the status that is asked for."""
    assert status in (None, done.returncode), done.stderr
    return done


@pytest.fixture(scope="session")
def start_in(environment, command):
    """Run the command in a folder, as a process that imports what it needs."""

    def run(folder: Path, *arguments: str, status: int | None = None) -> Result:
        return ended(ran([*command, *arguments], cwd=folder, env=environment), status)

    return run


@pytest.fixture(scope="session")
def commands(environment, tmp_path_factory):
    """A process that has imported everything, whose children run commands."""
    with closing(Commands(environment, tmp_path_factory.mktemp("commands"))) as commands:
        yield commands


@pytest.fixture(scope="session")
def run_in(environment, commands):
    """Run the command in a folder, as a child of a process that has imported everything."""

    def run(folder: Path, *arguments: str, status: int | None = None) -> Result:
        return ended(commands.run(folder, arguments, environment), status)

    return run


@pytest.fixture
def run(run_in, tmp_path):
    """Run the command in this test's folder, which holds ``tiny.yaml``."""
    (tmp_path / "tiny.yaml").write_text(TINY, encoding="utf-8")

    return functools.partial(run_in, tmp_path)


@dataclass(frozen=True)
class Ended:
    """A child of ``children.py`` after its end; ``status`` is negative for a signal's number."""

    status: int
    seconds: float
    text: str


Child = Callable[..., Ended]


@pytest.fixture(scope="session")
def child(environment, tmp_path_factory):
    """Run a command line in a forked child, numpy alone; options are those of ``children.py``."""
    out = tmp_path_factory.mktemp("child") / "out.txt"
    with subprocess.Popen(
        [sys.executable, "-W", "error", str(SUPPORT / "children.py")],
        env={**environment, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as server:

        def run(folder: Path, *argv: str, **options: object) -> Ended:
            assert server.stdin is not None
            assert server.stdout is not None
            job = {"argv": argv, "cwd": str(folder), "out": str(out), **options}
            server.stdin.write(json.dumps(job) + "\n")
            server.stdin.flush()
            status, seconds = json.loads(server.stdout.readline())
            code = os.waitstatus_to_exitcode(status)
            return Ended(code, seconds, out.read_text("utf-8") if out.exists() else "")

        yield run
        assert server.stdin is not None
        server.stdin.close()


@pytest.fixture(scope="session")
def trained(start_in, tmp_path_factory):
    """A folder with ``tiny.yaml`` and its finished run, to be read and not written."""
    folder = tmp_path_factory.mktemp("trained")
    (folder / "tiny.yaml").write_text(TINY, encoding="utf-8")
    done = start_in(folder, "train", "--config", "tiny.yaml", "--device", "numpy")
    assert done.returncode == 0, done.stderr
    yield folder
    assert [path.name for path in (folder / "runs").glob("tiny*")] == ["tiny"]


@pytest.fixture
def here(trained, cache, tmp_path, monkeypatch):
    """The current folder, with the ``tiny.yaml`` of mistakes and a finished run, to be spoilt."""
    shutil.copytree(trained / "runs", tmp_path / "runs", symlinks=True)
    (tmp_path / "tiny.yaml").write_text(mistakes.TINY, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DNNSTACK_CACHE", str(cache))
    monkeypatch.setenv("DNNSTACK_OFFLINE", "1")
    monkeypatch.delenv("DNNSTACK_DATA", raising=False)
    return tmp_path

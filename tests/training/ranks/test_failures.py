"""Ranks that die, hang or do not fit: all end, one message says why, and a resume loses no bit."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from dnnstack.training.ranks.world import launcher

from ...support.picture_folders import paint
from ...support.ran import ran
from ...support.ranks import (
    LIMIT,
    NET,
    SGD,
    bits,
    command,
    environment,
    events,
    needs_launcher,
    ranks_in,
    trained,
    trained_alone,
)

pytestmark = needs_launcher
STEPS, LAST = 4, 3000
BANNER = "BAD TERMINATION"
KILLS = int(os.environ.get("DNNSTACK_RANK_KILLS", "1"))


@pytest.fixture
def folder(tmp_path):
    text = NET.replace("max_steps: 14", f"max_steps: {LAST}").replace(
        "every_steps: 7", "every_steps: 5"
    )
    (tmp_path / "net.yaml").write_text(text + SGD + "schedule: fixed\n")
    return tmp_path


class Training:
    """A training by two ranks that is under way: it has saved a checkpoint."""

    def __init__(
        self, folder: Path, own_launcher: bool = True, machines: Sequence[str] = (), **environ: str
    ) -> None:
        given = ("--config", "net.yaml")
        words = command(2, *given, own_launcher=own_launcher, machines=machines)
        self.run = folder / "runs" / "net"
        self.out = (folder / "out.txt").open("w+")
        self.process = subprocess.Popen(
            words,
            cwd=folder,
            env=environment(**environ),
            stdin=subprocess.DEVNULL,
            stdout=self.out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self.ranks: dict[int, int] = {}
        self._until(lambda: any(self.run.glob("checkpoints/step-*.json")))
        self._until(self._found_both)

    def _until(self, holds) -> None:  # type: ignore[no-untyped-def]
        end = time.monotonic() + LIMIT
        while not holds():
            assert self.process.poll() is None, self.said()
            assert time.monotonic() < end, "the training does not begin"
            time.sleep(0.05)

    def _found_both(self) -> bool:
        """Look for the process ids of the ranks."""
        self.ranks = ranks_in(self.run.parents[1])
        return len(self.ranks) == 2

    def ended(self) -> int:
        """The launcher's status, when no rank is left."""
        status = self.process.wait(LIMIT)
        end = time.monotonic() + LIMIT
        while any(Path(f"/proc/{pid}").exists() for pid in self.ranks.values()):
            assert time.monotonic() < end, "a rank goes on"
            time.sleep(0.05)
        return status

    def said(self) -> str:
        self.out.seek(0)
        return self.out.read()


@contextmanager
def under_way(
    folder: Path, own_launcher: bool = True, machines: Sequence[str] = (), **environ: str
) -> Iterator[Training]:
    training = Training(folder, own_launcher, machines, **environ)
    try:
        yield training
    finally:
        for pid in training.ranks.values():
            if Path(f"/proc/{pid}").exists():
                os.kill(pid, signal.SIGKILL)
        training.process.kill()
        training.process.wait()
        training.out.close()


def steps_of(run: Path) -> list[int]:
    return sorted(int(path.stem.partition("-")[2]) for path in run.glob("checkpoints/step-*.json"))


def goes_on_as_if_nothing_had_happened(folder: Path, ranks: int = 2) -> None:
    """A resume of the run ends in the bits of one that was not disturbed."""
    last = steps_of(folder / "runs" / "net")[-1] + STEPS
    stop = ("--set", f"train.max_steps={last}", "--config", "net.yaml")
    if ranks == 1:
        trained_alone(folder, *stop, "--resume")
    else:
        again = trained(folder, ranks, *stop, "--resume")
        assert again.returncode == 0, again.stderr
    trained_alone(folder, *stop, "--set", "name=whole")
    assert bits(folder / "runs" / "net", last, False) == bits(
        folder / "runs" / "whole", last, False
    )


@pytest.mark.parametrize("number", range(KILLS))
def test_a_rank_that_is_killed_ends_all(folder, number):
    with under_way(folder, own_launcher=False) as training:
        time.sleep(random.random())
        rank = random.randrange(2)
        os.kill(training.ranks[rank], signal.SIGKILL)
        assert training.ended() != 0
        said = training.said()
    assert f"dnnstack: error: rank {rank} on " in said
    assert said.count("dnnstack: error") == 1
    assert " was ended by SIGKILL, so all ranks end; resume from the last checkpoint" in said
    assert BANNER not in said
    assert "\nstep " in said
    goes_on_as_if_nothing_had_happened(folder)


def test_ranks_of_one_machine_open_no_port(folder):
    with under_way(folder, own_launcher=False) as training:
        listening = {
            line.split()[9]
            for table in ("tcp", "tcp6")
            for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]
            if line.split()[3] == "0A"
        }
        for pid in (training.process.pid, *training.ranks.values()):
            opened = (os.readlink(each) for each in Path(f"/proc/{pid}/fd").iterdir())
            assert not [name for name in opened if name[8:-1] in listening], pid


def test_a_guard_that_is_killed_is_told_of(folder):
    with under_way(folder) as training:
        stat = Path(f"/proc/{training.ranks[1]}/stat").read_text()
        os.kill(int(stat.rpartition(")")[2].split()[1]), signal.SIGKILL)
        assert training.ended() != 0
        said = training.said()
    assert (
        said.count("dnnstack: error: the process that watches over a rank was killed, so all") == 1
    )


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_stands_still_ends_all(folder, rank):
    with under_way(folder, DNNSTACK_RANKS_DEADLINE="4") as training:
        os.kill(training.ranks[rank], signal.SIGSTOP)
        assert training.ended() != 0
        said = training.said()
    assert f"dnnstack: error: rank {1 - rank} on " in said
    assert "another rank has not answered for 4 s" in said
    assert steps_of(folder / "runs" / "net")


@pytest.mark.parametrize(
    ("number", "own_launcher"),
    [
        (signal.SIGTERM, True),
        (signal.SIGINT, False),
        (signal.SIGUSR2, False),
    ],
)
def test_a_signal_to_the_launcher_saves(folder, number, own_launcher):
    with under_way(folder, own_launcher) as training:
        training.process.send_signal(number)
        assert training.ended() == 128 + number
        said = training.said()
    assert BANNER not in said
    assert "\ninterrupted" in said
    assert events(folder / "runs" / "net", "end")[-1]["state"] == "interrupted"
    goes_on_as_if_nothing_had_happened(folder, ranks=1)


# ---------------------------------------------------------------- ranks that do not fit

OTHER_VERSION = (
    "import sys, importlib.metadata as m; m.version = lambda name: '0.0.9'; "
    "from dnnstack.cli.main import main; sys.exit(main())"
)
OTHER_PARAMETERS = (
    "import sys, dnnstack.training.ranks.leader as f; f.checksum = lambda arrays: 1; "
    "from dnnstack.cli.main import main; sys.exit(main())"
)
NO_GPU = """
import sys, dnnstack.backends.select as s
from dnnstack.cli.main import main
from dnnstack.common.errors import BackendUnavailableError
def none(capture): raise BackendUnavailableError("device 'cuda': none is left")
s._cuda = none
sys.exit(main())
"""
DIES = (
    "import os, sys, dnnstack.training.ranks.follower as f; "
    "f.make_plan = lambda *_, **__: os.kill(os.getpid(), 9); "
    "from dnnstack.cli.main import main; sys.exit(main())"
)
UNSEEN = "import time, dnnstack.cli.guard as g; g._end_all = lambda status: time.sleep(60); " + DIES
WRONG = {
    "the config's mark": ((), ("--set", "seed=8")),
    "instruction set": (("env", "ONEDNN_MAX_CPU_ISA=SSE41"), ()),
    "threads": ((), ("--threads", "2")),
}


def beside(folder: Path, first: list[str], second: list[str]) -> subprocess.CompletedProcess[str]:
    """Two ranks that are started by different words."""
    words = [str(launcher()), "-n", "1", *first, ":", "-n", "1", *second]
    return ran(words, cwd=folder, env=environment(), stdin=subprocess.DEVNULL, timeout=LIMIT)


def refused(done: subprocess.CompletedProcess[str], *texts: str) -> None:
    assert done.returncode == 1, done.stderr
    assert done.stderr.startswith("dnnstack: error: rank 1 on "), done.stderr
    assert done.stderr.count("dnnstack: error") == 1
    assert "Traceback" not in done.stderr
    for text in (done.stdout, done.stderr):
        assert BANNER not in text
    for text in texts:
        assert text in done.stderr


@pytest.mark.parametrize("name", WRONG)
def test_a_rank_that_computes_otherwise_is_named(folder, name):
    first = command(1, "--config", "net.yaml", "--device", "cpu")
    before, behind = WRONG[name]
    done = beside(folder, first, [*before, *first, *behind])
    refused(done, f": {name} is ", " on rank 0 on ", "; start all ranks with the same command")
    assert not (folder / "runs").exists()


def test_a_rank_without_a_gpu_is_told_what_to_do(folder):
    """Where the device is chosen automatically, it computes otherwise; else it has none."""
    first = command(1, "--config", "net.yaml")
    done = beside(folder, first, [*first, "--device", "numpy"])
    more = "a machine needs one for each of its ranks"
    refused(done, ": the backend is numpy, but onednn on rank 0 on ", "; --device cpu makes", more)
    done = beside(folder, first, [sys.executable, "-c", NO_GPU, *first[3:], "--device", "cuda"])
    refused(done, ": device 'cuda': none is left; ", more)
    assert not (folder / "runs").exists()


def test_another_version_is_named(folder):
    first = command(1, "--config", "net.yaml")
    done = beside(folder, first, [sys.executable, "-c", OTHER_VERSION, *first[3:]])
    refused(done, ": dnnstack is 0.0.9 (code ")


@pytest.mark.parametrize("more", [(), ("--async", "--set", "optimizer.momentum=0.5")])
def test_a_rank_that_dies_before_the_first_step_ends_all(folder, more):
    """The launcher sees it: nobody waits until it might have answered."""
    first = command(1, "--config", "net.yaml", *more)
    done = beside(folder, first, [sys.executable, "-c", DIES, *first[3:]])
    assert done.returncode != 0
    assert done.stderr.startswith("dnnstack: error: rank 1 on ")
    assert " was ended by SIGKILL, " in done.stderr
    assert done.stderr.count("dnnstack: error") == 1


def test_a_rank_that_dies_unseen_by_the_launcher_is_not_waited_for(folder):
    first = command(1, "--config", "net.yaml")
    done = beside(folder, first, [sys.executable, "-c", UNSEEN, *first[3:]])
    assert done.returncode == 1
    killed, ended = done.stderr.splitlines()
    assert killed.startswith("dnnstack: error: rank 1 on ")
    assert ended.startswith("dnnstack: error: rank 0 on ")
    assert ": another rank has ended, and so does this training; resume it " in ended


def test_parameters_that_drift_apart_are_not_saved(folder):
    first = command(1, "--config", "net.yaml")
    done = beside(folder, first, [sys.executable, "-c", OTHER_PARAMETERS, *first[3:]])
    assert done.returncode == 1
    assert done.stderr.startswith("dnnstack: error: step 0: the parameters of rank 1 on ")
    assert BANNER not in done.stderr
    assert steps_of(folder / "runs" / "net") == []


@pytest.mark.parametrize("lacking", [1, 0])
def test_missing_data_is_named(folder, lacking):
    """On the second rank alone with its machine; on both the first says it as if it were alone."""
    for number, part in enumerate(("train", "test") if lacking else ()):
        for label in "abcdefghij":
            for i in range(3):
                paint(folder / "full" / "pictures" / part / label / f"{i}.png", 10 * number + i)
    (folder / "empty").mkdir()
    folders = "{train: pictures/train, test: pictures/test, size: 4}"
    pictures = f"data={{dataset: {{image_folder: {folders}}}, batch_size: 4}}"
    given = ("--config", "mlp.yaml", "--device", "cpu", "--set", "train.epochs=1")
    given += ("--set", pictures)
    first = command(1, *given, "--data-dir", str(folder / "full"))
    second = command(1, *given, "--data-dir", str(folder / "empty"))
    done = beside(folder, first if lacking else second, second)
    assert done.returncode == 1, done.stderr
    assert done.stderr.count("dnnstack: error") == 1
    assert BANNER not in done.stderr + done.stdout
    assert done.stderr.startswith("dnnstack: error: rank 1 on ") == bool(lacking), done.stderr


def test_another_number_of_ranks_than_was_started_is_wrong_usage(folder):
    words = [str(launcher()), "-n", "2", *command(3, "--config", "net.yaml")]
    done = ran(words, cwd=folder, env=environment(), timeout=LIMIT)
    assert done.stderr.count("--ranks 3: the launcher has started 2 processes") == 1
    assert done.returncode == 2
    assert BANNER not in done.stderr

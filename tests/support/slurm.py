"""A real Slurm of one machine, without systemd and cgroups: munged, slurmctld and slurmd."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from .stored import beside

LIMIT = 120
"""Seconds until something that takes a few at most counts as failed."""
_PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "scontrol", "squeue", "scancel")
_CONF = beside(__file__, "slurm_conf.txt")


def lacking() -> str:
    """Why Slurm cannot be started here; "" if it can."""
    missing = [name for name in _PROGRAMS if _found(name) is None]
    if missing:
        packages = "apt-get install --no-install-recommends slurm-wlm munge"
        return f"Slurm is not installed ({', '.join(missing)} missing; Debian: {packages})"
    return "" if os.geteuid() == 0 else "only root can start a Slurm for these tests"


def _found(name: str) -> str | None:
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")


class Slurm:
    """Commands of a cluster, called with ``environment``."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self._folder = folder
        self.environment = environment

    def run(self, folder: Path, *words: str) -> str:
        """What the command prints, both outputs together."""
        done = subprocess.run(
            words,
            cwd=folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=LIMIT,
        )
        assert done.returncode == 0, done.stdout
        return done.stdout

    def state(self, job: str) -> str:
        """``PENDING``, ``RUNNING``, ``COMPLETED`` and the like."""
        shown = self.run(self._folder, "scontrol", "show", "job", "--oneliner", job)
        return shown.partition("JobState=")[2].split()[0]

    def until(self, what: str, *jobs: str) -> None:
        """Wait until all jobs are in this state."""
        for job in jobs:
            wait_until(lambda job=job: self.state(job) == what, f"job {job} is {what}")

    def start_again(self, job: str) -> None:
        """Start a job that waits in the queue, which Slurm would not do for two minutes.

        Not before what its first start has left is gone, for which these minutes are meant.
        """
        self.until("PENDING", job)
        left = self._folder / "spool"
        wait_until(lambda: not [*left.glob(f"sock.pmi2.{job}.*")], f"the steps of {job} are gone")
        # Credentials of the same second as the revoked ones would be revoked, too.
        time.sleep(1.5)
        self.run(self._folder, "scontrol", "update", f"JobId={job}", "StartTime=now")


def wait_until(is_so: Callable[[], bool], what: str) -> None:
    """Raise AssertionError if it is not so in time."""
    ends = time.monotonic() + LIMIT
    while not is_so():
        assert time.monotonic() < ends, f"waited in vain until {what}"
        time.sleep(0.05)


@contextmanager
def slurm(folder: Path, environment: dict[str, str]) -> Iterator[Slurm]:
    """A cluster whose files are in ``folder``, until the end of the block."""
    for name in ("state", "spool"):
        (folder / name).mkdir()
    key = folder / "munge.key"
    key.write_bytes(os.urandom(128))
    key.chmod(0o400)
    host = socket.gethostname().partition(".")[0]
    conf = folder / "slurm.conf"
    conf.write_text(_CONF.format(host=host, folder=folder, ports=_free_ports(2)))
    told = {**environment, "SLURM_CONF": str(conf)}
    cluster = Slurm(folder, told)
    munged = [f"--{name}={folder}/munge.{name.partition('-')[0]}" for name in _MUNGE_FILES]
    with ExitStack() as stack:

        def daemon(name: str, *arguments: str) -> None:
            program = _found(name)
            assert program is not None
            log = stack.enter_context(open(folder / f"{name}.out", "wb"))
            child = subprocess.Popen([program, *arguments], env=told, stdout=log, stderr=log)
            stack.callback(child.wait, LIMIT)
            stack.callback(child.terminate)

        def answers(*words: str, told: str) -> bool:
            done = subprocess.run(words, env=cluster.environment, capture_output=True, text=True)
            return told in done.stdout

        daemon("munged", "--foreground", "--force", *munged)
        wait_until((folder / "munge.socket").exists, "munged runs")
        daemon("slurmctld", "-D", "-c")
        wait_until(lambda: answers("scontrol", "ping", told="is UP"), "slurmctld answers")
        daemon("slurmd", "-D", "-N", host)
        wait_until(lambda: answers("sinfo", "-h", "-o", "%t", told="idle"), "the node is idle")
        yield cluster
        cluster.run(folder, "scancel", "--full", "--state=PENDING")
        cluster.run(folder, "scancel", "--full", "--state=RUNNING")
        wait_until(lambda: not answers("squeue", "-h", told=" "), "all jobs have ended")


_MUNGE_FILES = ("key-file", "socket", "pid-file", "log-file", "seed-file")


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]

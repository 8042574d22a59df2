"""Which of several processes this one is, as the program that started them says."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterable
from pathlib import Path

from ...common.errors import BackendUnavailableError, DnnstackError, UsageError
from ...common.surroundings import program as called
from .local import Ranks

INSTALL = "python3 -m pip install 'dnnstack[mpi]'"
# The number of processes, as it is told by the launchers of MPICH, Slurm, Open MPI and PMIx.
_SIZES = ("PMI_SIZE", "SLURM_STEP_NUM_TASKS", "OMPI_COMM_WORLD_SIZE", "MPI_LOCALNRANKS")
_NUMBERS = ("PMI_RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMIX_RANK")
_MOST = 4096
# Where one of these is set, the launcher may start ranks by that of a cluster, on other machines.
_REMOTE = ("SLURM_", "PBS_", "LSB_", "HYDRA_")
# Found beside the launcher of MPICH alone.
_OF_MPICH = "hydra_pmi_proxy"
SHARED = Path("/dev/shm")
# Bytes there for each rank, measured and rounded up: by the transport of local.py, and of MPICH.
_LEAST, _USUAL = 1_200_000, 6_000_000
DEADLINE_VARIABLE = "DNNSTACK_RANKS_DEADLINE"
_DEADLINE = 120.0


class RanksError(DnnstackError):
    """Ranks cannot train together; the message names rank and host."""


def started() -> int:
    """How many processes were started together with this one, itself included."""
    sizes = (os.environ.get(name, "") for name in _SIZES)
    return max((int(size) for size in sizes if size.isascii() and size.isdigit()), default=1)


def number() -> int:
    """Which of these processes this one is, counted from 0."""
    told = (os.environ.get(name, "") for name in _NUMBERS)
    return max((int(rank) for rank in told if rank.isascii() and rank.isdigit()), default=0)


def deadline() -> float:
    """Seconds that a rank waits for the answer of another, of $DNNSTACK_RANKS_DEADLINE.

    Raises UsageError if that is not a positive number.
    """
    given = os.environ.get(DEADLINE_VARIABLE, "")
    try:
        seconds = float(given or _DEADLINE)
    except ValueError:
        seconds = 0.0
    if not 0.0 < seconds < float("inf"):
        raise UsageError(f"{DEADLINE_VARIABLE}: {given} is not a number of seconds above 0")
    return seconds


def launch(ranks: int, arguments: list[str], signals: Iterable[signal.Signals]) -> None:
    """Start so many processes with these arguments, and end with their status; returns for one.

    ``signals`` are passed on to them. On a cluster, and where MPI is not MPICH, this process
    becomes the ``mpiexec`` beside this Python. Raises UsageError for a number that is out of
    range, BackendUnavailableError where MPI is not installed or has no room.
    """
    if not 1 <= ranks <= _MOST:
        raise UsageError(f"--ranks must be from 1 to {_MOST}, got {ranks}")
    if ranks == 1:
        return
    program = launcher()
    check_mpi()
    command = [sys.executable, "-c", called("dnnstack.cli", "run"), *arguments]
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    cluster = any(name.startswith(_REMOTE) for name in os.environ)
    named, advice = str(program), f"install it anew: {INSTALL} --force-reinstall"
    try:
        if not cluster and program.with_name(_OF_MPICH).exists():
            named, advice = "so many processes", "use fewer ranks, or raise the limit: ulimit -u"
            check_shared_memory(ranks, _USUAL if "UCX_TLS" in os.environ else _LEAST)
            raise SystemExit(Ranks(ranks, command, sys.stdout.fileno()).run(signals))
        os.execv(program, [named, "-n", str(ranks), *command])
    except OSError as error:
        raise BackendUnavailableError(
            f"--ranks {ranks}: {named} cannot be started: {error.strerror}; {advice}"
        ) from None


def check_shared_memory(ranks: int, each: int) -> None:
    """Raise BackendUnavailableError if /dev/shm has no room for so many ranks.

    MPI looks for none, and is ended by SIGSEGV when it uses what is not there.
    """
    try:
        found = os.statvfs(SHARED)
    except OSError:
        return
    free, needed = found.f_bavail * found.f_frsize, ranks * each
    if free < needed:
        raise BackendUnavailableError(
            f"--ranks {ranks}: MPI needs {needed / 1e6:.0f} MB of shared memory, but {SHARED} has "
            f"{free / 1e6:.0f} MB free; enlarge it (docker run --shm-size=1g, or mount -o "
            f"remount,size=1g {SHARED}), or use fewer ranks"
        )


def launcher() -> Path:
    """The ``mpiexec`` of this environment. Raises BackendUnavailableError."""
    found = Path(sys.prefix) / "bin" / "mpiexec"
    if not found.is_file():
        raise BackendUnavailableError(
            f"--ranks needs MPI, but there is no {found}; install it with {INSTALL}, or start the "
            "ranks by your own launcher: mpiexec -n 2 dnnstack train ..."
        )
    return found


def check_mpi() -> None:
    """Raise BackendUnavailableError if mpi4py or the library of MPI is missing."""
    from importlib.util import find_spec

    if find_spec("mpi4py") is None:
        raise BackendUnavailableError(
            f"several ranks need mpi4py, which is not installed; install it with {INSTALL}"
        )

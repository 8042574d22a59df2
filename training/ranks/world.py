"""Which of several processes this one is, as the program that started them says."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from ...common.children import program as called
from ...common.errors import BackendUnavailableError, DnnstackError, UsageError

INSTALL = "python3 -m pip install 'dnnstack[mpi]'"
# The number of processes, as it is told by the launchers of MPICH, Slurm, Open MPI and PMIx.
_SIZES = ("PMI_SIZE", "SLURM_STEP_NUM_TASKS", "OMPI_COMM_WORLD_SIZE", "MPI_LOCALNRANKS")
_NUMBERS = ("PMI_RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMIX_RANK")
_MOST = 4096
# Where one of these is set, the launcher may start ranks by that of a cluster, on other machines.
_REMOTE = ("SLURM_", "PBS_", "LSB_", "HYDRA_")
_OUTPUT = "DNNSTACK_RANKS_OUTPUT"
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


def launch(ranks: int, arguments: list[str]) -> None:
    """Become the launcher of so many processes with these arguments; returns for one.

    It is the ``mpiexec`` beside this Python, by its absolute path. Raises UsageError for a number
    that is out of range, BackendUnavailableError where MPI is not installed.
    """
    if not 1 <= ranks <= _MOST:
        raise UsageError(f"--ranks must be from 1 to {_MOST}, got {ranks}")
    if ranks == 1:
        return
    program = launcher()
    check_mpi()
    command = [str(program), "-n", str(ranks), sys.executable, "-c", called("dnnstack.cli", "run")]
    command += arguments
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    if not any(name.startswith(_REMOTE) for name in os.environ):
        _pass_output_on()
    try:
        os.execv(program, command)
    except OSError as error:
        raise BackendUnavailableError(
            f"--ranks needs MPI's launcher, but {program} cannot be started: {error.strerror}; "
            f"install it anew: {INSTALL} --force-reinstall"
        ) from None


def _pass_output_on() -> None:
    """Let ranks write on standard output themselves: what the launcher adds is a banner alone.

    It prints that for a rank that a signal has ended; see ``take_output``.
    """
    kept = os.dup(sys.stdout.fileno())
    os.set_inheritable(kept, True)
    os.environ[_OUTPUT] = f"{kept} {_file(kept)}"
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)


def take_output() -> None:
    """Write on the standard output of the process that became the launcher, if it left one."""
    number, _, file = os.environ.pop(_OUTPUT, "").partition(" ")
    if number.isdigit() and _file(int(number)) == file:
        os.dup2(int(number), sys.stdout.fileno())
        os.close(int(number))


def _file(descriptor: int) -> str:
    try:
        found = os.fstat(descriptor)
    except OSError:
        return ""
    return f"{found.st_dev} {found.st_ino}"


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

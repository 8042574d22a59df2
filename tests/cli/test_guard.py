"""What watches over a rank asks the launcher to end all, but not before it has read the message."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

RANK = """
import os
from dnnstack.cli.guard import BEGUN, LEFT, guarded
tell = guarded(3, {hides})
{body}
"""
DIES = "os.kill(os.getpid(), 9)"
ABORTS = "os.kill(os.getpid(), 6)"
FAILS = "os.write(2, b'what is wrong\\n')\nos._exit(1)"
LEAVES = """
if not os.fork():
    os.close(2)
    os.read(int(os.environ["PMI_FD"]), 1)
os._exit(1)
"""
LONG = 50
"""Seconds until a test gives up."""


@contextmanager
def guarded(
    body: str, hydra: bool = True, hides: bool = False
) -> Iterator[tuple[subprocess.Popen[bytes], socket.socket]]:
    """A rank as MPICH's launcher starts it, and the launcher's end of the connection."""
    ours, theirs = socket.socketpair()
    told = {"PMI_FD": str(theirs.fileno())} | ({"MPI_LOCALNRANKS": "1"} if hydra else {})
    with ours, theirs:
        process = subprocess.Popen(
            [sys.executable, "-c", RANK.format(body=body, hides=hides)],
            env={**os.environ, **told},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            pass_fds=(theirs.fileno(),),
        )
        theirs.close()
        ours.settimeout(LONG)
        try:
            yield process, ours
        finally:
            process.kill()
            process.communicate()


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [(DIES, 128 + signal.SIGKILL, b"rank 3 on "), (FAILS, 1, b"what is wrong\n")],
)
def test_the_launcher_is_asked_to_end_all_once_it_has_read_why(body, status, said):
    with guarded(body) as (process, launcher):
        launcher.settimeout(1.0)
        with pytest.raises(TimeoutError):
            launcher.recv(100)
        assert process.stderr is not None
        assert said in os.read(process.stderr.fileno(), 1000)
        launcher.settimeout(LONG)
        assert launcher.recv(100) == b"cmd=abort exitcode=%d\n" % status
        assert process.wait(LONG) == status


def test_an_abort_is_told_only_when_no_other_guard_has_ended_all():
    """It may follow from the end of another rank, whose guard says why."""
    with guarded(ABORTS) as (process, launcher):
        launcher.settimeout(1.0)
        assert process.stderr is not None
        os.set_blocking(process.stderr.fileno(), False)
        with pytest.raises(TimeoutError):
            launcher.recv(100)
        assert process.stderr.read() is None
        launcher.settimeout(LONG)
        assert launcher.recv(100) == b"cmd=abort exitcode=134\n"
        assert process.wait(LONG) == 128 + signal.SIGABRT
        assert b"rank 3 on " in process.stderr.read()


def test_an_abort_is_not_told_when_the_launcher_has_gone():
    heard, told = os.pipe()
    with os.fdopen(heard, "rb") as messages:
        launcher = subprocess.Popen(
            [
                sys.executable,
                "-c",
                f"import subprocess, sys\nsubprocess.Popen([sys.executable, '-c',"
                f" {RANK.format(body=ABORTS, hides=False)!r}])\nimport time\ntime.sleep(1.0)",
            ],
            stderr=told,
        )
        os.close(told)
        assert launcher.wait(LONG) == 0
        assert messages.read() == b""


def test_a_message_that_nobody_reads_does_not_hold_it_up_for_ever():
    with guarded(FAILS) as (process, launcher):
        assert launcher.recv(100) == b"cmd=abort exitcode=1\n"
        assert process.wait(LONG) == 1


@pytest.mark.parametrize("hydra", [True, False])
def test_a_rank_that_ends_well_or_by_another_launcher_asks_for_nothing(hydra):
    with guarded("os._exit(0)" if hydra else DIES, hydra=hydra) as (process, launcher):
        assert launcher.recv(100) == b""
        assert process.wait(LONG) == (0 if hydra else 128 + signal.SIGKILL)


def test_a_launcher_that_has_let_the_rank_go_is_not_missed():
    with guarded("import time\ntime.sleep(1.0)\nos._exit(2)") as (process, launcher):
        launcher.close()
        assert process.wait(LONG) == 2
        assert process.stderr is not None
        assert process.stderr.read() == b""


def test_a_death_that_is_to_be_hidden_is():
    with guarded(f"tell(BEGUN)\n{DIES}", hides=True) as (process, launcher):
        launcher.settimeout(3.0)
        with pytest.raises(TimeoutError):
            launcher.recv(100)
        assert process.poll() is None
        process.kill()
        assert process.stderr is not None
        assert process.stderr.read() == b""


def test_one_before_the_training_begins_is_not_hidden():
    with guarded(DIES, hides=True) as (process, launcher):
        assert launcher.recv(100) == b"cmd=abort exitcode=137\n"
        assert process.wait(LONG) == 128 + signal.SIGKILL


@pytest.mark.parametrize("hides", [False, True])
@pytest.mark.parametrize(("body", "status"), [(DIES, 137), ("os._exit(3)", 3)])
def test_a_rank_that_has_left_concerns_no_other(hides, body, status):
    with guarded(f"tell(BEGUN)\ntell(LEFT)\n{body}", hides=hides) as (process, launcher):
        assert launcher.recv(100) == b""
        assert process.wait(LONG) == status
        assert process.stderr is not None
        assert process.stderr.read() == b""


def test_what_a_rank_leaves_behind_holds_nothing_up():
    """Here a process that ends with the launcher."""
    with guarded(LEAVES) as (process, _):
        assert process.wait(LONG) == 1


@pytest.mark.parametrize(
    ("number", "begun", "told"),
    [
        (signal.SIGSEGV, "", True),
        (signal.SIGBUS, "", True),
        (signal.SIGKILL, "", False),
        (signal.SIGSEGV, "tell(BEGUN)\n", False),
    ],
)
def test_room_for_shared_memory_is_named_where_it_may_be_what_lacks(number, begun, told):
    with guarded(f"{begun}import os\nos.kill(os.getpid(), {int(number)})") as (process, launcher):
        assert launcher.recv(100) == b"cmd=abort exitcode=%d\n" % (128 + number)
        assert process.stderr is not None
        assert (b"docker run --shm-size" in process.stderr.readline()) is told

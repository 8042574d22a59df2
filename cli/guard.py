"""A small process around each rank, which tells how the rank ended if that cannot tell it itself.

A launcher of MPI prints a banner for a process that a signal has ended, and ends all others. After
one that exits with a status MPICH's ends none on other machines, and sometimes none at all: it
looks whether the process has left MPI, but not if it has seen the exit first. So it is asked to.
"""

from __future__ import annotations

import fcntl
import os
import signal
import struct
import termios
import time
from collections.abc import Callable
from contextlib import suppress

from . import console

# The child decides what these do; a launcher sends them to both.
_ASKED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# Seconds in which a launcher has read what was printed, and has ended this process.
_PATIENCE = 2.0


def guarded(rank: int, hides: bool) -> Callable[[], None]:
    """Go on in a child; returns what the child is to call when the training begins.

    This process ends with the child and its status, 128 + n after signal n, and lets the launcher
    end all ranks unless the child has left MPI with the others. ``hides``: from the call on a death
    is not to be seen by the launcher; this process then ends with the launcher.
    """
    before = [signal.signal(number, signal.SIG_IGN) for number in _ASKED]
    hidden, begun = os.pipe()
    child = os.fork()
    if not child:
        for number, handler in zip(_ASKED, before, strict=True):
            signal.signal(number, handler)
        os.close(hidden)
        return (lambda: _tell(begun)) if hides else lambda: None
    os.close(begun)
    launcher = os.getppid()
    _, found = os.waitpid(child, 0)
    status = os.waitstatus_to_exitcode(found)
    if status and os.read(hidden, 1):
        while os.getppid() == launcher:
            time.sleep(0.2)
    elif status < 0 and -status not in _ASKED:
        console.error(
            f"rank {rank} on {os.uname().nodename} was ended by {_named(-status)}, so all ranks "
            "end; resume from the last checkpoint, if there is one"
        )
    told = status if status >= 0 else 128 - status
    if told:
        _end_all(told)
    os._exit(told)


def _end_all(status: int) -> None:
    """Ask MPICH's launcher to end all ranks, on all machines; returns where it cannot be asked.

    As MPI_Abort does, for a rank that is no longer there to call it: by PMI-1, over the connection
    that this process has inherited. The launcher has closed that for a rank that has left MPI.
    """
    connection = os.environ.get("PMI_FD", "")
    if "MPI_LOCALNRANKS" not in os.environ or not connection.isdigit():
        return
    end = time.monotonic() + _PATIENCE
    # The launcher ends at once, and would lose what it has not read.
    while (_unread(1) or _unread(2)) and time.monotonic() < end:
        time.sleep(0.01)
    with suppress(OSError):
        os.write(int(connection), f"cmd=abort exitcode={status}\n".encode())
        time.sleep(_PATIENCE)


def _unread(descriptor: int) -> int:
    """How many bytes wait in a pipe; 0 where this is none."""
    try:
        found = fcntl.ioctl(descriptor, termios.FIONREAD, bytes(4))
    except OSError:
        return 0
    return int(struct.unpack("i", found)[0])


def _tell(begun: int) -> None:
    os.write(begun, b".")


def _named(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"

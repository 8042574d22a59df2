"""A small process around each rank, which tells how the rank ended if that cannot tell it itself.

A launcher of MPI prints a banner for a process that a signal has ended, and ends all others. After
one that exits with a status MPICH's ends none on other machines, and sometimes none at all: it
looks whether the process has left MPI, but not if it has seen the exit first. So it is asked to.

The process tells its guard when the training begins, and when it has left MPI: after that its end
concerns no other rank.
"""

from __future__ import annotations

import fcntl
import os
import signal
import stat
import struct
import termios
import time
from collections.abc import Callable
from contextlib import suppress

from ..training.signals import WANTED, named
from . import console

# What a rank tells: that the training begins, and that it has left MPI with the others.
BEGUN, LEFT = b"b", b"l"
# Seconds in which a launcher has read what was printed, and has ended this process; and in which
# it has done so for another rank.
_PATIENCE = 2.0


def guarded(rank: int, hides: bool) -> Callable[[bytes], None]:
    """Go on in a child; returns what the child is to call with BEGUN, and with LEFT.

    This process ends with the child and its status, 128 + n after signal n, and lets the launcher
    end all ranks unless the child has left MPI. ``hides``: a death between the two calls is not to
    be seen by the launcher; this process then ends with the launcher.
    """
    # The child decides what these do; a launcher sends them to both.
    before = [signal.signal(number, signal.SIG_IGN) for number in WANTED]
    heard, told = os.pipe()
    child = os.fork()
    if not child:
        for number, handler in zip(WANTED, before, strict=True):
            signal.signal(number, handler)
        os.close(heard)
        return lambda what: _tell(told, what)
    os.close(told)
    launcher = os.getppid()
    _, found = os.waitpid(child, 0)
    status = os.waitstatus_to_exitcode(found)
    last = _heard(heard)
    if status and hides and last == BEGUN:
        while os.getppid() == launcher:
            time.sleep(0.2)
    elif status < 0 and last != LEFT and -status not in WANTED:
        if -status == signal.SIGABRT and not _stays(launcher):
            os._exit(128 - status)
        # MPI maps shared memory, and finds out when it uses it whether there is any.
        lacking = not last and -status in (signal.SIGSEGV, signal.SIGBUS)
        room = "; /dev/shm may be too small: docker run --shm-size=1g" if lacking else ""
        console.error(
            f"rank {rank} on {os.uname().nodename} was ended by {named(-status)}, so all ranks "
            f"end; resume from the last checkpoint, if there is one{room}"
        )
    code = status if status >= 0 else 128 - status
    if code and last != LEFT:
        _end_all(code)
    os._exit(code)


def _stays(launcher: int) -> bool:
    """Whether no other rank's guard ends all within a while.

    MPICH's transport aborts a process that reads the memory of one that has just been ended: it is
    for the guard of the latter to say why.
    """
    end = time.monotonic() + _PATIENCE
    while os.getppid() == launcher and time.monotonic() < end:
        time.sleep(0.05)
    return os.getppid() == launcher


def _heard(descriptor: int) -> bytes:
    """What the rank has told last; a process that it has left behind may still hold the pipe."""
    os.set_blocking(descriptor, False)
    with suppress(BlockingIOError):
        return os.read(descriptor, 10)[-1:]
    return b""


def _end_all(status: int) -> None:
    """Ask MPICH's launcher to end all ranks, on all machines; returns where it cannot be asked.

    As MPI_Abort does, for a rank that is no longer there to call it: by PMI-1, over the connection
    that this process has inherited.
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
        if not stat.S_ISFIFO(os.fstat(descriptor).st_mode):
            return 0
        found = fcntl.ioctl(descriptor, termios.FIONREAD, bytes(4))
    except OSError:
        return 0
    return int(struct.unpack("i", found)[0])


def _tell(descriptor: int, what: bytes) -> None:
    # The guard may have been ended; the watchdog then ends this process.
    with suppress(OSError):
        os.write(descriptor, what)

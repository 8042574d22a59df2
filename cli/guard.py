"""A small process around each rank, which tells how the rank ended if that cannot tell it itself.

A launcher of MPI prints a banner for a process that a signal has ended, and ends all others; for
one that exits with a status it only does the latter.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable

from . import console

# The child decides what these do; a launcher sends them to both.
_ASKED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def guarded(rank: int, hides: bool) -> Callable[[], None]:
    """Go on in a child; returns what the child is to call when the training begins.

    This process ends with the child and its status, 128 + n after signal n. ``hides``: from the
    call on a death is not to be seen by the launcher, which would end all ranks; this process then
    ends with the launcher.
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
    os._exit(status if status >= 0 else 128 - status)


def _tell(begun: int) -> None:
    os.write(begun, b".")


def _named(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"

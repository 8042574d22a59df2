"""Ends this process if another rank does not answer, for MPI would wait for ever."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ...common.printable import printable

# Seconds between two looks.
TICK = 0.1
STATUS = 1


class Watchdog:
    """While armed, ends the process with ``message()`` once ``deadline`` seconds have passed.

    Time is counted in looks of a thread, so it stands still while the process itself is stopped.
    It is armed inside of what ranks do together alone; see ``armed``. Always it ends the process
    once the one that started it is gone: nobody would end it any more.
    """

    def __init__(self, deadline: float, message: Callable[[], str]) -> None:
        self.deadline, self._message = deadline, message
        # Odd while armed; another number each time.
        self._turn = self._depth = 0
        threading.Thread(target=self._look, name="watchdog", daemon=True).start()

    @contextmanager
    def armed(self) -> Iterator[None]:
        """Inside the block an answer of the other ranks is due; blocks inside it change nothing."""
        self._depth += 1
        self._turn += self._depth == 1
        try:
            yield
        finally:
            self._turn += self._depth == 1
            self._depth -= 1

    def _look(self) -> None:
        turn, looks, parent = 0, 0, os.getppid()
        while True:
            time.sleep(TICK)
            if os.getppid() != parent:
                end(
                    "the process that watches over a rank was killed, so all ranks end; resume "
                    "from the last checkpoint, if there is one"
                )
            now = self._turn
            looks = looks + 1 if now == turn and now % 2 else 0
            turn = now
            if looks * TICK >= self.deadline:
                end(self._message())


def end(message: str, status: int = STATUS) -> None:
    """Print a message and end the process at once; the launcher then ends the other ranks."""
    with suppress(OSError):
        os.write(2, f"dnnstack: error: {printable(message)}\n".encode())
    os._exit(status)


def condition(pid: int) -> str:
    """``stopped``, as by SIGSTOP, or ``ended``, of a process of this machine; "" if it runs."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text("ascii", "replace").rpartition(")")[2].split()
    except OSError:
        return "ended"
    return {"T": "stopped", "t": "stopped", "Z": "ended"}.get(state[0] if state else "Z", "")


def processes_of() -> str:
    """A mark of the processes that this one sees: another in another container, or machine."""
    try:
        machine = Path("/proc/sys/kernel/random/boot_id").read_text("ascii", "replace").strip()
        return f"{machine} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return f"{os.getpid()}"

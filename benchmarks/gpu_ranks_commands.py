"""Commands that gpu_ranks.py starts, each with a time limit, and the end of all that they start."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

# In the environment of all that this program starts, whoever its parent is.
MARK = f"DNNSTACK_GPU_RANKS={os.getpid()}"


def say(text: str) -> None:
    print(text, flush=True)


@dataclass
class Running:
    """A command with its output, line by line; ``told`` is set when a line holds ``awaited``."""

    command: list[str]
    awaited: str = "\0"
    loud: bool = False
    more: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.lines: list[str] = []
        self.told = threading.Event()
        name, _, value = MARK.partition("=")
        self.process = subprocess.Popen(
            self.command,
            env={**os.environ, "PYTHONUNBUFFERED": "1", name: value, **self.more},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip())
            if self.loud:
                say(f"  {self.lines[-1]}")
            if self.awaited in line:
                self.told.set()

    def ended(self, seconds: float) -> bool:
        """Whether it ends within so many seconds, with all that it has started; else it is ended.

        What it has started is known by a variable of its environment.
        """
        try:
            self.process.wait(max(0.1, seconds))
        except subprocess.TimeoutExpired:
            say(f"  NOT DONE after {seconds:.0f} s, ended: {shlex.join(self.command[-8:])}")
            for line in self.lines[-6:]:
                say(f"    {line}")
            end_all()
            return False
        self._reader.join(5)
        return True


def those_left() -> list[int]:
    """The process ids of what this program has started."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                told = (entry / "environ").read_bytes().split(b"\0")
                state = (entry / "stat").read_text("ascii", "replace").rpartition(")")[2].split()
            except OSError:
                continue
            if MARK.encode() in told and state[0] != "Z":
                found.append(int(entry.name))
    return found


def end_all() -> None:
    """End what this program has started, however it hangs."""
    until = time.monotonic() + 8
    while (left := those_left()) and time.monotonic() < until:
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                continue
        time.sleep(0.2)

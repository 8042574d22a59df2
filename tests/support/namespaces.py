"""Machines that share a folder and nothing else, as namespaces of this one's kernel."""

from __future__ import annotations

import functools
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import dnnstack
import pytest

SCRIPT = Path(__file__).parent / "own_machine.py"
_ALL = ("--uts", "--pid", "--fork", "--kill-child", "--mount-proc", "--mount", "--net", "--ipc")


@functools.cache
def permitted() -> tuple[str, ...]:
    """The words that make namespaces here; skips the test, with the reason, where none do."""
    found = shutil.which("unshare")
    if found is None:
        pytest.skip("no unshare of util-linux, which puts each machine in namespaces of its own")
    said = ""
    for more in ((), ("--map-root-user",)):
        words = (found, *more, *_ALL)
        # A folder that is there on every system stands for the one that is shared.
        tried = [*words, *_own("probe", Path("/usr"), "shared"), sys.executable, "-c", ""]
        done = subprocess.run(tried, capture_output=True, text=True, timeout=60)
        if done.returncode == 0:
            return words
        said = done.stderr.strip().rpartition("\n")[2]
    pytest.skip(f"namespaces are not permitted here: {said}")


def _own(name: str, shared: Path, place: str) -> list[str]:
    needed = [Path(sys.prefix), SCRIPT.parents[2], Path(dnnstack.__path__[0]).parent]
    beside = {str(path.resolve()) for path in needed if path.resolve().is_relative_to("/tmp")}
    # A folder comes before those in it, which its mount would hide.
    listed = ":".join(sorted(beside))
    return [sys.executable, str(SCRIPT), name, str(shared), place, listed, "--"]


@dataclass
class Machine:
    """A command on a machine of its own; ``process`` is that of ``unshare``."""

    name: str
    process: subprocess.Popen[str]

    @property
    def first(self) -> int:
        """The number that the machine's first process has on this one; 0: there is none."""
        own = self.process.pid
        try:
            text = Path(f"/proc/{own}/task/{own}/children").read_text()
        except OSError:
            return 0
        return int(text.split()[0]) if text else 0

    def end(self) -> None:
        """Kill its first process, and with it all others, at once."""
        os.kill(self.first, signal.SIGKILL)
        self.process.wait(60)

    def output(self) -> str:
        """Wait for its end, which must be a success, and return what it has printed."""
        text = self.process.communicate(timeout=300)[0]
        assert self.process.returncode == 0, text
        return text


def start(
    name: str, shared: Path, place: str, command: Sequence[str], environment: Mapping[str, str]
) -> Machine:
    """Start a command in the shared folder, as this machine sees it: at ``/tmp/<place>``."""
    kept = {key: value for key, value in environment.items() if key not in ("TMPDIR", "TEMP")}
    process = subprocess.Popen(
        [*permitted(), *_own(name, shared, place), *command],
        env={**kept, "DNNSTACK_CACHE": "/tmp/cache"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    return Machine(name, process)

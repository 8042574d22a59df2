"""Processes that benchmarks start: the command dnnstack, and those that answer line by line."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dnnstack.common.surroundings import program

# The command, which imports nothing from the current folder.
TOOL = (sys.executable, "-c", program("dnnstack.cli", "run"))


class Worker:
    """A script of this folder that is asked by lines of JSON, and answers each by one.

    ``log``: a file for all else that it prints; ``more``: for its environment.
    """

    def __init__(self, script: str, *words: str, log: Path, more: dict[str, str] | None = None):
        self._command = [sys.executable, str(Path(__file__).resolve().parent / script), *words]
        self._log, self._more = log, more or {}
        self.process: Any = None

    def start(self) -> None:
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env={**os.environ, **self._more},
                start_new_session=True,
            )

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def send(self, **request: object) -> None:
        try:
            self.process.stdin.write(json.dumps(request).encode() + b"\n")
            self.process.stdin.flush()
        except OSError:
            return

    def receive(self, seconds: float = 3600.0) -> dict[str, Any]:
        """The answer, or an error where none comes in time; the process is ended then."""
        there, _, _ = select.select([self.process.stdout], [], [], max(seconds, 0.0))
        line = self.process.stdout.readline() if there else b""
        if line:
            answer: dict[str, Any] = json.loads(line)
            return answer
        self.stop()
        last = " | ".join(self._log.read_text("utf-8", "replace").strip().splitlines()[-3:])[-400:]
        return {"error": f"the process ended: {last}" if there else f"no answer in {seconds:.0f} s"}

    def stop(self) -> None:
        if self.alive:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


def serve(answer: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """What a worker does: answer every line, with ``{"error": why}`` where that goes wrong."""
    # Libraries print to standard output; what they say goes to the log, answers alone come out.
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    for line in sys.stdin:
        try:
            reply = answer(json.loads(line))
        except Exception as error:
            traceback.print_exc()
            reply = {"error": f"{type(error).__name__}: {error}"[:600]}
        print(json.dumps(reply), file=replies, flush=True)

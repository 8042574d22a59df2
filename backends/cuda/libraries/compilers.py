"""Processes that compile our kernels beside this one, as many at a time as there are cores."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import field
from typing import BinaryIO, cast

from ....common.machine import available_threads
from ....common.records import dataclass
from . import nvrtc

# Each takes about 150 MB while it compiles.
MOST = 12


class _Compiler:
    """A process that compiles by the NVRTC at a path. Raises OSError where it cannot be started.

    Signals of the terminal do not reach it, and it ends when this process does.
    """

    def __init__(self, library: str) -> None:
        self._process = subprocess.Popen(
            # Nothing of the user's or the environment's is imported, which takes time.
            [sys.executable, "-I", "-S", nvrtc.__file__, library],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def code(self, source: str, options: Sequence[str]) -> bytes:
        """What ``nvrtc.compiled`` gives. Raises EOFError or OSError where the process has ended."""
        process = self._process
        nvrtc.ask(cast(BinaryIO, process.stdin), source, options)
        return nvrtc.answer(cast(BinaryIO, process.stdout))

    def close(self) -> None:
        """Let the process end."""
        with suppress(OSError):
            self._process.communicate()


@dataclass(frozen=True)
class _Job:
    library: str
    source: str
    options: tuple[str, ...]
    done: Future[bytes] = field(default_factory=Future)


class Compilers:
    """Sources wait here for one of ``most`` compilers, which end when there are none left."""

    def __init__(self, most: int) -> None:
        self._most, self._running = most, 0
        self._waiting = deque[_Job]()
        self._lock = threading.Lock()

    def submit(self, library: str, source: str, options: Sequence[str]) -> Future[bytes]:
        """The code of a source when it is there; the future's exceptions are those of
        ``nvrtc.compiled``."""
        job = _Job(library, source, tuple(options))
        with self._lock:
            self._waiting.append(job)
            if self._running < self._most:
                self._running += 1
                # The end of the program does not wait for what nobody asks for any more.
                threading.Thread(target=self._work, name="compile", daemon=True).start()
        return job.done

    def _next(self) -> _Job | None:
        with self._lock:
            while self._waiting:
                job = self._waiting.popleft()
                if job.done.set_running_or_notify_cancel():
                    return job
            self._running -= 1
            return None

    def _work(self) -> None:
        compiler: _Compiler | None = None
        while (job := self._next()) is not None:
            try:
                if self._most > 1:
                    with suppress(OSError):
                        compiler = compiler or _Compiler(job.library)
                job.done.set_result(_code(compiler, job))
            except BaseException as error:
                job.done.set_exception(error)
        if compiler is not None:
            compiler.close()


def _code(compiler: _Compiler | None, job: _Job) -> bytes:
    """By the process, or by this one where there is none."""
    if compiler is not None:
        with suppress(EOFError, OSError):
            return compiler.code(job.source, job.options)
    return nvrtc.compiled(job.library, job.source, job.options)


COMPILERS = Compilers(min(MOST, available_threads()))

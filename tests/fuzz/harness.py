"""What must hold of any input: it is read, or refused in a short message, within bounds."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import sys
import sysconfig
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from dnnstack.common.errors import DnnstackError
from hypothesis.strategies import SearchStrategy

# Characters and lines of a message; a config's lists up to fifty mistakes.
LONGEST, MOST_LINES = 12_000, 60
# Seconds of CPU time for one input.
SECONDS = 30
MEGABYTE = 1 << 20
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
_CHANGES = (
    *("os.mkdir", "os.remove", "os.rmdir", "os.rename", "os.link", "os.symlink", "os.truncate"),
    *("os.chmod", "os.chown", "os.utime"),
)
_NEVER = (
    *("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork", "socket.connect"),
    *("socket.getaddrinfo", "pickle.find_class"),
)


@dataclass(frozen=True)
class Target:
    """A reader. read: lets it read an input; the folder is empty, and its cache is ``cache`` in it.

    inputs: drawn ones; seeds: sound ones, from which coverage-guided fuzzing starts. memory: bytes
    that one input may take.
    """

    name: str
    read: Callable[[bytes, Path], object]
    inputs: SearchStrategy[bytes]
    seeds: Callable[[], list[bytes]]
    memory: int = 128 * MEGABYTE


class Endless(BaseException):
    """An input that takes too long; no reader catches it."""


class _Watch:
    """Notes what a reader opens or changes outside of its folder; audit hooks stay for ever."""

    def __init__(self) -> None:
        self.folder: str | None = None
        self.seen: list[str] = []
        paths = {sys.prefix, sys.base_prefix, *sysconfig.get_paths().values(), *sys.path}
        code = Path(sys.modules["dnnstack.common.errors"].__file__ or "").resolve().parents[1]
        known = {os.path.realpath(path) for path in (*paths, code) if path}
        self._readable = (*known, "/proc", "/sys", "/dev/null", "/usr", "/etc", "/lib")
        sys.addaudithook(self._hear)

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.folder is None:
            return
        if event in _NEVER:
            self.seen.append(f"{event} {arguments!r:.200}")
        elif event == "open" and not isinstance(arguments[0], int):
            changes = bool(arguments[2] & _WRITING)
            if not self._is_allowed(arguments[0], changes):
                self.seen.append(f"open {arguments!r:.200}")
        elif event in _CHANGES:
            for path in arguments[: 2 if event in ("os.rename", "os.link") else 1]:
                if not isinstance(path, int) and not self._is_allowed(path, True):
                    self.seen.append(f"{event} {arguments!r:.200}")

    def _is_allowed(self, path: Any, changes: bool) -> bool:
        assert self.folder is not None
        full = os.path.abspath(os.fsdecode(path))
        if full == self.folder or full.startswith(f"{self.folder}/"):
            return True
        # A new folder is made durable in those above it.
        if not changes and self.folder.startswith(f"{full}/"):
            return True
        return full == os.devnull or (not changes and full.startswith(self._readable))


_WATCH: list[_Watch] = []


@contextmanager
def _watched(folder: Path) -> Iterator[list[str]]:
    if not _WATCH:
        _WATCH.append(_Watch())
    watch = _WATCH[0]
    watch.seen, watch.folder = [], str(folder)
    try:
        yield watch.seen
    finally:
        watch.folder = None


@contextmanager
def _limited(memory: int) -> Iterator[None]:
    """Further memory of this process, and its CPU time, are limited."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise Endless(f"no end after {SECONDS} s")

    with open("/proc/self/statm", encoding="ascii") as file:
        now = int(file.read().split()[0]) * resource.getpagesize()
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    before = signal.signal(signal.SIGVTALRM, stop)
    resource.setrlimit(resource.RLIMIT_AS, (now + memory, hard))
    signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
        signal.signal(signal.SIGVTALRM, before)


def examine(target: Target, data: bytes, folder: Path) -> bool:
    """Let the target read an input: whether it was read, not refused. Raises for anything else."""
    _empty(folder)
    os.environ["DNNSTACK_CACHE"] = str(folder / "cache")
    here, sync = os.getcwd(), os.fsync
    os.chdir(folder)
    # A disk would take most of the time.
    os.fsync = lambda descriptor: None
    try:
        with _watched(folder) as seen:
            try:
                with _limited(target.memory):
                    target.read(data, folder)
                read = True
            except DnnstackError as error:
                read = False
                said = str(error)
    except MemoryError as error:
        raise AssertionError(f"takes more than {target.memory:,} bytes") from error
    finally:
        os.chdir(here)
        os.fsync = sync
    assert not seen, seen
    if not read:
        assert said, "refused without a word"
        assert len(said) <= LONGEST, f"{len(said)} characters: {said[:200]}"
        assert said.count("\n") < MOST_LINES, f"{said.count(chr(10))} lines: {said[:200]}"
    return read


def _empty(folder: Path) -> None:
    for entry in os.scandir(folder):
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path)
        else:
            with suppress(FileNotFoundError):
                os.unlink(entry.path)

"""Many trainings for a program: in its own process, or in workers that another process forks.

A program may have threads, or have used a device, which no process that it forks survives. So its
workers are forked by a new process, which is asked for a call and tells how it goes, line by line.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .common import errors
from .common.errors import DnnstackError, TrainingError, Warned, told
from .common.records import dataclass
from .common.surroundings import program
from .configs.load import load_beside
from .configs.plugins import loaded
from .configs.search import BLOCK, load_search
from .datasets import Downloads
from .fitting import plain, read_config
from .many.planned import Planned, check_planned
from .many.screen import Said, Screen
from .many.side_by_side import train_group
from .many.sweep_work import count_of_workers, run_sweep
from .many.trainings import Trainings
from .plugins.loading import load_plugin
from .reports.live_curves import LiveCurves
from .training.listener import Listener
from .training.signals import StopSignals

_TURN = 0.2


@dataclass(frozen=True)
class Call:
    """What to train: the runs of ``planned``, or the trials of a sweep. changes: as of ``--set``.

    config: a file, or a mapping with its keys; ``workers``: trainings at a time.
    """

    config: Any
    changes: Sequence[str]
    planned: tuple[str, int, bool] | None = None
    resume: str | None = None
    workers: int | None = 1
    same_samples: bool = False
    data_dir: str | None = None
    offline: bool = False

    def count(self) -> int:
        """How many train at a time. Raises ConfigError."""
        if self.planned is not None:
            return min(self.workers or 1, self.planned[1])
        base, search = load_search(self.config, self.changes)
        return count_of_workers(self.workers, base.config, search)

    def train(self, screen: Screen, stop: Callable[[], bool]) -> Path:
        """Train in this process and those that it forks; returns the folder."""
        find: Callable[[Sequence[str]], Any]
        if self.planned is None:
            base, search = load_search(self.config, self.changes)
            find = lambda more: load_beside(base, BLOCK, (*self.changes, *more))[0]  # noqa: E731
        else:
            wanted = Planned(*self.planned)  # type: ignore[arg-type]
            base = read_config(self.config, self.changes)
            check_planned(wanted, base.config)
            again = base if base.text else self.config
            find = lambda more: read_config(again, (*self.changes, *more))  # noqa: E731
        trainings = Trainings(
            base,
            find,
            screen,
            stop,
            self.count(),
            resuming=self.resume is not None,
            same_samples=self.same_samples,
            data_dir=None if self.data_dir is None else Path(self.data_dir),
            downloads=Downloads(offline=True) if self.offline else None,
        )
        if self.planned is None:
            return run_sweep(trainings, search, self.resume).path
        return train_group(trainings, wanted, self.resume)[0]


class Heard(Screen):
    """Passes on to ``say`` what many trainings note."""

    path: Path | None = None

    def __init__(
        self, say: Callable[[str], None], listener: Callable[[], Listener] = Listener
    ) -> None:
        self._say, self._listener = say, listener

    def notice(self, text: str) -> None:
        self._say(text)

    def error(self, text: str) -> None:
        self._say(text)

    def relay(self, send: Callable[[str], None]) -> None:
        self._say = send

    def opening(self, path: Path, *how: object) -> None:
        self.path = path

    def listener(self) -> Listener:
        return self._listener()

    def watched(self, heard: Listener) -> Listener:
        return LiveCurves(heard)

    def hear(self, said: Said) -> None:
        if said.kind == "line":
            self._say(said.line)


def train_apart(call: Call, say: Callable[[str], None], stop: Callable[[], bool]) -> Path:
    """Do ``call.train`` in a new process. Raises DnnstackError, KeyboardInterrupt."""
    path = ""
    given = {**vars(call), "config": plain(call.config)}
    job = {"call": given, "plugins": [str(plugin.path) for plugin in loaded()]}
    with _process(json.dumps(job).encode()) as process:
        asked = False
        for line in _lines(process):
            if line is None:
                if stop() and not asked:
                    asked = True
                    process.terminate()
                continue
            kind, *said = json.loads(line)
            if kind == "line":
                say(Warned(said[0]) if said[1] else said[0])
            elif kind == "path":
                path = said[0]
            else:
                known = getattr(errors, said[0], DnnstackError)
                usual = known.__init__ is Exception.__init__
                raise (known if usual else DnnstackError)(*said[1])
        status = process.wait()
    if status:
        raise TrainingError(
            f"the process of the workers has ended with status {status}; its messages are above"
        )
    return Path(path)


@contextmanager
def _process(job: bytes) -> Iterator[subprocess.Popen[bytes]]:
    """The new process; its workers end in order once it is gone."""
    process = subprocess.Popen(
        [sys.executable, "-c", program(__name__, "main")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        # A Ctrl-C is for this process, which passes it on.
        start_new_session=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(job)
        process.stdin.close()
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def _lines(process: subprocess.Popen[bytes]) -> Iterator[bytes | None]:
    """The lines of a process, and None several times a second."""
    assert process.stdout is not None
    number, unread = process.stdout.fileno(), b""
    while True:
        if select.select([number], [], [], _TURN)[0]:
            received = os.read(number, 1 << 16)
            if not received:
                return
            *lines, unread = (unread + received).split(b"\n")
            yield from lines
        yield None


def main() -> int:
    """Do the call that standard input holds; standard output gets a line of JSON for each thing."""
    # What libraries print is no line of ours, nor is it for a worker to write there.
    own = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    parent = os.getppid()

    def tell(*said: object) -> None:
        own.write(f"{json.dumps(said)}\n")
        own.flush()

    def say(text: str) -> None:
        tell("line", str(text), isinstance(text, Warned))

    job = json.load(sys.stdin)
    with StopSignals() as stop:
        try:
            for path in job["plugins"]:
                load_plugin(path)

            def ends() -> bool:
                return stop.requested() or os.getppid() != parent

            tell("path", str(Call(**job["call"]).train(Heard(say), ends)))
        except Exception as error:
            if (text := told(error)) is None:
                raise
            lines = [*map(str, error.args)] if isinstance(error, DnnstackError) else [text]
            tell("error", type(error).__name__, lines)
    return 0

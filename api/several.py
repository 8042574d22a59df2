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
from contextlib import suppress
from pathlib import Path
from typing import Any

from .common import errors
from .common.errors import DnnstackError, TrainingError, Warned, told
from .common.records import dataclass
from .configs import LoadedConfig
from .configs.load import load_beside
from .configs.plugins import loaded
from .configs.search import BLOCK, Search, load_search
from .datasets import Downloads
from .fitting import plain, read_config
from .many.planned import Planned
from .many.screen import Screen
from .many.side_by_side import train_group
from .many.sweep_work import count_of_workers, run_sweep
from .many.trainings import Shelf, Trainings
from .plugins.loading import load_plugin
from .reports.loggers import Logged
from .training.assemble import Load
from .training.signals import StopSignals

_TURN = 0.2
# As ``program`` does, but what keeps the process from starting is told as well. Only ``sys``, which
# is no file, comes before the current folder is left out.
_PROGRAM = """
import sys
sys.path[:] = filter(None, sys.path)
import json
try:
    from dnnstack.several import main
except Exception as error:
    text = f"the process of the workers cannot start: {type(error).__name__}: {error}"
    print(json.dumps(("error", "TrainingError", (f"{text}; mend that, or give workers=1",))))
    sys.exit(1)
sys.exit(main())
"""


@dataclass(frozen=True)
class Call:
    """What to train: the runs of ``planned``, or the trials of a sweep. changes: as of ``--set``.

    config: a file, or a mapping with its keys; ``workers``: trainings at a time; ``load``: of the
    arrays of this process.
    """

    config: Any
    changes: Sequence[str]
    planned: tuple[Any, int, bool] | None = None
    resume: str | None = None
    workers: int | None = 1
    same_samples: bool = False
    data_dir: str | None = None
    offline: bool = False
    load: Load | None = None

    def _read(self) -> tuple[LoadedConfig, Planned | Search]:
        if self.planned is None:
            return load_search(self.config, self.changes)
        return read_config(self.config, self.changes), Planned(*self.planned)

    def count(self) -> int:
        """How many train at a time. Raises ConfigError."""
        base, what = self._read()
        return count_of_workers(self.workers, base.config, what)

    def train(self, screen: Screen, stop: Callable[[], bool]) -> Path:
        """Train in this process and those that it forks; returns the folder."""
        base, what = self._read()

        def load(settings: Sequence[str]) -> LoadedConfig:
            changes = (*self.changes, *settings)
            # A mapping has no text.
            if base.text:
                return load_beside(base, BLOCK, changes)[0]
            return read_config(self.config, changes)

        count = count_of_workers(self.workers, base.config, what)
        trainings = Trainings(
            base,
            load,
            screen,
            stop,
            count,
            resume=self.resume,
            same_samples=self.same_samples,
            data_dir=None if self.data_dir is None else Path(self.data_dir),
            downloads=Downloads(offline=True) if self.offline else None,
            data=Shelf(self.load),
        )
        if isinstance(what, Planned):
            return train_group(trainings, what)[0]
        return run_sweep(trainings, what)


def train_apart(call: Call, say: Callable[[str], None], stop: Callable[[], bool]) -> Path:
    """Do ``call.train`` in a new process. Raises DnnstackError."""
    given = {**vars(call), "config": plain(call.config)}
    job = {"call": given, "plugins": [str(plugin.path) for plugin in loaded()]}
    command = [sys.executable, "-c", _PROGRAM]
    path = None
    pipe = subprocess.PIPE
    # A Ctrl-C is for this process, which passes it on.
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, start_new_session=True) as process:
        try:
            assert process.stdin is not None
            # One that is gone already says why, or its status does.
            with suppress(BrokenPipeError), process.stdin:
                process.stdin.write(json.dumps(job).encode())
            for kind, *said in _lines(process, stop):
                if kind == "line":
                    say(Warned(said[0]) if said[1] else said[0])
                elif kind == "path":
                    path = Path(said[0])
                else:
                    known = getattr(errors, said[0], DnnstackError)
                    usual = known.__init__ is Exception.__init__
                    raise (known if usual else DnnstackError)(*said[1])
            status = process.wait()
        finally:
            # Its workers end in order once it is gone.
            process.kill()
    if status or path is None:
        raise TrainingError(
            f"the process of the workers has ended with status {status}; its messages are above"
        )
    return path


def _lines(process: subprocess.Popen[bytes], stop: Callable[[], bool]) -> Iterator[list[Any]]:
    """What the process tells, which is asked to end once ``stop`` says so."""
    assert process.stdout is not None
    number, unread, asked = process.stdout.fileno(), b"", False
    while True:
        if select.select([number], [], [], _TURN)[0]:
            received = os.read(number, 1 << 16)
            if not received:
                return
            *lines, unread = (unread + received).split(b"\n")
            yield from map(json.loads, lines)
        if not asked and stop():
            asked = True
            process.terminate()


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

            tell("path", str(Call(**job["call"]).train(Screen(say, watched=Logged), ends)))
        except Exception as error:
            if (text := told(error)) is None:
                raise
            lines = [*map(str, error.args)] if isinstance(error, DnnstackError) else [text]
            tell("error", type(error).__name__, lines)
    return 0

"""Curves that are drawn by processes of their own, while this one goes on."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from ..common.errors import Warned
from ..common.surroundings import program
from ..many.group import runs_of
from ..many.outcome import outcome
from ..training.records.formats.record import file_marks
from ..training.records.formats.run_log import CSV
from .plots import CURVES, draw_curves, wanted

_PROGRAM = program(__name__, "main")
# Stands behind what is said of a run; no message has it.
_END = "\x04"


class Drawings:
    """Draws the curves of runs that have ended; ``notice`` is told what could not be drawn.

    ``apart``: by processes, for a GPU that waits for what Python does here. They are at most
    ``most``, and each draws one run after the other, because it takes longer to start one than to
    draw. Who has more to draw waits. Use as a context, which ends when everything is drawn; several
    threads may draw.
    """

    def __init__(self, notice: Callable[[str], None], apart: bool, most: int = 4) -> None:
        self._notice, self._apart = notice, apart
        self._threads = ThreadPoolExecutor(most, "dnnstack-drawing")
        self._places = threading.Semaphore(most)
        self._own = threading.local()
        self._painters: list[_Painter] = []
        self._drawing: list[Future[None]] = []

    def __enter__(self) -> Drawings:
        return self

    def __exit__(self, *_: object) -> None:
        self._threads.shutdown()
        for painter in self._painters:
            painter.close()
        for done in self._drawing:
            done.result()

    def draw(self, run: Path) -> None:
        """Draw ``curves.png`` of a run."""
        if self._apart:
            self._places.acquire()
            try:
                self._drawing.append(self._threads.submit(self._draw_apart, run))
                return
            except RuntimeError:
                # No more threads.
                self._places.release()
        draw_curves(run, self._notice)

    def make_up(self, group: Path) -> None:
        """Draw those of finished runs of a group that a kill has kept from it."""
        for run in runs_of(group):
            drawn, logged = file_marks(wanted(run / CURVES)), file_marks(run / CSV)
            if outcome(run).finished and logged and (drawn is None or drawn[1] < logged[1]):
                self.draw(run)

    def _draw_apart(self, run: Path) -> None:
        try:
            self._draw_by_process(run)
        finally:
            self._places.release()

    def _draw_by_process(self, run: Path) -> None:
        painter = getattr(self._own, "painter", None)
        if painter is None or painter.ended:
            try:
                self._own.painter = painter = _Painter()
            except OSError:
                # No more processes, or no memory for one.
                draw_curves(run, self._notice)
                return
            self._painters.append(painter)
        said = painter.draw(run)
        if said:
            self._notice(Warned(said))


class _Painter:
    """A process that draws the runs whose folders it reads, line by line."""

    def __init__(self) -> None:
        self.ended = False
        self._process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="surrogateescape",
            # A Ctrl-C is for the trainings; what is being drawn is soon done.
            start_new_session=True,
        )

    def draw(self, run: Path) -> str:
        """What was said of it; "" of one that was drawn."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with suppress(BrokenPipeError):
            self._process.stdin.write(f"{run.resolve()!s}\0\n")
            self._process.stdin.flush()
        said: list[str] = []
        for line in self._process.stdout:
            text, end, _ = line.partition(_END)
            if text.strip():
                said.append(text.strip())
            if end:
                return " ".join(said)
        self.ended, status = True, self._process.wait()
        return " ".join(said) or f"{run / CURVES}: the curves were not drawn (status {status})"

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


def main() -> None:
    """Draw the curves of the runs whose folders standard input names, each with a NUL behind it;
    print what fails."""
    # matplotlib reads settings in the current folder: none of a stranger.
    os.chdir("/")
    for stream in (sys.stdin, sys.stdout):
        stream.reconfigure(encoding="utf-8", errors="surrogateescape")  # type: ignore[union-attr]
    name = ""
    for line in sys.stdin:
        name += line
        # A folder's name may have a line break.
        if name.endswith("\0\n"):
            draw_curves(Path(name[:-2]), print)
            sys.stdout.write(f"{_END}\n")
            sys.stdout.flush()
            name = ""

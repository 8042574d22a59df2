"""Curves that are drawn by processes of their own, while this one goes on."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from .plots import CURVES, draw_curves

# No module of the folder that it is started in is found instead of ours.
_PROGRAM = f"import sys; sys.path[:] = filter(None, sys.path); from {__name__} import main; main()"


class Drawings:
    """Draws the curves of runs that have ended; ``notice`` is told what could not be drawn.

    ``apart``: by processes, for a GPU that waits for what Python does here; never more than
    ``most`` at a time. Use as a context, which ends when everything is drawn; several threads may
    draw.
    """

    def __init__(self, notice: Callable[[str], None], apart: bool, most: int = 4) -> None:
        self._notice, self._apart, self._most = notice, apart, most
        self._drawing: list[tuple[Path, subprocess.Popen[str]]] = []
        self._turn = threading.Lock()

    def __enter__(self) -> Drawings:
        return self

    def __exit__(self, *_: object) -> None:
        while self._drawing:
            self._end(*self._drawing.pop(0))

    def draw(self, run: Path) -> None:
        """Draw ``curves.png`` of a run."""
        if not self._apart:
            draw_curves(run, self._notice)
            return
        with self._turn:
            while len(self._drawing) >= self._most:
                self._end(*self._drawing.pop(0))
            try:
                self._drawing.append((run, self._begun(run)))
                return
            except OSError:
                # No more processes, or no memory for one.
                pass
        draw_curves(run, self._notice)

    def _begun(self, run: Path) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, str(run.resolve())],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            # A Ctrl-C is for the trainings; what is being drawn is soon done.
            start_new_session=True,
        )

    def _end(self, run: Path, process: subprocess.Popen[str]) -> None:
        said, _ = process.communicate()
        text = " ".join(said.split("\n")).strip()
        if process.returncode and not text:
            text = f"{run / CURVES}: the curves were not drawn (status {process.returncode})"
        if text:
            self._notice(text)


def main() -> None:
    """Draw the curves of the run that the command line names; print what fails."""
    draw_curves(Path(sys.argv[1]), print)

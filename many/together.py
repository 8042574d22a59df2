"""Trainings side by side in this process: threads, each with streams of its own on the GPU."""

from __future__ import annotations

import math
import queue
import sys
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import mean

from ..backends import select
from ..common.errors import Interrupted, UsageError, told
from ..training.records.group import read_group
from .outcome import outcome
from .screen import Said, Say, Screen

_TURN = 0.2
# Seconds that a thread computes in Python while another one, whose steps have ended, waits.
_SWITCH = 5e-4

MOST = 4
"""Trainings side by side, unless told otherwise."""
SMALL = 16
"""Layers of a network whose runs begin quickly beside each other."""
WORTH = {True: 4.0, False: 15.0}
"""Seconds of training in turn from which on runs are trained side by side, of small networks and of
others: what they gain is then more than they lose while each of them is compiled and captured."""


class Together:
    """Threads that do the same ``work`` until there is no more; as ``Crew`` for processes.

    ``device``: the name of the backend that each thread opens. Nothing is replaced: what kills one
    thread kills this process, and a resume goes on with the trainings of all.
    """

    def __init__(
        self,
        device: str,
        work: Callable[[Say, Callable[[], bool]], None],
        screen: Screen,
        stop: Callable[[], bool],
    ) -> None:
        self._device, self._work, self._screen, self._stop = device, work, screen, stop
        self._ending = threading.Event()
        # None: a thread has ended.
        self._said: queue.SimpleQueue[Said | None] = queue.SimpleQueue()
        self._faults: list[BaseException] = []

    def run(self, count: int) -> None:
        """Start the threads, and wait for their ends.

        A stop ends them in order, and so does an error of one of them, which is then raised; other
        errors until the last one has ended are printed.
        """
        threads = [
            threading.Thread(target=self._train, name=f"training {number + 1}")
            for number in range(count)
        ]
        try:
            with _switching(_SWITCH):
                for thread in threads:
                    thread.start()
                self._listen(count)
        finally:
            # After an error of this thread they save and end, too.
            self._ending.set()
            for thread in threads:
                if thread.ident is not None:
                    thread.join()
        if self._faults:
            # One that was only ended by another says nothing new.
            own = [each for each in self._faults if not isinstance(each, Interrupted)]
            first, *others = own or self._faults
            for line in dict.fromkeys(map(_line, others)):
                if line != _line(first):
                    self._screen.error(line)
            raise first

    def _listen(self, running: int) -> None:
        while running:
            try:
                said = self._said.get(timeout=_TURN)
            except queue.Empty:
                pass
            else:
                if said is None:
                    running -= 1
                else:
                    self._screen.hear(said)
            self._screen.turn()

    def _train(self) -> None:
        try:
            with select.own_streams(self._device):
                self._work(self._said.put, self._ends)
        except BaseException as error:
            self._faults.append(error)
            self._ending.set()
        finally:
            self._said.put(None)

    def _ends(self) -> bool:
        return self._stop() or self._ending.is_set()


def _line(fault: BaseException) -> str:
    text = told(fault) if isinstance(fault, Exception) else None
    if text is None:
        text = f"{type(fault).__name__}: {fault}"
    return " ".join(text.split("\n"))


def worth(
    device: str, group: Path, failed: Collection[str], layers: Callable[[], int]
) -> tuple[int, list[str]]:
    """How many of a group's runs to train at a time from now on, and the names of those left.

    One, unless it is a GPU that has room for several, and the training that is left takes long
    enough, by the time of the runs that have finished; how long depends on the number of the
    network's ``layers``. Runs that have ``failed`` are not left.
    """
    if device != "cuda":
        return 1, []
    names = [member.name for member in read_group(group).members]
    found = {name: outcome(group / name) for name in names if name not in failed}
    seconds = [each.seconds for each in found.values() if each.finished]
    left = {name: each.seconds for name, each in found.items() if not each.finished}
    if not seconds or len(left) < 2:
        return 1, [*left]
    remaining = sum(max(0.0, mean(seconds) - spent) for spent in left.values())
    if remaining < WORTH[layers() <= SMALL]:
        return 1, [*left]
    most = min(MOST, select.room(device))
    # As many at a time in the last turn as in the others, if that is possible.
    count = 1 if most < 2 else math.ceil(len(left) / math.ceil(len(left) / most))
    return count, [*left]


def check_together(device: str, workers: int | None) -> None:
    """Raise UsageError unless there are trainings to run together, on a GPU."""
    if workers is None or workers < 2:
        raise UsageError("--together needs --workers N, with N of at least 2")
    if device != "cuda":
        raise UsageError(
            "--together needs a GPU; on a CPU the processes of --workers N share the cores"
        )


@contextmanager
def _switching(seconds: float) -> Iterator[None]:
    """Let Python's threads take turns as often."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(seconds)
    try:
        yield
    finally:
        sys.setswitchinterval(before)

"""Worker processes: forked from this one, each with a pipe to it, and replaced where one dies."""

from __future__ import annotations

import json
import os
import select
import selectors
import signal
import sys
from collections.abc import Callable
from contextlib import suppress

from ..common.errors import DnnstackError, Interrupted, TrainingError, Warned, told
from ..common.records import dataclass
from ..training.signals import WANTED, StopSignals, held_back, named
from .screen import Said, Say, Screen

_TURN = 0.2
# How often a trial may lose its worker before it counts as failed. Somebody may kill a worker, or
# the system for want of memory; a crash repeats itself.
_KILLS, _CRASHES = 10, 3


@dataclass
class _Worker:
    pid: int
    pipe: int
    unread: bytes = b""
    trial: int | None = None


class Crew:
    """Processes that do the same ``work`` until there is no more.

    ``work`` runs in each, and gets what sends to this process and what tells whether to end.
    ``screen`` hears what they say. ``lost(trial, why)``: a trial has killed so many workers that it
    is to be given up.
    """

    def __init__(
        self,
        work: Callable[[Say, Callable[[], bool]], None],
        screen: Screen,
        lost: Callable[[int, str], None],
        stop: Callable[[], bool],
    ) -> None:
        self._work, self._screen, self._lost, self._stop = work, screen, lost, stop
        self._workers: dict[int, _Worker] = {}
        self._selector = selectors.DefaultSelector()
        self._deaths: dict[int | None, int] = {}
        self._fault: DnnstackError | None = None
        self._ending = False

    def run(self, count: int) -> None:
        """Start the workers, and wait for their ends.

        A stop ends them in order, and so does an error of one of them, which is then raised.
        """
        try:
            with self._selector:
                for _ in range(count):
                    self._start()
                while self._workers:
                    for key, _ in self._selector.select(_TURN):
                        self._listen(key.data)
                    if self._stop() or self._fault is not None:
                        self._end()
                    self._screen.turn()
        finally:
            self._abandon()
        if self._fault is not None:
            raise self._fault

    def _start(self) -> None:
        ours, theirs = os.pipe()
        for stream in (sys.stdout, sys.stderr):
            # What is in the buffers now would be written by both processes.
            with suppress(OSError, ValueError):
                stream.flush()
        parent = os.getpid()
        try:
            with held_back():
                pid = os.fork()
                if not pid:
                    stop = StopSignals().__enter__()
        except OSError as error:
            os.close(ours)
            os.close(theirs)
            self._fault = self._fault or TrainingError(
                f"a worker cannot be started: {error.strerror}; use fewer: --workers "
                f"{max(1, len(self._workers))}"
            )
            return
        if not pid:
            for each in self._workers.values():
                os.close(each.pipe)
            os.close(ours)
            _become(theirs, stop, parent, self._work, self._screen)
        os.close(theirs)
        worker = self._workers[pid] = _Worker(pid, ours)
        self._selector.register(ours, selectors.EVENT_READ, worker)

    def _listen(self, worker: _Worker) -> None:
        received = os.read(worker.pipe, 1 << 16)
        if not received:
            self._ended(worker)
            return
        *lines, worker.unread = (worker.unread + received).split(b"\n")
        for line in lines:
            said = Said(**json.loads(line))
            if said.kind == "begun":
                worker.trial = said.trial
            elif said.kind == "ended":
                self._deaths.pop(worker.trial, None)
                worker.trial = None
            if said.kind == "error":
                self._fault = self._fault or TrainingError(*said.text.split("\n"))
            else:
                self._screen.hear(said)

    def _ended(self, worker: _Worker) -> None:
        self._selector.unregister(worker.pipe)
        os.close(worker.pipe)
        del self._workers[worker.pid]
        status = os.waitstatus_to_exitcode(os.waitpid(worker.pid, 0)[1])
        self._screen.hear(Said("ended", worker.trial))
        if self._ending or self._stop() or self._fault is not None:
            return
        if status - 128 in WANTED:
            self._screen.notice(f"a worker was asked to end, pid {worker.pid}; the others go on")
        elif status > 0:
            self._fault = TrainingError(
                f"a worker has ended with status {status}; its messages are above"
            )
        elif status < 0:
            self._replace(worker, -status)

    def _replace(self, worker: _Worker, number: int) -> None:
        """Start another worker for one that a signal has ended."""
        deaths = self._deaths[worker.trial] = self._deaths.get(worker.trial, 0) + 1
        name = named(number)
        most = _KILLS if number == signal.SIGKILL else _CRASHES
        if deaths < most:
            text = f"a worker was ended by {name}, pid {worker.pid}; another one goes on"
            self._screen.notice(text)
        elif worker.trial is None:
            self._fault = TrainingError(
                f"{deaths} workers were ended by {name} before they had a trial; end other "
                "programs, or use fewer workers: --workers 1"
            )
            return
        else:
            self._lost(worker.trial, f"its process was ended by {name}, {deaths} times")
            del self._deaths[worker.trial]
        self._start()

    def _end(self) -> None:
        """Ask all workers to save and end."""
        if not self._ending:
            self._ending = True
            for pid in self._workers:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGTERM)

    def _abandon(self) -> None:
        """After an error of this process: ask the workers to end, and wait for them."""
        self._end()
        for worker in self._workers.values():
            # One that has something to say must not wait for a reader.
            os.close(worker.pipe)
        for pid in self._workers:
            with suppress(ChildProcessError):
                os.waitpid(pid, 0)


def _become(
    pipe: int,
    stop: StopSignals,
    parent: int,
    work: Callable[[Say, Callable[[], bool]], None],
    screen: Screen,
) -> None:
    """Do the work of a worker and end; never returns."""
    status = 1
    try:
        os.set_blocking(pipe, False)

        def say(said: Said) -> None:
            content = json.dumps(vars(said)).encode() + b"\n"
            # Nobody hears it if the other process is gone; one that is held up misses it.
            with suppress(OSError):
                # Up to this length a line is written whole or not at all.
                if len(content) <= select.PIPE_BUF:
                    os.write(pipe, content)

        def line(text: str) -> None:
            say(Said("line", text=text[:1000], warned=isinstance(text, Warned)))

        screen.relay(line)
        try:
            # An orphan ends as if it had been asked to.
            work(say, lambda: stop.requested() or os.getppid() != parent)
            status = stop.exit_status
        except Interrupted:
            # Asked to end before it had anything to save.
            status = stop.exit_status
        except Exception as error:
            text = told(error)
            if text is None:
                raise
            os.set_blocking(pipe, True)
            content = json.dumps(vars(Said("error", text=text))).encode()
            with suppress(OSError):
                os.write(pipe, content + b"\n")
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(status)

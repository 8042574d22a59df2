"""The training loop: steps in chunks; between them log, validation, checkpoints, and stopping."""

from __future__ import annotations

import contextlib
import math
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from time import perf_counter, time

import numpy as np

from ..backends.base import Backend
from ..configs import RunConfig
from .divergence import Watch
from .listener import EndState, Listener, Progress, Started, Summary
from .metrics import Metrics
from .pace import Pace
from .preprocessing import Preprocessing
from .records.formats.run_log import RunLog
from .records.numerics import versions_of
from .records.saver import Saver
from .recovery import Diverged, Recovery
from .session import Session

# Seconds for which a thread may keep the interpreter while another waits for it.
SWITCH_SECONDS = 2e-4


class Loop:
    """One training from its first step in this process to its last."""

    def __init__(
        self,
        config: RunConfig,
        session: Session,
        saver: Saver,
        log: RunLog,
        listener: Listener,
    ) -> None:
        self._config = config.train
        self._keep_best = config.checkpoint.best
        self._session = session
        self._plan = session.plan
        self._saver = saver
        self._log = log
        self._listener = listener
        self._watch = Watch(session)
        self._recovery = Recovery(config.train.on_nan, session, self._watch, saver, log, listener)
        self._training: Metrics | None = None
        self._training_step = 0
        self._validation: Metrics | None = None
        self._pace = Pace(session.plan.batch_size)
        self._untold: list[Callable[[], None]] = []

    def run(self, backend: Backend, stop_requested: Callable[[], bool]) -> Summary:
        """Train to the end, or to the first chunk after which a stop is requested.

        Raises NonFiniteError, CheckpointError, LibraryError; the log then says that it failed.
        """
        try:
            self._start(backend)
            with _prompt_threads():
                while (ended := self._attempt(stop_requested)) is None:
                    pass
                self._saver.wait()
        except BaseException as error:
            self._failed(error)
            raise
        summary = self._summary(ended)
        saved = self._saver.unlogged()
        self._log.event(
            "end",
            summary.step,
            state=ended,
            **({} if saved is None else {"checkpoint": saved}),
            early=summary.early,
            **({} if summary.goal is None else {"goal": summary.goal}),
            time=time(),
            training_seconds=summary.training_seconds,
        )
        return summary

    def _measured(self) -> Preprocessing | None:
        setup = self._session.setup
        return setup.scaling if setup.config.data.normalize.measured else None

    def _start(self, backend: Backend) -> None:
        plan, step, state = self._plan, self._session.step, self._saver.state
        source, ranks = self._resumed_from(), self._session.ranks
        self._log.event(
            "start" if source is None else "resume",
            step,
            time=time(),
            backend=backend.name,
            **({} if source is None else {"checkpoint": str(source)}),
            total_steps=plan.total_steps,
            **({} if ranks == 1 else {"ranks": ranks}),
            versions=versions_of(backend),
        )
        self._listener.started(
            Started(
                run=self._saver.run.path,
                backend=backend.name,
                plan=plan,
                state=state,
                resumed_from=source,
                measured=self._measured(),
            )
        )
        done = ""
        if step == plan.total_steps and not state.validation_due:
            done = f"is already at its end, step {step}; raise train.epochs or train.max_steps"
        elif state.out_of_patience(self._config.patience):
            done = f"has already ended early: {state.unimproved} validations without improvement; "
            done += "raise train.patience"
        elif state.reached(self._config.goal):
            done = "has already reached its goal; raise or remove train.goal"
        if done:
            self._listener.notice(f"nothing left to do: training {done} to continue")
        self._watch.start()
        self._pace.start()

    def _attempt(self, stop_requested: Callable[[], bool]) -> EndState | None:
        """Train to an end, and save; None after a rollback, from which the next attempt starts."""
        try:
            ended = self._steps(stop_requested)
            self._tell()
            if self._saver.needs_saving(self._session.step):
                # A training that nobody stops saves nothing here, and its log has no such line.
                self._save(logged=ended != "interrupted")
            return ended
        except Diverged as error:
            self._recovery.roll_back(error)
            self._pace.next_window()
            return None

    def _steps(self, stop_requested: Callable[[], bool]) -> EndState:
        session, plan, pace = self._session, self._plan, self._pace
        while True:
            if self._saver.state.validation_due:
                if not self._validate(stop_requested):
                    return "interrupted"
                self._listener.progressed(self._progress())
            if session.step == plan.total_steps or self._ends_early():
                return "finished"
            if stop_requested():
                return "interrupted"
            self._saver.keep_up()
            # Short chunks keep the answer to a stop and the moving bar within a fraction of a
            # second; how the steps are cut changes no bit of what they compute.
            steps = min(plan.next_stop(session.step) - session.step, pace.chunk)
            began = perf_counter()
            session.run(steps, wait=False)
            # While a GPU computes these steps, the log is written for the previous ones.
            self._tell()
            finite = self._watch.glance()
            pace.ran(steps, perf_counter() - began)
            if not finite:
                raise self._recovery.diverged(stop_requested)
            self._after_steps()
            self._listener.progressed(self._progress())

    def _tell(self) -> None:
        """Write pending lines to the log, and report them to the listener."""
        waiting, self._untold = self._untold, []
        for each in waiting:
            each()

    def _after_steps(self) -> None:
        """Do what is due after these steps, except for a validation, which comes next."""
        session, plan, saver = self._session, self._plan, self._saver
        step = session.step
        saver.note(step=step)
        if plan.log_due(step):
            self._log_training()
            session.set_sums(np.zeros(3))
            saver.note(window_start=step)
            self._pace.next_window()
        elif step == plan.total_steps:
            # The window stays open, because the run may be continued with more steps.
            self._log_training()
        # Without samples a validation is nothing but what comes before it.
        alone = session.renews and not len(plan.validation)
        if plan.validation_due(step) or (
            alone and (step == plan.total_steps or self._ends_early())
        ):
            saver.note(validation_due=True)
        elif plan.save_due(step):
            self._save()

    def _log_training(self) -> None:
        self._training = Metrics.from_sums(self._session.sums())
        self._training_step = self._session.step
        if not len(self._plan.validation):
            self._measure(self._training)
        progress = self._progress()
        line = partial(
            self._log.metrics,
            "train",
            progress.step,
            progress.epoch,
            self._training,
            progress.learning_rate,
            count=self._training.count,
            images_per_second=progress.images_per_second,
            seconds=self._pace.training_seconds,
            **self._session.remarks(),
        )
        self._untold += [line, partial(self._listener.logged, progress)]

    def _validate(self, stop_requested: Callable[[], bool]) -> bool:
        """Validate, log, and save if that is due; False if a stop was requested meanwhile."""
        self._tell()
        if not self._watch.look():
            raise self._recovery.diverged(stop_requested)
        session, saver, began = self._session, self._saver, perf_counter()

        def stopped() -> bool:
            self._listener.validating(session.step)
            return stop_requested()

        if session.renews:
            if not session.renew(stopped):
                return False
            if not self._watch.look(again=True):
                raise self._recovery.validation_diverged(math.nan)
        if not len(self._plan.validation):
            saver.note(validation_due=False)
            self._save()
            return True
        found = session.validate(stopped)
        seconds = perf_counter() - began
        self._pace.validated(seconds)
        if found is None:
            return False
        if not math.isfinite(found.loss):
            raise self._recovery.validation_diverged(found.loss)
        self._validation = found
        step = session.step
        saver.state = saver.state.validated(found)
        self._measure(found)
        better = saver.state.unimproved == 0
        self._log.metrics(
            "validation",
            step,
            step / self._plan.steps_per_epoch,
            found,
            self._session.rate,
            count=found.count,
            correct=found.correct,
            seconds=seconds,
            best=better,
        )
        began = perf_counter()
        self._listener.validated(step, found, better, seconds)
        # What a listener draws is not the time of the steps.
        self._pace.validated(perf_counter() - began)
        if self._ends_early() and not self._plan.log_due(step) and step < self._plan.total_steps:
            self._log_training()
        if self._plan.save_due(step) or (better and self._keep_best):
            self._save()
        return True

    def _save(self, logged: bool = True) -> None:
        """Save, after checking that every value is finite; ``logged``: with a line of its own."""
        self._tell()
        if not self._watch.look():
            raise self._recovery.diverged(lambda: False)
        self._saver.save(self._watch.good, logged)

    def _failed(self, error: BaseException) -> None:
        """Wait for the writer and log the failure; the first error is the one to show."""
        with contextlib.suppress(Exception):
            self._saver.wait()
        with contextlib.suppress(Exception):
            self._tell()
        with contextlib.suppress(Exception):
            what = f"{type(error).__name__}: {error}"
            seconds = self._pace.training_seconds
            self._log.event(
                "end",
                self._session.step,
                state="failed",
                time=time(),
                training_seconds=seconds,
                error=what,
            )

    def _ends_early(self) -> bool:
        return self._saver.state.ends_early(self._config)

    def _measure(self, found: Metrics) -> None:
        """Record a measurement for the goal if it covers every sample at least once."""
        plan = self._plan
        everything = len(plan.validation) or plan.steps_per_epoch * plan.batch_size
        if self._config.goal is not None and found.count >= everything:
            self._saver.note(measured=(found.accuracy, found.loss))

    def _resumed_from(self) -> Path | None:
        return None if self._saver.source is None else self._saver.source.path

    def _progress(self) -> Progress:
        plan, step = self._plan, self._session.step
        return Progress(
            step=step,
            total_steps=plan.total_steps,
            epoch=step / plan.steps_per_epoch,
            total_epochs=plan.total_steps / plan.steps_per_epoch,
            metrics=self._training,
            learning_rate=self._session.rate,
            images_per_second=self._pace.images_per_second,
            seconds_left=self._pace.seconds_left(plan.total_steps - step),
        )

    def _summary(self, ended: EndState) -> Summary:
        step, plan, pace = self._session.step, self._plan, self._pace
        saver, goal = self._saver, self._config.goal
        return Summary(
            state=ended,
            early=ended == "finished" and step < plan.total_steps,
            goal=None if goal is None else saver.state.reached(goal),
            run=saver.run.path,
            checkpoint=saver.last_path(),
            step=step,
            total_steps=plan.total_steps,
            epoch=step / plan.steps_per_epoch,
            training=self._training,
            training_step=self._training_step,
            validation=self._validation,
            best=saver.state.best,
            training_seconds=pace.training_seconds,
            validation_seconds=pace.validation_seconds,
            images_per_second=pace.overall_images_per_second,
            resumed_from=self._resumed_from(),
        )


@contextlib.contextmanager
def _prompt_threads() -> Iterator[None]:
    """Make a thread that writes or computes an order release the interpreter at once.

    Python's default interval of 5 ms is as long as sixty steps of a small network on a GPU.
    """
    before = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_SECONDS)
    try:
        yield
    finally:
        sys.setswitchinterval(before)

"""Reporter: what the loop writes to the log of its run, and tells its listener."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import perf_counter, time

import numpy as np

from ..backends.base import Backend
from ..common.text import samples_of
from .listener import EndState, Listener, Progress, Started, Summary
from .pace import Pace
from .records.formats.run_log import RunLog
from .records.formats.state import Metrics
from .records.numerics import versions_of
from .records.saver import Saver
from .session import Session


class Reporter:
    """Has what is told besides the state of the training: its ``pace``, and the last metrics."""

    def __init__(self, session: Session, saver: Saver, log: RunLog, listener: Listener) -> None:
        self.pace = Pace(session.plan.batch_size)
        self._session = session
        self._plan = session.plan
        self._saver, self._log, self._listener = saver, log, listener
        self._samples = samples_of(session.network.input_shape)
        self._training: Metrics | None = None
        self._training_step = 0
        self._validation: Metrics | None = None
        self._untold: list[Callable[[], None]] = []

    def started(self, backend: Backend) -> None:
        """Everything is ready; the first step follows, if there is one."""
        plan, step, state = self._plan, self._session.step, self._saver.state
        setup, source, ranks = self._session.setup, self._resumed_from(), self._session.ranks
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
        measured = None
        if setup.config.data.normalize.measured and setup.data.columns is None:
            measured = setup.scaling.mean_and_std(1.0 if setup.network.floats else 255.0)
        self._listener.started(
            Started(
                run=self._saver.run.path,
                backend=backend.name,
                plan=plan,
                state=state,
                resumed_from=source,
                measured=measured,
                samples=self._samples,
                setup=setup,
            )
        )
        done, train = "", setup.config.train
        if step == plan.total_steps and not state.validation_due:
            done = f"is already at its end, step {step}; raise train.epochs or train.max_steps"
        elif state.out_of_patience(train.patience):
            done = f"has already ended early: {state.unimproved} validations without improvement; "
            done += "raise train.patience"
        elif state.reached(train.goal):
            done = "has already reached its goal; raise or remove train.goal"
        if done:
            self._listener.notice(f"nothing left to do: training {done} to continue")

    def tell(self) -> None:
        """Write pending lines to the log, and report them to the listener."""
        waiting, self._untold = self._untold, []
        for each in waiting:
            each()

    def progressed(self) -> None:
        """Some steps are done, or a validation."""
        self._listener.progressed(self._progress())

    def window(self, found: Metrics) -> None:
        """A window of the log has ended; ``tell`` writes its line."""
        self._training, self._training_step = found, self._session.step
        progress = self._progress()
        line = partial(
            self._log.metrics,
            "train",
            progress.step,
            progress.epoch,
            found,
            progress.learning_rate,
            count=found.count,
            images_per_second=progress.images_per_second,
            seconds=self.pace.training_seconds,
            **self._session.remarks(),
        )
        self._untold += [line, partial(self._listener.logged, progress)]

    def validated(self, found: Metrics, better: bool, seconds: float) -> None:
        """A validation has ended after ``seconds``; ``better`` than all before it."""
        self._validation, step = found, self._session.step
        setup, plan = self._session.setup, self._plan
        # Of questions a sample may be right in part.
        counted = setup.data.kind != "yes_no"
        spread = None
        if setup.config.data.fold is not None:
            # Of all folds, to whose answers together R2 is found by it.
            spread = setup.spread(np.concatenate([plan.train, plan.validation]))
        self._log.metrics(
            "validation",
            step,
            step / self._plan.steps_per_epoch,
            found,
            self._session.rate,
            count=found.count,
            **({"correct": found.correct} if counted and isinstance(found.correct, int) else {}),
            **({} if spread is None else {"spread": spread}),
            seconds=seconds,
            best=better,
        )
        began = perf_counter()
        self._listener.validated(step, found, better, seconds)
        # What a listener draws is not the time of the steps.
        self.pace.validated(perf_counter() - began)

    def ended(self, state: EndState) -> Summary:
        """Write the last line, and sum up."""
        summary, saved = self._summary(state), self._saver.unlogged()
        self._log.event(
            "end",
            summary.step,
            state=state,
            **({} if saved is None else {"checkpoint": saved}),
            early=summary.early,
            **({} if summary.goal is None else {"goal": summary.goal}),
            time=time(),
            training_seconds=summary.training_seconds,
            validation_seconds=summary.validation_seconds,
            saving_seconds=summary.saving_seconds,
        )
        return summary

    def failed(self, error: BaseException) -> None:
        """Write the last line, of an error; the first one is the one to show."""
        with contextlib.suppress(Exception):
            self.tell()
        with contextlib.suppress(Exception):
            what = f"{type(error).__name__}: {error}"
            seconds = self.pace.training_seconds
            self._log.event(
                "end",
                self._session.step,
                state="failed",
                time=time(),
                training_seconds=seconds,
                error=what,
            )

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
            images_per_second=self.pace.images_per_second,
            seconds_left=self.pace.seconds_left(plan.total_steps - step),
            samples=self._samples,
        )

    def _summary(self, ended: EndState) -> Summary:
        step, plan, pace = self._session.step, self._plan, self.pace
        saver, goal = self._saver, self._session.setup.config.train.goal
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
            saving_seconds=pace.saving_seconds,
            resumed_from=self._resumed_from(),
            samples=self._samples,
        )

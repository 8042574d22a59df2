"""The training loop: steps in chunks; between them log, validation, checkpoints, and stopping."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from time import perf_counter, time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..common.errors import NonFiniteError
from .checkpoint import Best, State
from .checkpoint_store import CheckpointWriter, tensors_path
from .metrics import Metrics
from .pace import Pace
from .report import EndState, Listener, Progress, Started, Summary
from .resume import Resume
from .run_log import RunLog
from .runs import Run
from .session import Session


class Loop:
    """One training from its first step in this process to its last.

    ``state`` is what the next checkpoint will say, but for its step and sums.
    """

    def __init__(
        self,
        session: Session,
        state: State,
        run: Run,
        log: RunLog,
        writer: CheckpointWriter,
        listener: Listener,
        keep_best: bool,
    ) -> None:
        self._session = session
        self._plan = session.plan
        self._state = state
        self._run = run
        self._log = log
        self._writer = writer
        self._listener = listener
        self._keep_best = keep_best
        self._resumed_from: Path | None = None
        self._saved: int | None = None
        self._training: Metrics | None = None
        self._validation: Metrics | None = None
        self._pace = Pace(session.step, session.plan.batch_size)

    def run(
        self, backend: str, resume: Resume | None, stop_requested: Callable[[], bool]
    ) -> Summary:
        """Train to the end, or to the first chunk after which a stop is requested.

        Raises NonFiniteError, CheckpointError, LibraryError; the log then says that it failed.
        """
        try:
            self._start(backend, resume)
            ended = self._steps(stop_requested)
            if self._saved != self._session.step:
                self._save()
            self._writer.wait()
        except BaseException as error:
            self._failed(error)
            raise
        summary = self._summary(ended)
        seconds = summary.training_seconds
        self._log.event("end", summary.step, state=ended, time=time(), training_seconds=seconds)
        return summary

    def _start(self, backend: str, resume: Resume | None) -> None:
        plan, step = self._plan, self._session.step
        fields: dict[str, Any] = {"time": time(), "backend": backend}
        if resume is not None:
            self._resumed_from = resume.checkpoint.path
            fields["checkpoint"] = str(self._resumed_from)
            if resume.run is not None:
                self._saved = step
            if step == plan.total_steps:
                self._listener.notice(
                    f"training is already at its end, step {step}; "
                    "raise train.epochs or train.max_steps to go on"
                )
        versions = dict(self._state.versions)
        fields["total_steps"] = plan.total_steps
        self._log.event("resume" if resume else "start", step, **fields, versions=versions)
        self._listener.started(
            Started(
                run=self._run.path,
                backend=backend,
                step=step,
                total_steps=plan.total_steps,
                steps_per_epoch=plan.steps_per_epoch,
                batch_size=plan.batch_size,
                train_count=len(plan.train),
                validation_count=len(plan.validation),
                resumed_from=self._resumed_from,
            )
        )

    def _steps(self, stop_requested: Callable[[], bool]) -> EndState:
        session, plan, pace = self._session, self._plan, self._pace
        pace.start()
        while session.step < plan.total_steps:
            if stop_requested():
                return "interrupted"
            self._writer.check()
            # Short chunks keep the answer to a stop and the moving bar within a fraction of a
            # second; how the steps are cut changes no bit of what they compute.
            steps = min(plan.next_stop(session.step) - session.step, pace.chunk)
            began = perf_counter()
            session.run(steps)
            pace.ran(steps, perf_counter() - began)
            self._events()
            self._listener.progressed(self._progress())
        return "finished"

    def _events(self) -> None:
        """What is due after the steps that were done: log, then validation, then checkpoint."""
        step, plan = self._session.step, self._plan
        if plan.log_due(step):
            self._log_training()
            self._session.set_sums(np.zeros(3))
            self._state = replace(self._state, window_start=step)
            self._pace.next_window(step)
        elif step == plan.total_steps:
            # The window stays open, for a run that is continued with more steps.
            self._log_training()
        better = plan.validation_due(step) and self._validate()
        if plan.save_due(step) or (better and self._keep_best):
            self._save()

    def _log_training(self) -> None:
        self._training = Metrics.from_sums(self._finite_sums())
        progress = self._progress()
        self._log.metrics(
            "train",
            progress.step,
            progress.epoch,
            self._training,
            progress.learning_rate,
            count=self._training.count,
            images_per_second=progress.images_per_second,
            seconds=self._pace.training_seconds,
        )
        self._listener.logged(progress)

    def _validate(self) -> bool:
        """Validate and log; whether it was the best so far."""
        began = perf_counter()
        found = self._validation = self._session.validate()
        seconds = perf_counter() - began
        self._pace.validated(seconds)
        step, best = self._session.step, self._state.best
        better = math.isfinite(found.loss) and (
            best is None or (found.accuracy, -found.loss) > (best.accuracy, -best.loss)
        )
        if better:
            self._state = replace(self._state, best=Best(step, found.accuracy, found.loss))
        self._log.metrics(
            "validation",
            step,
            step / self._plan.steps_per_epoch,
            found,
            self._rate(),
            count=found.count,
            correct=found.correct,
            seconds=seconds,
            best=better,
        )
        self._listener.validated(step, found, better, seconds)
        return better

    def _save(self) -> None:
        """Hand a snapshot to the writer."""
        step = self._session.step
        sums = self._finite_sums()
        arrays = self._session.arrays()
        for name, array in arrays.items():
            if not np.isfinite(array).all():
                raise self._diverged(f"'{name}' holds values that are not finite")
        self._state = replace(self._state, step=step, sums=tuple(sums.tolist()))
        self._writer.save(arrays, self._state)
        self._saved = step
        path = tensors_path(self._run.checkpoints, step)
        self._log.event("checkpoint", step, file=path.name)
        self._listener.saving(step, path)

    def _finite_sums(self) -> NDArray[np.float64]:
        sums = self._session.sums()
        if not np.isfinite(sums).all():
            raise self._diverged(f"the loss is {sums[0]}")
        return sums

    def _diverged(self, what: str) -> NonFiniteError:
        return NonFiniteError(
            f"between step {self._state.window_start + 1} and {self._session.step}: {what}; the "
            f"checkpoints saved before stay. Lower optimizer.lr (it was {self._rate():g} here), "
            "set optimizer.clip_norm or schedule.warmup, and resume"
        )

    def _failed(self, error: BaseException) -> None:
        """Let the writer end and note the failure; the first error is the one to show."""
        with contextlib.suppress(Exception):
            self._writer.wait()
        with contextlib.suppress(Exception):
            what = f"{type(error).__name__}: {error}"
            self._log.event("end", self._session.step, state="failed", time=time(), error=what)

    def _rate(self) -> float:
        return float(self._plan.rates[max(self._session.step - 1, 0)])

    def _progress(self) -> Progress:
        plan, step = self._plan, self._session.step
        return Progress(
            step=step,
            total_steps=plan.total_steps,
            epoch=step / plan.steps_per_epoch,
            total_epochs=plan.total_steps / plan.steps_per_epoch,
            metrics=self._training,
            learning_rate=self._rate(),
            images_per_second=self._pace.images_per_second,
            seconds_left=self._pace.seconds_left(plan.total_steps),
        )

    def _summary(self, ended: EndState) -> Summary:
        step, plan, pace = self._session.step, self._plan, self._pace
        return Summary(
            state=ended,
            run=self._run.path,
            checkpoint=tensors_path(self._run.checkpoints, step),
            step=step,
            total_steps=plan.total_steps,
            epoch=step / plan.steps_per_epoch,
            training=self._training,
            validation=self._validation,
            best=self._state.best,
            training_seconds=pace.training_seconds,
            validation_seconds=pace.validation_seconds,
            images_per_second=pace.overall_images_per_second,
            resumed_from=self._resumed_from,
        )

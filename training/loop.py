"""The training loop: steps in chunks; between them log, validation, checkpoints, and stopping.

Read it from the top: ``run`` makes attempts, of which each but the last ends in a value that is not
finite. An attempt is ``_steps``: a chunk of steps, and what is due after it.
"""

from __future__ import annotations

import contextlib
import math
import sys
from collections.abc import Callable, Iterator
from time import perf_counter

import numpy as np

from ..backends.base import Backend
from ..common.errors import NonFiniteError
from .divergence import Finding, Watch
from .listener import EndState, Listener, Summary
from .records.formats.run_log import RunLog
from .records.formats.state import Metrics
from .records.saver import Saver
from .reporter import Reporter
from .session import Session

# Seconds for which a thread may keep the interpreter while another waits for it.
SWITCH_SECONDS = 2e-4
# Halving is exact in binary; three rollbacks leave an eighth of the rate.
RATE_FACTOR = 0.5
ROLLBACKS = 3


class Diverged(Exception):
    """A value is not finite; ``finding`` says which, if that could be determined."""

    def __init__(self, finding: Finding | None, what: str) -> None:
        super().__init__(finding.text if finding is not None else what)
        self.finding = finding


class Loop:
    """One training from its first step in this process to its last."""

    def __init__(
        self,
        session: Session,
        saver: Saver,
        log: RunLog,
        listener: Listener,
        stop_requested: Callable[[], bool],
    ) -> None:
        self._config = session.setup.config
        self._session = session
        self._plan = session.plan
        self._saver, self._log, self._listener = saver, log, listener
        self._stop_requested = stop_requested
        self._watch = Watch(session)
        self._report = Reporter(session, saver, log, listener)
        self._pace = self._report.pace

    def run(self, backend: Backend) -> Summary:
        """Train to the end, or to the first chunk after which a stop is requested.

        Raises NonFiniteError, CheckpointError, LibraryError; the log then says that it failed.
        """
        ended: EndState | None = None
        try:
            self._report.started(backend)
            self._watch.start()
            self._pace.start()
            with _prompt_threads():
                while ended is None:
                    ended = self._attempt()
                began = perf_counter()
                self._saver.wait()
                self._pace.saved(perf_counter() - began)
        except BaseException as error:
            with contextlib.suppress(Exception):
                self._saver.wait()
            self._report.failed(error)
            raise
        return self._report.ended(ended)

    def _attempt(self) -> EndState | None:
        """Train to an end, and save; None after a rollback, from which the next attempt starts."""
        try:
            ended = self._steps()
            self._report.tell()
            if self._saver.needs_saving(self._session.step):
                # A training that nobody stops saves nothing here, and its log has no such line.
                self._save(logged=ended != "interrupted")
            return ended
        except Diverged as error:
            self._roll_back(error)
            self._pace.next_window()
            return None

    def _steps(self) -> EndState:
        session, plan, pace = self._session, self._plan, self._pace
        while True:
            if self._saver.state.validation_due:
                if not self._validate():
                    return "interrupted"
                self._report.progressed()
            if session.step == plan.total_steps or self._ends_early():
                return "finished"
            if self._stop_requested():
                return "interrupted"
            self._saver.check()
            # Short chunks keep the answer to a stop and the moving bar within a fraction of a
            # second; how the steps are cut changes no bit of what they compute.
            steps = min(plan.next_stop(session.step) - session.step, pace.chunk)
            began = perf_counter()
            session.run(steps, wait=False)
            # While a GPU computes these steps, the log is written for the previous ones.
            self._report.tell()
            finite = self._watch.glance()
            pace.ran(steps, perf_counter() - began)
            if not finite:
                raise self._diverged(self._stop_requested)
            self._after_steps()
            self._report.progressed()

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
        found = self._session.training_metrics()
        if not len(self._plan.validation):
            self._measure(found)
        self._report.window(found)

    def _validate(self) -> bool:
        """Validate, log, and save if that is due; False if a stop was requested meanwhile."""
        self._report.tell()
        if not self._watch.look():
            raise self._diverged(self._stop_requested)
        session, plan, saver, began = self._session, self._plan, self._saver, perf_counter()

        def stopped() -> bool:
            self._listener.validating(session.step)
            return self._stop_requested()

        if session.renews:
            if not session.renew(stopped):
                return False
            if not self._watch.look(again=True):
                raise self._validation_diverged(math.nan)
        if not len(plan.validation):
            saver.note(validation_due=False)
            self._save()
            return True
        found = session.validate(stopped)
        seconds = perf_counter() - began
        self._pace.validated(seconds)
        if found is None:
            return False
        if not math.isfinite(found.loss):
            raise self._validation_diverged(found.loss)
        step = session.step
        saver.state = saver.state.validated(found, self._config.checkpoint.best_by == "loss")
        self._measure(found)
        better = saver.state.unimproved == 0
        self._report.validated(found, better, seconds)
        if self._ends_early() and not plan.log_due(step) and step < plan.total_steps:
            self._log_training()
        self._slow_down(found)
        if plan.save_due(step):
            self._save()
        elif better and self._config.checkpoint.best:
            self._save(hold=True)
        return True

    def _slow_down(self, found: Metrics) -> None:
        """Lower the rates if this validation ends a plateau."""
        saver, before = self._saver, self._saver.state.factor
        saver.state = saver.state.slowed(found, self._config)
        if saver.state.factor != before:
            self._session.set_rate_factor(saver.state.factor)
            self._listener.notice(
                f"step {self._session.step}: no improvement in so many validations as "
                f"train.reduce_on_plateau allows; going on with {saver.state.factor:g} times the "
                "learning rate"
            )

    def _save(self, logged: bool = True, hold: bool = False) -> None:
        """Save, after checking that every value is finite; ``logged``: with a line of its own.

        ``hold``: the next save writes it.
        """
        self._report.tell()
        began = perf_counter()
        if not self._watch.look():
            raise self._diverged(lambda: False)
        if hold:
            self._saver.hold(self._watch.good)
        else:
            self._saver.save(self._watch.good, logged)
        self._pace.saved(perf_counter() - began)

    def _ends_early(self) -> bool:
        return self._saver.state.ends_early(self._config.train)

    def _measure(self, found: Metrics) -> None:
        """Record a measurement for the goal if it covers every sample at least once."""
        plan = self._plan
        everything = len(plan.validation) or plan.steps_per_epoch * plan.batch_size
        if self._config.train.goal is not None and found.count >= everything:
            self._saver.note(measured=(found.accuracy, found.loss))

    def _diverged(self, stop_requested: Callable[[], bool]) -> Diverged:
        """Find the first bad value since the last good state."""
        first, last = self._watch.good.step + 1, self._session.step
        self._listener.notice(
            f"loss or parameters are not finite after step {last}; "
            f"looking for the first bad value from step {first} on"
        )
        what = f"between step {first} and {last}: loss or parameters are not finite"
        return Diverged(self._watch.find(stop_requested), what)

    def _validation_diverged(self, loss: float) -> Diverged:
        """The same for a validation; its loss was not finite."""
        what = f"step {self._session.step}: the loss of the validation is {loss}"
        return Diverged(self._watch.find_in_validation(), what)

    def _roll_back(self, error: Diverged) -> None:
        """Go back to the last checkpoint or the start, and halve the learning rate from there on.

        Raises NonFiniteError if the config does not ask for this, or after too many rollbacks.
        """
        saver, bad_step = self._saver, self._session.step
        count = saver.state.rollbacks
        if self._config.train.on_nan == "stop" or count >= ROLLBACKS:
            raise self._explained(error) from None
        good = saver.last_good()
        state = saver.go_back(good, saver.state.rate_factor * RATE_FACTOR)
        self._session.begin(good)
        self._session.set_rate_factor(state.factor)
        self._log.cut(state.step, state.window_start, count, state.validation_due)
        found = error.finding
        self._log.event(
            "rollback",
            state.step,
            rollback=state.rollbacks,
            bad_step=bad_step,
            layer=found and found.layer,
            tensor=found and found.tensor,
            rate_factor=state.rate_factor,
        )
        self._listener.notice(
            f"{error}; going back to step {state.step} with {state.rate_factor:g} times the "
            f"learning rate (rollback {state.rollbacks} of {ROLLBACKS})"
        )
        self._watch.start()
        # A resume must use the lower rate.
        saver.save(self._watch.good, logged=not state.validation_due)

    def _explained(self, error: Diverged) -> NonFiniteError:
        path = self._saver.last_path()
        kept = f"the last good checkpoint is {path}" if path else "no checkpoint was saved yet"
        advice = (
            f"lower optimizer.lr (the rate was {self._session.rate:g} here), set "
            f"optimizer.clip_norm or schedule.warmup, and {'resume' if path else 'start again'}"
        )
        if self._config.train.on_nan == "stop":
            advice += "; train.on_nan: rollback lowers the rate automatically"
        else:
            advice = f"gave up after {self._saver.state.rollbacks} rollbacks; {advice}"
        return NonFiniteError(error, kept, advice)


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

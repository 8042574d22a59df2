"""After a value that is not finite: report it, then stop or roll back with a lower rate."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from ..common.errors import NonFiniteError
from .divergence import Finding, Watch
from .listener import Listener
from .records.run_log import RunLog
from .records.saver import Saver
from .session import Session

# Halving is exact in binary; three rollbacks leave an eighth of the rate.
RATE_FACTOR = 0.5
ROLLBACKS = 3


class Diverged(Exception):
    """A value is not finite; ``finding`` says which, if that could be determined."""

    def __init__(self, finding: Finding | None, what: str) -> None:
        super().__init__(finding.text if finding is not None else what)
        self.finding = finding


class Recovery:
    """What to do if training has diverged, according to ``train.on_nan``."""

    def __init__(
        self,
        on_nan: Literal["stop", "rollback"],
        session: Session,
        watch: Watch,
        saver: Saver,
        log: RunLog,
        listener: Listener,
    ) -> None:
        self._on_nan = on_nan
        self._session = session
        self._watch = watch
        self._saver = saver
        self._log = log
        self._listener = listener

    def diverged(self, stop_requested: Callable[[], bool]) -> Diverged:
        """Find the first bad value since the last good state."""
        first, last = self._watch.good.step + 1, self._session.step
        self._listener.notice(
            f"loss or parameters are not finite after step {last}; "
            f"looking for the first bad value from step {first} on"
        )
        what = f"between step {first} and {last}: loss or parameters are not finite"
        return Diverged(self._watch.find(stop_requested), what)

    def validation_diverged(self, loss: float) -> Diverged:
        """The same for a validation; its loss was not finite."""
        what = f"step {self._session.step}: the loss of the validation is {loss}"
        return Diverged(self._watch.find_in_validation(), what)

    def roll_back(self, error: Diverged) -> None:
        """Go back to the last checkpoint or the start, and halve the learning rate from there on.

        Raises NonFiniteError if the config does not ask for this, or after too many rollbacks.
        """
        saver, bad_step = self._saver, self._session.step
        count = saver.state.rollbacks
        if self._on_nan == "stop" or count >= ROLLBACKS:
            raise self._explained(error) from None
        good = saver.last_good()
        state = saver.go_back(good, saver.state.rate_factor * RATE_FACTOR)
        self._session.begin(good)
        self._session.set_rate_factor(state.rate_factor)
        self._log.cut(state.step, state.window_start, count)
        finding = error.finding
        self._log.event(
            "rollback",
            state.step,
            rollback=state.rollbacks,
            bad_step=bad_step,
            layer=finding.layer if finding is not None else None,
            tensor=finding.tensor if finding is not None else None,
            rate_factor=state.rate_factor,
        )
        self._listener.notice(
            f"{error}; going back to step {state.step} with {state.rate_factor:g} times the "
            f"learning rate (rollback {state.rollbacks} of {ROLLBACKS})"
        )
        self._watch.start()
        # A resume must use the lower rate.
        saver.save(self._watch.good)

    def _explained(self, error: Diverged) -> NonFiniteError:
        path = self._saver.last_path()
        kept = f"the last good checkpoint is {path}" if path else "no checkpoint was saved yet"
        rate = float(self._session.rates[max(self._session.step - 1, 0)])
        advice = (
            f"lower optimizer.lr (the rate was {rate:g} here), set optimizer.clip_norm or "
            f"schedule.warmup, and {'resume' if path else 'start again'}"
        )
        if self._on_nan == "stop":
            advice += "; train.on_nan: rollback lowers the rate automatically"
        else:
            advice = f"gave up after {self._saver.state.rollbacks} rollbacks; {advice}"
        return NonFiniteError(f"{error}\n{kept}\n{advice}")

"""After a value that is not finite: report it, then stop or roll back with a lower rate."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from ..common.errors import NonFiniteError
from ..common.records import dataclass
from .divergence import Finding, Watch
from .listener import Listener
from .records.formats.run_log import RunLog
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


@dataclass
class Recovery:
    """What to do if training has diverged, according to ``train.on_nan``."""

    on_nan: Literal["stop", "rollback"]
    session: Session
    watch: Watch
    saver: Saver
    log: RunLog
    listener: Listener

    def diverged(self, stop_requested: Callable[[], bool]) -> Diverged:
        """Find the first bad value since the last good state."""
        first, last = self.watch.good.step + 1, self.session.step
        self.listener.notice(
            f"loss or parameters are not finite after step {last}; "
            f"looking for the first bad value from step {first} on"
        )
        what = f"between step {first} and {last}: loss or parameters are not finite"
        return Diverged(self.watch.find(stop_requested), what)

    def validation_diverged(self, loss: float) -> Diverged:
        """The same for a validation; its loss was not finite."""
        what = f"step {self.session.step}: the loss of the validation is {loss}"
        return Diverged(self.watch.find_in_validation(), what)

    def roll_back(self, error: Diverged) -> None:
        """Go back to the last checkpoint or the start, and halve the learning rate from there on.

        Raises NonFiniteError if the config does not ask for this, or after too many rollbacks.
        """
        saver, bad_step = self.saver, self.session.step
        count = saver.state.rollbacks
        if self.on_nan == "stop" or count >= ROLLBACKS:
            raise self._explained(error) from None
        good = saver.last_good()
        state = saver.go_back(good, saver.state.rate_factor * RATE_FACTOR)
        self.session.begin(good)
        self.session.set_rate_factor(state.rate_factor)
        self.log.cut(state.step, state.window_start, count, state.validation_due)
        found = error.finding
        self.log.event(
            "rollback",
            state.step,
            rollback=state.rollbacks,
            bad_step=bad_step,
            layer=found and found.layer,
            tensor=found and found.tensor,
            rate_factor=state.rate_factor,
        )
        self.listener.notice(
            f"{error}; going back to step {state.step} with {state.rate_factor:g} times the "
            f"learning rate (rollback {state.rollbacks} of {ROLLBACKS})"
        )
        self.watch.start()
        # A resume must use the lower rate.
        saver.save(self.watch.good, logged=not state.validation_due)

    def _explained(self, error: Diverged) -> NonFiniteError:
        path = self.saver.last_path()
        kept = f"the last good checkpoint is {path}" if path else "no checkpoint was saved yet"
        advice = (
            f"lower optimizer.lr (the rate was {self.session.rate:g} here), set "
            f"optimizer.clip_norm or schedule.warmup, and {'resume' if path else 'start again'}"
        )
        if self.on_nan == "stop":
            advice += "; train.on_nan: rollback lowers the rate automatically"
        else:
            advice = f"gave up after {self.saver.state.rollbacks} rollbacks; {advice}"
        return NonFiniteError(error, kept, advice)

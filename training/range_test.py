"""The learning-rate range test: a short training whose rate grows until its loss does.

Source: Smith 2017, "Cyclical Learning Rates for Training Neural Networks", 3.3.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ..backends.base import Backend
from ..common.records import dataclass
from .plan import Plan
from .rate_tables import rate_tables
from .session import Session
from .setup import Setup

# Of the loss before, in the average that hides what single batches are like.
_SMOOTHING = 0.9
# A loss of so many times the best one has diverged.
_DIVERGED = 4.0


@dataclass(frozen=True)
class RangeTest:
    """The rate and loss of each step, the smoothed loss, and ``suggested``, None without a fall.

    diverged: whether the last loss is above four times the best, or not finite.
    """

    rates: tuple[float, ...]
    losses: tuple[float, ...]
    smoothed: tuple[float, ...]
    suggested: float | None
    diverged: bool


def range_test(setup: Setup, backend: Backend, low: float, high: float, steps: int) -> RangeTest:
    """Train from fresh weights while the rate grows from ``low`` to ``high``, geometrically.

    It ends where the loss has diverged. Groups keep their rates' ratio to that of the optimizer.
    Nothing is written.
    """
    plan = _growing(setup, low, high, steps)
    session = Session(replace(setup, plan=plan), backend)
    losses: list[float] = []
    smoothed: list[float] = []
    mean = 0.0
    try:
        session.begin(None)
        while session.step < steps and not _diverged(smoothed):
            session.set_sums(np.zeros(3))
            session.run(1)
            losses.append(session.training_metrics().loss)
            mean = _SMOOTHING * mean + (1 - _SMOOTHING) * losses[-1]
            smoothed.append(mean / (1 - _SMOOTHING ** len(losses)))
    finally:
        session.close()
    rates = tuple(map(float, plan.rates[: len(losses)]))
    fall = valley(smoothed)
    found = None if fall is None else rates[(fall[0] + 2 * fall[1]) // 3]
    return RangeTest(rates, tuple(losses), tuple(smoothed), found, _diverged(smoothed))


def valley(losses: Sequence[float]) -> tuple[int, int] | None:
    """First and last place of the longest fall, in which losses between may rise; None if none.

    A fall is a subsequence of which each loss is below the one before.
    """
    longest = [1] * len(losses)
    for end, loss in enumerate(losses):
        falls = (longest[at] for at in range(end) if losses[at] > loss)
        longest[end] += max(falls, default=0)
    count = max(longest, default=1)
    if count < 2:
        return None
    end = longest.index(count)
    return end - count + 1, end


def _diverged(smoothed: Sequence[float]) -> bool:
    return bool(smoothed) and not smoothed[-1] <= _DIVERGED * np.nanmin(smoothed)


def _growing(setup: Setup, low: float, high: float, steps: int) -> Plan:
    plan, lr = setup.plan, setup.config.optimizer.lr
    rates = low * (high / low) ** (np.arange(steps) / (steps - 1))
    scales = {name: table.lr / lr for name, table in rate_tables(setup.config).items()}
    missing = max(steps - plan.total_steps, 0)
    tables = {
        name: np.pad(table, (0, missing), mode="edge")[:steps]
        if name not in scales
        else (rates * scales[name]).astype(np.float32)
        for name, table in plan.tables.items()
    }
    return replace(
        plan,
        total_steps=steps,
        rates=rates.astype(np.float32),
        tables=tables,
        validation=plan.validation[:0],
        snapshots=(),
    )

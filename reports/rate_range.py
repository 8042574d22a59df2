"""What a learning-rate range test found, as text, JSON and a picture."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from ..backends.base import Backend
from ..common.errors import UsageError
from ..common.printable import paragraph
from ..common.records import dataclass
from ..training.range_test import RangeTest, range_test
from ..training.setup import Setup
from . import style
from .plots import drawn
from .tables import table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_ROWS = 12


def find_rate(
    title: str, setup: Setup, backend: Backend, low: float, high: float, steps: int
) -> RateRange:
    """See ``range_test``. Raises UsageError for less than two rates, and for what does not grow."""
    if steps < 2:
        raise UsageError(f"steps: expected a whole number of at least 2 (got {steps})")
    if not 0 < low < high < math.inf:
        raise UsageError(f"rates from {low:g} to {high:g} do not grow: low must be below high")
    return RateRange(title, setup.config.optimizer.lr, range_test(setup, backend, low, high, steps))


@dataclass(frozen=True)
class RateRange:
    """A range test of the config ``title``, whose own rate is ``lr``."""

    title: str
    lr: float
    result: RangeTest

    @property
    def suggested(self) -> float | None:
        """A good rate to begin with, or None: the loss never fell."""
        return self.result.suggested

    def to_json(self) -> dict[str, Any]:
        """Losses that are no numbers are None."""
        told = asdict(self.result)
        for key in ("losses", "smoothed"):
            told[key] = [loss if math.isfinite(loss) else None for loss in told[key]]
        return {"config": self.title, "lr": self.lr, **told}

    def as_text(self) -> str:
        """Some of the steps, how the test ended, and the suggested rate."""
        found = self.result
        rows = [
            (f"{rate:.3g}", f"{loss:.4f}", f"{smoothed:.4f}")
            for rate, loss, smoothed in zip(found.rates, found.losses, found.smoothed, strict=True)
        ]
        last = len(rows) - 1
        shown = (rows[at] for at in sorted({round(i * last / _ROWS) for i in range(_ROWS + 1)}))
        lines = table([("rate", "loss", "smoothed"), *shown], ">")
        return paragraph([*lines, "", *self._told()])

    def _told(self) -> list[str]:
        found = self.result
        if found.suggested is None:
            return ["the loss did not fall at any of these rates; see 'dnnstack check'"]
        ended = f"the loss diverged at {found.rates[-1]:.3g}"
        fell = ended if found.diverged else f"the loss had not diverged at {found.rates[-1]:.3g}"
        return [fell, f"suggested: optimizer.lr={found.suggested:.2g} (now {self.lr:g})"]

    def picture(self, form: str) -> bytes:
        """The curve of the loss over the rate as ``png``, ``svg`` or ``pdf``."""
        return drawn(self._figure, form)

    def _figure(self) -> Figure:
        from matplotlib.figure import Figure

        found, figure = self.result, Figure(figsize=(7.2, 4.2), layout="constrained")
        axes = figure.subplots()
        axes.set_title(f"{self.title}: learning-rate range test")
        axes.semilogx(found.rates, found.losses, color=style.named(style.PALE), label="loss")
        blue = style.named(style.BLUE)
        axes.semilogx(found.rates, found.smoothed, color=blue, label="smoothed", linewidth=2)
        if found.suggested is not None:
            red, label = style.named(style.RED), f"suggested: {found.suggested:.2g}"
            axes.axvline(found.suggested, color=red, linestyle="--", label=label)
        top = 1.2 * max(found.smoothed[:1] or (1.0,))
        axes.set(xlabel="learning rate", ylabel="loss", ylim=(0, top))
        axes.legend(frameon=False)
        return figure

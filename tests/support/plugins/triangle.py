"""A rate that rises and falls along straight lines, as a schedule."""

from typing import Annotated

import numpy as np
from dnnstack.plugins import Count, Fraction, Schedule


class Triangle(Schedule):
    """From low lr up to lr and down again, over and over, every period steps."""

    kind = "triangle"
    period: Annotated[Count, "Steps from one low to the next."]
    low: Annotated[Fraction, "Lowest rate, as a share of lr."] = 0.1

    def rates(self, lr, length):
        height = 1 - np.abs(2 * (length.t % self.period) / self.period - 1)
        return lr * (self.low + (1 - self.low) * height)

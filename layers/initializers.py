"""Initial values of parameters, by name, drawn from keyed random numbers.

The scaled families draw with variance gain / fan: glorot (Glorot and Bengio 2010, eq. 12)
2 / (fan_in + fan_out), he (He et al. 2015, eq. 10) 2 / fan_in, lecun (LeCun et al. 1998,
"Efficient BackProp", eq. 16) 1 / fan_in; uniform draws from +-sqrt(3 variance). fan_in_uniform
draws from +-gain / fan_in (LeCun et al. 1998, appendix A, with gain 2.4), torch_uniform from
+-1 / sqrt(fan_in), which PyTorch's layers start from.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..common import random
from ..common.errors import ConfigError, ShapeError
from ..common.records import dataclass
from ..graph.graph import Shape

FanIn = int | tuple[int, ...]
"""One number for all values, or one for each row."""
SCALED = {
    f"{family}_{law}": (family, law)
    for family in ("glorot", "he", "lecun")
    for law in ("uniform", "normal")
}
NAMES = (
    "zeros",
    "ones",
    "constant",
    "uniform",
    "normal",
    "truncated_normal",
    "fan_in_uniform",
    "torch_uniform",
    *SCALED,
)
# Bytes of initial values that are kept for the next training.
MOST_KEPT = 16 << 20


@dataclass(frozen=True)
class Initializer:
    """An initialiser by name.

    ``value`` is the constant, the limit, the standard deviation or the gain; ``mean`` is added to
    the values of ``normal`` and ``truncated_normal``. A constant may be a tuple: of all values, of
    a filter (h, w) for every channel, or of one for each filter.
    """

    name: str
    value: Any = 0.0
    mean: float = 0.0

    def __post_init__(self) -> None:
        # A class derived from this one has a name of its own.
        if type(self) is Initializer and self.name not in NAMES:
            raise ConfigError(f"unknown initializer '{self.name}'; one of: {', '.join(NAMES)}")

    def check(self, shape: Shape) -> None:
        """Raise ShapeError if it cannot fill a tensor of this shape."""
        if self.name == "constant":
            try:
                self._constant(shape)
            except ValueError:
                raise ShapeError(f"constant: these numbers do not fill {shape}") from None

    def draw(
        self, shape: Shape, fan_in: FanIn, fan_out: int, key: random.Key
    ) -> NDArray[np.float32]:
        """Values of the given shape; the same key gives the same values.

        What was drawn last is kept, because trainings of one process often begin alike.
        """
        if self.name in ("zeros", "ones", "constant"):
            return self._constant(shape)
        given = (self, shape, fan_in, fan_out, key)
        found = _KEPT.of(given)
        if found is None:
            found = self._drawn(shape, fan_in, fan_out, key)
            _KEPT.keep(given, found)
        return found.copy()

    def _constant(self, shape: Shape) -> NDArray[np.float32]:
        values = np.array({"zeros": 0.0, "ones": 1.0}.get(self.name, self.value), np.float32)
        filters = values.ndim == 3 and len(shape) == 4
        return np.full(shape, values[:, None] if filters else values)

    def _drawn(
        self, shape: Shape, fan_in: FanIn, fan_out: int, key: random.Key
    ) -> NDArray[np.float32]:
        fans = (fan_in,) if isinstance(fan_in, int) else fan_in
        spread = np.array([self._spread(fan, fan_out) for fan in fans])
        spread = spread.reshape(-1, *(1,) * (len(shape) - 1))
        law = self.name.rpartition("_")[2]
        if law == "uniform":
            drawn = (2.0 * random.uniform(key, 0, shape) - 1.0) * spread
        elif self.name == "truncated_normal":
            drawn = _truncated(key, shape) * spread + self.mean
        else:
            drawn = random.normal(key, 0, shape) * spread + self.mean
        return np.asarray(drawn, np.float32)

    def _spread(self, fan_in: int, fan_out: int) -> float:
        if self.name == "fan_in_uniform":
            return float(self.value) / fan_in
        if self.name == "torch_uniform":
            return 1.0 / sqrt(fan_in)
        if self.name not in SCALED:
            return float(self.value)
        family, law = SCALED[self.name]
        variance = 2.0 / (fan_in + fan_out) if family == "glorot" else 1.0 / fan_in
        if family == "he":
            variance *= 2.0
        return sqrt(3.0 * variance) if law == "uniform" else sqrt(variance)


class _LastDrawn:
    """What was drawn last, of at most MOST_KEPT bytes, for all threads."""

    def __init__(self) -> None:
        self._found: OrderedDict[object, NDArray[np.float32]] = OrderedDict()
        self._bytes, self._lock = 0, threading.Lock()

    def of(self, given: object) -> NDArray[np.float32] | None:
        with self._lock:
            if given in self._found:
                self._found.move_to_end(given)
            return self._found.get(given)

    def keep(self, given: object, values: NDArray[np.float32]) -> None:
        with self._lock:
            if given in self._found or values.nbytes > MOST_KEPT:
                return
            self._found[given] = values
            self._bytes += values.nbytes
            while self._bytes > MOST_KEPT:
                _, oldest = self._found.popitem(last=False)
                self._bytes -= oldest.nbytes


_KEPT = _LastDrawn()
GLOROT_UNIFORM = Initializer("glorot_uniform")
TORCH_UNIFORM = Initializer("torch_uniform")
ZEROS = Initializer("zeros")
ONES = Initializer("ones")


def _truncated(key: random.Key, shape: Shape) -> NDArray[np.float64]:
    """Standard normal values, with values beyond two deviations drawn again."""
    drawn = random.normal(key, 0, shape)
    attempt = 1
    while (outside := np.abs(drawn) > 2.0).any():
        drawn[outside] = random.normal(key, attempt, shape)[outside]
        attempt += 1
    return drawn

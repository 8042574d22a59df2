"""Where the accuracy of a search's trials points to: a quadratic function fitted to all of them.

One trial is too noisy to be chosen by: accuracies of one recipe differ by more between seeds than
between recipes that are nearly as good. A function of few coefficients uses every trial.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
# Penalties of coefficients that are tried; points at which the function is looked at; how far from
# the middle these lie, of the way to the outermost trials.
PENALTIES, POINTS, REACH = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0), 100_000, 0.9
# Trials that are worse than the median by more than so many times what a quarter is worse by say
# where a training fails, which such a function cannot follow.
OUTLYING = 3.0
# Candidates differ by so much of the range of a key, in root mean square.
APART = 0.25


class Key:
    """One key of a search, from -1 to 1; a choice among several values in their order."""

    def __init__(self, values: Sequence[Any]) -> None:
        named = not all(isinstance(value, int | float) for value in values)
        self._names = sorted({str(v): v for v in values}.items()) if named else []
        self._log = not named and min(values) > 0
        numbers = [self._number(value) for value in values]
        self.low, self.high = min(numbers), max(numbers)

    def _number(self, value: Any) -> float:
        if self._names:
            return float([name for name, _ in self._names].index(str(value)))
        return math.log(value) if self._log else float(value)

    def real(self, places: Floats) -> Floats:
        """The places themselves, but those nearest to them that there are, of several values."""
        if not self._names:
            return places
        steps = self.high - self.low
        return np.round((places + 1) / 2 * steps) / steps * 2 - 1

    def place(self, value: Any) -> float:
        return 2 * (self._number(value) - self.low) / (self.high - self.low) - 1

    def value(self, place: float) -> Any:
        number = self.low + (place + 1) / 2 * (self.high - self.low)
        if self._names:
            return self._names[round(number)][1]
        return float(f"{math.exp(number) if self._log else number:.3g}")


def features(places: Floats) -> Floats:
    """1, every key, and every product of two; places: (points, keys)."""
    rows, columns = np.triu_indices(places.shape[1])
    ones = np.ones((len(places), 1))
    return np.hstack([ones, places, places[:, rows] * places[:, columns]])


def fit(places: Floats, found: Floats) -> tuple[Callable[[Floats], tuple[Floats, Floats]], str]:
    """The function, which gives values and their standard errors, and how good it is.

    Ridge regression; the penalty is that with the smallest error at trials that are left out.
    """
    x = features(places)
    best: tuple[float, Floats, Floats] | None = None
    for penalty in PENALTIES:
        weights = np.full(x.shape[1], penalty)
        weights[0] = 0.0
        inverse = np.linalg.inv(x.T @ x + np.diag(weights))
        coefficients = inverse @ x.T @ found
        # Of the hat matrix: what leaving a trial out does to its residual.
        kept = np.einsum("ij,jk,ik->i", x, inverse, x)
        left_out = (found - x @ coefficients) / (1 - kept)
        error = float(np.sqrt(np.mean(left_out**2)))
        if best is None or error < best[0]:
            best = error, coefficients, inverse
    assert best is not None
    error, coefficients, inverse = best

    def function(at: Floats) -> tuple[Floats, Floats]:
        given = features(at)
        spread = np.sqrt(np.einsum("ij,jk,ik->i", given, inverse, given))
        return given @ coefficients, error * spread

    explained = 1 - error**2 / max(float(np.var(found)), 1e-12)
    return function, f"error {error:.4f} at trials left out, {explained:.0%} explained"


def fitted(
    trials: Sequence[Mapping[str, Any]], count: int, costs: Sequence[str] = ()
) -> tuple[list[dict[str, Any]], str]:
    """The parameters of the most promising points, and a line on the function.

    trials: the complete ones, of equal keys. Promising: by the function less its standard error,
    so that nothing far from all trials is taken. ``costs``: keys on which the seconds depend; each
    combination of their values has as many points, so that the fastest can be chosen.
    """
    every = {key: [trial["params"][key] for trial in trials] for key in trials[0]["params"]}
    fixed = {key: values[0] for key, values in every.items() if len({*map(str, values)}) == 1}
    keys = {key: Key(values) for key, values in every.items() if key not in fixed}
    places = np.array([[k.place(t["params"][n]) for n, k in keys.items()] for t in trials])
    accuracies = np.array([float(trial["values"][0]) for trial in trials])
    quarter, middle = np.quantile(accuracies, [0.25, 0.5])
    sound = accuracies >= middle - OUTLYING * (middle - quarter)
    function, told = fit(places[sound], accuracies[sound])
    told = f"{sound.sum()} of them sound, {told}"
    points = np.random.default_rng(1).uniform(-REACH, REACH, (POINTS, len(keys)))
    points = np.column_stack([key.real(points[:, i]) for i, key in enumerate(keys.values())])
    dear = [name for name in keys if name in costs]
    given = sorted({tuple(trial["params"][name] for name in dear) for trial in trials})
    taken: list[tuple[float, Floats, dict[str, Any]]] = []
    for values in given:
        for name, value in zip(dear, values, strict=True):
            points[:, [*keys].index(name)] = keys[name].place(value)
        found, errors = function(points)
        near: list[Floats] = []
        for at in np.argsort(errors - found):
            gaps = [np.sqrt(np.mean((points[at] - other) ** 2)) / 2 for other in near]
            if all(gap > APART for gap in gaps):
                near.append(points[at].copy())
                chosen = dict(zip(dear, values, strict=True))
                taken.append((float(found[at] - errors[at]), near[-1], chosen))
            if len(near) == -(-count // len(given)):
                break
    taken = sorted(taken, key=lambda each: -each[0])[:count]
    best, error = function(taken[0][1][None])
    told += f"; there {best[0]:.4f} +- {error[0]:.4f}"
    return [
        fixed
        | {name: key.value(place) for (name, key), place in zip(keys.items(), at, strict=True)}
        | chosen
        for _, at, chosen in taken
    ], told

"""The values of a trial, drawn by Optuna from those before it; and which trial ends early."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from ...common.errors import DnnstackError
from ...common.random import key as stream
from ...configs.search import Dimension, Search

if TYPE_CHECKING:
    import optuna

INSTALL = "python3 -m pip install 'dnnstack[sweep]'"
_Direction = Literal["maximize", "minimize"]
_DIRECTIONS: dict[str, _Direction] = {
    "accuracy": "maximize",
    "loss": "minimize",
    "seconds": "minimize",
}
# Optuna wants a date; its samplers and pruners do not look at it.
_SOME_DAY = datetime(2000, 1, 1)


@dataclass(frozen=True)
class Ended:
    """A trial that has ended. ``values``: of the objectives, None if it was ended early."""

    params: Mapping[str, Any]
    values: tuple[float, ...] | None
    reports: tuple[tuple[int, float], ...] = ()


def need_optuna() -> None:
    """Raise DnnstackError if Optuna is not installed."""
    try:
        import optuna
    except ImportError:
        raise DnnstackError(f"dnnstack sweep needs Optuna; install it: {INSTALL}") from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)


def sample(search: Search, number: int, before: Sequence[Ended]) -> dict[str, Any]:
    """The values of trial ``number``, from 0: a function of the search, the number and ``before``.

    The sampler is seeded anew for every trial, so that it needs no state of its own.
    """
    if search.sampler == "grid":
        return search.grid()[number]
    import optuna

    seed = stream(search.seed, "sweep", str(number)).low
    kinds: Any = {"tpe": optuna.samplers.TPESampler, "random": optuna.samplers.RandomSampler}
    trial = _study(search, before, kinds[search.sampler](seed=seed)).ask()
    chosen: dict[str, Any] = {}
    for each in search.dimensions:
        if each.holds(chosen):
            chosen[each.key] = _suggested(trial, each)
    return chosen


def ends_early(
    search: Search, reports: Sequence[tuple[int, float]], before: Sequence[Ended]
) -> bool:
    """Whether a trial with these validations, (step, value), is worse than the median of others.

    Those that have ended before are compared at the same step (Golovin et al. 2017, "Vizier").
    """
    if search.prune is None or not reports:
        return False
    import optuna

    trials, validations = search.prune
    if len(reports) <= validations:
        return False
    pruner = optuna.pruners.MedianPruner(n_startup_trials=trials)
    trial = optuna.trial.create_trial(
        state=optuna.trial.TrialState.RUNNING,
        intermediate_values=dict(reports),
    )
    trial.datetime_start = _SOME_DAY
    return bool(pruner.prune(_study(search, before, None), trial))


def _study(
    search: Search, before: Sequence[Ended], sampler: optuna.samplers.BaseSampler | None
) -> optuna.Study:
    """A study in memory with the trials that have ended."""
    import optuna

    directions = [_DIRECTIONS[name] for name in search.objective]
    study = optuna.create_study(directions=directions, sampler=sampler)
    states = optuna.trial.TrialState
    for one in before:
        found = [each for each in search.dimensions if each.key in one.params]
        trial = optuna.trial.create_trial(
            state=states.PRUNED if one.values is None else states.COMPLETE,
            values=None if one.values is None else list(one.values),
            params={each.key: _inner(each, one.params[each.key]) for each in found},
            distributions={each.key: _distribution(each) for each in found},
            intermediate_values=dict(one.reports) if len(directions) == 1 else {},
        )
        study.add_trial(trial)
    return study


def _distribution(each: Dimension) -> optuna.distributions.BaseDistribution:
    import optuna

    kinds = optuna.distributions
    if each.values:
        # Values may be lists or mappings, which Optuna does not take; it gets their places.
        return kinds.CategoricalDistribution(range(len(each.values)))
    if each.whole:
        step = int(each.step) or 1
        return kinds.IntDistribution(int(each.low), int(each.high), each.log, step)
    return kinds.FloatDistribution(each.low, each.high, each.log, each.step or None)


def _suggested(trial: optuna.Trial, each: Dimension) -> Any:
    if each.values:
        return each.values[int(trial.suggest_categorical(each.key, range(len(each.values))))]
    if each.whole:
        step = int(each.step) or 1
        return trial.suggest_int(each.key, int(each.low), int(each.high), step=step, log=each.log)
    return trial.suggest_float(each.key, each.low, each.high, step=each.step or None, log=each.log)


def _inner(each: Dimension, value: Any) -> Any:
    if not each.values:
        return value
    texts = [repr(one) for one in each.values]
    return texts.index(repr(value))


def front(search: Search, trials: Sequence[tuple[int, tuple[float, ...]]]) -> list[int]:
    """The numbers of the best trials: of one objective the best first; of two those that none
    beats in both."""
    signs = [-1.0 if _DIRECTIONS[name] == "maximize" else 1.0 for name in search.objective]
    costs = {n: tuple(s * v for s, v in zip(signs, values, strict=True)) for n, values in trials}
    order = sorted(costs, key=lambda n: (costs[n], n))
    if len(signs) == 1:
        return order
    kept, least = [], math.inf
    for n in order:
        if costs[n][1] < least:
            kept.append(n)
            least = costs[n][1]
    return kept

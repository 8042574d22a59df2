"""The values of a trial, drawn by Optuna from those before it; and which trial ends early."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from ..common.errors import DnnstackError
from ..common.random import key as stream
from ..common.records import dataclass
from ..common.targets import LOWER_IS_BETTER
from ..configs.schema.search import OBJECTIVES
from ..configs.search import Dimension, Search

if TYPE_CHECKING:
    import optuna

INSTALL = "python3 -m pip install 'dnnstack[sweep]'"
_Direction = Literal["maximize", "minimize"]
_DIRECTIONS: dict[str, _Direction] = {
    name: "minimize" if name == "seconds" or name in LOWER_IS_BETTER else "maximize"
    for name in OBJECTIVES
}
ENOUGH = 10
"""Complete trials below which the importance of keys is left unsaid."""
# Where Optuna notes the generation of a trial: from version 4.3 on, and before.
_GENERATION = ("NSGAIISampler:generation", "nsga2:generation")
# Optuna wants a date; its samplers and pruners do not look at it.
_SOME_DAY = datetime(2000, 1, 1)


@dataclass(frozen=True)
class Drawn:
    """The values of a new trial. ``generation``: from 0, if the sampler is nsga2."""

    params: Mapping[str, Any]
    generation: int | None = None


@dataclass(frozen=True)
class Ended:
    """A trial that has ended. ``values``: of the objectives, None if it was ended early."""

    params: Mapping[str, Any]
    values: tuple[float, ...] | None
    reports: tuple[tuple[int, float], ...] = ()
    generation: int | None = None


def has_optuna() -> bool:
    """Whether Optuna is installed."""
    try:
        import optuna
    except ImportError:
        return False
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return True


def need_optuna(what: str = "searches") -> None:
    """Raise DnnstackError, that this needs Optuna, if it is not installed."""
    if not has_optuna():
        raise DnnstackError(f"{what} need Optuna; install it with {INSTALL}")


def sample(
    search: Search,
    number: int,
    before: Sequence[Ended],
    under_way: Sequence[Mapping[str, Any]] = (),
) -> Drawn:
    """The values of trial ``number``, from 0: a function of the search, the number and the rest.

    The sampler is seeded anew for every trial, so that it needs no state of its own but the
    generations of earlier trials. tpe keeps away from the values of trials that are ``under_way``,
    as if these were bad.
    """
    if search.sampler == "grid":
        return Drawn(search.grid()[number])
    seed = stream(search.seed, "sweep", str(number)).low
    sampler = _sampler(search, seed, bool(under_way))
    made = study(search, before, sampler, under_way)
    if search.sampler == "nsga2":
        _select_parents(sampler, made)
    trial = made.ask()
    chosen: dict[str, Any] = {}
    for each in search.dimensions:
        if each.holds(chosen):
            chosen[each.key] = _suggested(trial, each)
    return Drawn(chosen, _generation(made.get_trials(deepcopy=False)[trial.number]))


def _sampler(search: Search, seed: int, others: bool) -> optuna.samplers.BaseSampler:
    """That of the search, whose seed is this; ``others``: trials are under way."""
    from optuna import samplers

    if search.sampler == "random":
        return samplers.RandomSampler(seed=seed)
    if search.sampler == "nsga2":
        return samplers.NSGAIISampler(seed=seed, population_size=search.population)
    together = search.multivariate
    # In groups of keys, because not all trials have those with a condition.
    options: dict[str, Any] = {}
    if together is not None:
        options = {"multivariate": together, "group": together}
    with warnings.catch_warnings():
        # Some versions say that these arguments are new.
        warnings.simplefilter("ignore")
        return samplers.TPESampler(
            seed=seed, n_startup_trials=search.startup_trials, constant_liar=others, **options
        )


def _select_parents(sampler: Any, made: optuna.Study) -> None:
    """Select the parents of each generation, from the first one on.

    Optuna would do so from the last one back, one call within the other, too deep for many.
    """
    # Before version 4.3 it went forward itself.
    select = getattr(sampler, "get_parent_population", None)
    found = [_generation(trial) or 0 for trial in made.get_trials(deepcopy=False)]
    if select is not None:
        for generation in range(1, max(found, default=0) + 1):
            select(made, generation)


def _generation(trial: optuna.trial.FrozenTrial) -> int | None:
    found = (trial.system_attrs[key] for key in _GENERATION if key in trial.system_attrs)
    return next(found, None)


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
        state=optuna.trial.TrialState.RUNNING, intermediate_values=dict(reports)
    )
    trial.datetime_start = _SOME_DAY
    return bool(pruner.prune(study(search, before), trial))


def study(
    search: Search,
    before: Sequence[Ended],
    sampler: optuna.samplers.BaseSampler | None = None,
    under_way: Sequence[Mapping[str, Any]] = (),
    *,
    words: Callable[[Any], Any] | None = None,
) -> optuna.Study:
    """A study in memory with the trials that have ended, and those that are under way.

    words: a text or number for a value of a list, for people; without, Optuna has its place.
    """
    import optuna

    directions = [_DIRECTIONS[name] for name in search.objective]
    made = optuna.create_study(directions=directions, sampler=sampler)
    states = optuna.trial.TrialState
    for one in before:
        trial = optuna.trial.create_trial(
            state=states.PRUNED if one.values is None else states.COMPLETE,
            values=None if one.values is None else list(one.values),
            intermediate_values=dict(one.reports) if len(directions) == 1 else {},
            system_attrs=_noted(one, len(before)),
            **_chosen(search, one.params, words),
        )
        made.add_trial(trial)
    for params in under_way:
        made.add_trial(optuna.trial.create_trial(state=states.RUNNING, **_chosen(search, params)))
    return made


def _noted(one: Ended, most: int) -> dict[str, Any]:
    """What nsga2 has noted of a trial, one of ``most``."""
    # A journal from elsewhere could name any number, and parents are selected up to it.
    if one.generation is None or one.generation > most:
        return {}
    return dict.fromkeys(_GENERATION, one.generation)


def _chosen(
    search: Search, params: Mapping[str, Any], words: Callable[[Any], Any] | None = None
) -> dict[str, Any]:
    """The values of a trial, as Optuna has them."""
    found = [each for each in search.dimensions if each.key in params]
    kinds = {each.key: _distribution(each, words) for each in found}
    values = {each.key: params[each.key] for each in found}
    for each in found:
        if each.values:
            place = [repr(one) for one in each.values].index(repr(params[each.key]))
            values[each.key] = kinds[each.key].choices[place]
    return {"params": values, "distributions": kinds}


def _distribution(each: Dimension, words: Callable[[Any], Any] | None) -> Any:
    import optuna

    kinds = optuna.distributions
    if each.values:
        # Values may be lists or mappings, which Optuna does not take.
        texts = [words(value) for value in each.values] if words is not None else []
        if len({*texts}) < len(each.values):
            texts = [f"{place}: {text}" for place, text in enumerate(texts, 1)]
        return kinds.CategoricalDistribution(texts or range(len(each.values)))
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


def importances(search: Search, trials: Sequence[Ended]) -> dict[str, dict[str, float]]:
    """Of each objective, how much each key decides whether a trial is among the best tenth.

    The shares of an objective add up to 1. Source: Watanabe, Bansal and Hutter 2023, "PED-ANOVA".
    None from fewer than ``ENOUGH`` complete trials, or without Optuna; a key that older versions
    of Optuna leave out, because not all trials have it, is missing.
    """
    done = [one for one in trials if one.values is not None]
    if len(done) < ENOUGH or not has_optuna():
        return {}
    import optuna

    found = {}
    for place, name in enumerate(search.objective):
        # The evaluator takes less for better.
        sign = -1.0 if _DIRECTIONS[name] == "maximize" else 1.0
        costs = [Ended(one.params, (sign * (one.values or ())[place],)) for one in done]
        alone = study(replace(search, objective=("loss",)), costs)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            evaluator = optuna.importance.PedAnovaImportanceEvaluator()
            shares = optuna.importance.get_param_importances(alone, evaluator=evaluator)
        found[name] = {key: float(share) for key, share in shares.items()}
    return found


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

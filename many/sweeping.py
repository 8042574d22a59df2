"""A sweep: trials of a config with other values, each a run, until the budget is used up."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, nullcontext
from dataclasses import asdict, replace
from pathlib import Path

from ..common.errors import (
    BackendUnavailableError,
    CheckpointError,
    ConfigError,
    DatasetError,
    NonFiniteError,
    ShapeError,
)
from ..common.locks import Lock
from ..common.records import dataclass
from ..common.targets import LOWER_IS_BETTER, METRICS, Kind, named
from ..common.typed_json import from_json
from ..configs import RunConfig
from ..configs.sampler import OPTIONS
from ..configs.schema.search import PRUNE
from ..configs.search import Search, assignment
from ..training.listener import Listener, Passing, Summary
from ..training.records.formats.state import Metrics
from ..training.records.group import Group, read_group
from ..training.records.resume import Resume, open_member
from ..training.records.runs import GROUP
from .journal import Journal, State, Trial
from .outcome import Outcome, outcome
from .planned import open_group
from .sampling import ends_early, front, sample

BEST = "best.yaml"
_WAIT = 0.5


def open_sweep(config: RunConfig, search: Search, resume: str | None = None) -> Path:
    """The folder of a sweep; see ``open_group``. The budget may become another."""
    written = _written(search)

    def changes(path: Path, group: Group) -> list[str]:
        return [] if group.search == written else _differences(read_search(path), search)

    return open_group(config, "sweep", (), written, resume, changes)


def _written(search: Search) -> str:
    """What decides the trials, as text: all but the budget."""
    found = asdict(replace(search, trials=None, seconds=None, epochs=None))
    # A sweep that was begun by a version without these goes on.
    for option in OPTIONS:
        if found[option] == getattr(Search(()), option):
            del found[option]
    return json.dumps(found)


def _differences(then: Search, now: Search) -> list[str]:
    """A line for each part of the search that is another, without the budget."""
    lines = []
    for name in ("objective", "sampler", "seed", "prune", *OPTIONS):
        before, after = getattr(then, name), getattr(now, name)
        if name == "prune":
            pairs = (zip(PRUNE, each or (), strict=False) for each in (before, after))
            before, after = (tuple(f"{key} {value}" for key, value in each) for each in pairs)
        if before != after:
            key = f"search.sampler.{name}" if name in OPTIONS else f"search.{name}"
            lines.append(f"{key}: {_shown(before)} -> {_shown(after)}")
    known, given = ({each.key: each for each in one.dimensions} for one in (then, now))
    for key in dict.fromkeys((*known, *given)):
        if known.get(key) != given.get(key):
            how = "is new" if key not in known else "is gone" if key not in given else "is another"
            lines.append(f"search.keys.{key}: {how}")
    return lines or ["search.keys: their order"]


def _shown(value: object) -> str:
    if value in (None, ()):
        return "not set"
    if isinstance(value, bool):
        return str(value).lower()
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def read_search(path: Path) -> Search:
    """The search of the sweep in this folder, without its budget. Raises CheckpointError."""
    group = read_group(path)
    if group.kind != "sweep":
        raise CheckpointError(
            f"{path}: is a group of {group.kind}, no sweep; dnnstack runs --group {path.name} "
            "lists its runs"
        )
    try:
        found = from_json(group.search.encode(), Search)
        found.check()
        return found
    except ValueError as error:
        raise CheckpointError(f"{path / GROUP}: its search cannot be read: {error}") from None


def values_of(trial: Trial) -> list[str]:
    """The values of a trial, as ``--set`` takes them."""
    return [assignment(key, value) for key, value in trial.params.items()]


class Pruning(Passing):
    """Passes on what a training reports; after each validation, decides whether it ends early."""

    def __init__(self, heard: Listener, decide: Callable[[], bool]) -> None:
        super().__init__(heard)
        self._decide = decide
        self.pruned = False

    def validated(self, step: int, metrics: Metrics, best: bool, seconds: float) -> None:
        super().validated(step, metrics, best, seconds)
        self.pruned = self.pruned or self._decide()

    def stop_requested(self) -> bool:
        return self.pruned or super().stop_requested()


TrainTrial = Callable[[Trial, "Resume | None", Callable[[], bool]], "tuple[Summary, bool]"]


@dataclass(frozen=True)
class Sweep:
    """A sweep in its folder; ``stop_requested`` ends what waits for other processes."""

    path: Path
    search: Search
    stop_requested: Callable[[], bool] = lambda: False

    @property
    def journal(self) -> Journal:
        return Journal(self.path, self.search)

    def run(
        self,
        train: TrainTrial,
        notice: Callable[[str], None],
        begins: Callable[[Trial], object] = lambda trial: None,
        ended: Callable[[Trial], object] = lambda trial: None,
    ) -> Iterator[Trial]:
        """Take trials, one after the other, and train them, until the budget is used up.

        A trial that was begun by a process that is gone comes first, and goes on where it was; at
        the end the trials of other processes are waited for, should one be left. ``train`` gets
        what decides after each validation whether to end early, and returns how the training ended,
        and whether early for that reason. ``ended`` is told of each end while no other process
        can record one. Ends after a training that was interrupted, whose trial stays open. Raises
        DnnstackError.
        """
        while True:
            taken = self._take()
            if taken is None:
                if not self._one_is_left():
                    self.journal.clear()
                    return
                continue
            trial, held, before = taken
            with held:
                begins(trial)
                found = self._trained(trial, before, train, notice)
                if found is None:
                    return
                with self.journal.alone(self.stop_requested):
                    self.journal.check_own(trial, held)
                    self.journal.end(found)
                    ended(found)
            yield found

    def give_up(self, number: int, why: str) -> None:
        """Let a trial that no process has count as failed."""
        journal = self.journal
        with journal.alone(self.stop_requested):
            for trial in journal.read():
                if (trial.number, trial.state) == (number, None) and not journal.is_held(trial):
                    found = outcome(self.path / trial.name)
                    journal.end(self._result(trial, found, "failed", why))

    def _take(self) -> tuple[Trial, Lock, list[Trial]] | None:
        """An open trial that nobody has, else a new one; None if the budget is used up."""
        journal = self.journal
        with journal.alone(self.stop_requested):
            trials = journal.read()
            ended = [trial for trial in trials if trial.state is not None]
            under_way = [trial for trial in trials if trial.state is None]
            for trial in under_way:
                if (held := journal.claim(trial)) is not None:
                    return trial, held, ended
            if self._is_used_up(trials):
                return None
            number = trials[-1].number + 1 if trials else 0
            known = [trial.ended() for trial in _useful(ended)]
            drawn = sample(self.search, number, known, [trial.params for trial in under_way])
            trial = Trial(number, drawn.params, generation=drawn.generation)
            held = journal.claim(trial)
            if held is None:
                raise CheckpointError(f"{self.path}: {trial.name} is held by another process")
            journal.begin(trial)
            return trial, held, ended

    def _one_is_left(self) -> bool:
        """Wait for the trials of other processes; whether one of these is gone and left its trial.

        False once all have ended, and for a stop.
        """
        while not self.stop_requested():
            journal = self.journal
            under_way = [trial for trial in journal.read() if trial.state is None]
            if not all(journal.is_held(trial) for trial in under_way):
                return True
            if not under_way:
                return False
            time.sleep(_WAIT)
        return False

    def _is_used_up(self, trials: Sequence[Trial]) -> bool:
        search = self.search
        limits: list[tuple[float, float | None]] = [
            (len(trials), search.trials),
            (sum(trial.seconds for trial in trials), search.seconds),
            (sum(trial.epochs for trial in trials), search.epochs),
        ]
        if search.sampler == "grid":
            limits.append((len(trials), len(search.grid())))
        return any(limit is not None and used >= limit for used, limit in limits)

    def _trained(
        self, trial: Trial, ended: list[Trial], train: TrainTrial, notice: Callable[[str], None]
    ) -> Trial | None:
        """The trial as it ended; None if its training was interrupted."""
        run = self.path / trial.name
        before = [each.ended() for each in _useful(ended)]

        def worse(reports: Sequence[tuple[int, float]]) -> bool:
            return ends_early(self.search, reports, before)

        found = outcome(run)
        reports = self._reports(found)
        # A kill may have come between the decision and its record.
        if not found.finished and any(
            worse(reports[:count]) for count in range(1, len(reports) + 1)
        ):
            return self._result(trial, found, "pruned", "worse than the median")
        if found.finished:
            return self._complete(trial, found)
        pruned = False
        try:
            resumed = open_member(run, notice)
            with nullcontext() if resumed is None else closing(resumed):
                done, pruned = train(trial, resumed, lambda: worse(self._reports(outcome(run))))
        except (NonFiniteError, ConfigError, ShapeError) as error:
            return self._result(trial, outcome(run), "failed", str(error))
        except (BackendUnavailableError, DatasetError) as error:
            # Where nothing of the kind is searched, no other trial would fare better.
            data = isinstance(error, DatasetError)
            kinds = ("data.dataset", "data.root") if data else ("run.",)
            if not any(key == "data" or key.startswith(kinds) for key in trial.params):
                raise
            return self._result(trial, outcome(run), "failed", str(error))
        found = outcome(run)
        if done.state == "finished":
            return self._complete(trial, found)
        return self._result(trial, found, "pruned", "worse than the median") if pruned else None

    def _reports(self, found: Outcome) -> tuple[tuple[int, float], ...]:
        """What pruning compares: of each validation the step, and the first objective."""
        return tuple(found.reports(self.search.objective[0]))

    def _complete(self, trial: Trial, found: Outcome) -> Trial:
        if "seconds" in self.search.objective and found.goal is False:
            return self._result(trial, found, "pruned", "the goal was not reached")
        values = tuple(_best(found, name) for name in self.search.objective)
        if any(math.isnan(value) for value in values):
            why = "there was no validation"
            if found.validations:
                why = f"no validation has measured {' and '.join(self.search.objective)}"
            return self._result(trial, found, "failed", why)
        return replace(self._result(trial, found, "complete", ""), values=values)

    def _result(self, trial: Trial, found: Outcome, state: State, why: str) -> Trial:
        return replace(
            trial,
            state=state,
            reports=self._reports(found),
            seconds=found.seconds,
            epochs=found.epochs,
            why=why,
        )


def _best(found: Outcome, name: str) -> float:
    """The value of an objective; nan if no validation has it."""
    if name == "seconds":
        return found.seconds
    if name == found.measure:
        return math.nan if found.best_accuracy is None else found.best_accuracy
    pick = min if name in LOWER_IS_BETTER else max
    return pick((value for _, value in found.reports(name)), default=math.nan)


def check_objective(search: Search, kind: Kind) -> None:
    """Raise ConfigError for an objective that is not measured of targets of this kind."""
    known = (*METRICS[kind], "loss", "seconds")
    for name in search.objective:
        if name not in known:
            raise ConfigError(
                f"search.objective: '{name}' is not measured of {named(kind)}; use one of "
                f"{', '.join(known)}"
            )


def _useful(trials: Sequence[Trial]) -> list[Trial]:
    """Those that the sampler learns from."""
    return [trial for trial in trials if trial.state in ("complete", "pruned")]


def best_trials(search: Search, trials: Sequence[Trial]) -> list[Trial]:
    """The complete trials of one objective, the best first; of two, those that none beats."""
    numbered = {trial.number: trial for trial in trials if trial.values is not None}
    values = [(number, trial.values or ()) for number, trial in numbered.items()]
    return [numbered[number] for number in front(search, values)]

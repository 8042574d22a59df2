"""Reads the file of ``dnnstack sweep``: a config with a block ``search``."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, combinations, islice
from pathlib import Path
from typing import Any

from ..common.errors import ConfigError
from ..common.options import is_whole
from ..common.records import dataclass
from .block_reader import BlockReader
from .conditions import Known, read_conditions
from .dimension import MOST_STEPS, last_of
from .dimension import Dimension as Dimension
from .document import Node, Problem
from .find import packaged_searches
from .load import LoadedConfig, load_beside
from .overrides import exclude_each_other
from .plugins import NONE, Plugins
from .sampler import read_sampler
from .schema.search import OBJECTIVE, PRUNE, RANGE, SEARCH_SCHEMA, VALUES
from .validate import SEARCH, raise_problems

BLOCK = SEARCH
_REFUSED = {
    **dict.fromkeys(("name", "run.dir", "plugins"), "the sweep sets it itself"),
    **dict.fromkeys(
        ("run", "run.device", "run.threads"),
        "all trials share the device and its threads; search other keys of run",
    ),
}
"""Why a key cannot be searched."""
LARGEST_GRID = 100_000


@dataclass(frozen=True)
class Search:
    """What to search for, where, and how long; a budget of None has no limit.

    ``prune``: trials and validations before which none is ended early; None: never.
    ``startup_trials``, ``multivariate`` (None leaves it to Optuna) and ``population`` are options
    of samplers.
    """

    dimensions: tuple[Dimension, ...]
    objective: tuple[str, ...] = ("accuracy",)
    sampler: str = "tpe"
    seed: int = 1
    trials: int | None = None
    seconds: float | None = None
    epochs: float | None = None
    prune: tuple[int, int] | None = None
    startup_trials: int = 10
    multivariate: bool | None = None
    population: int = 50

    def grid(self) -> list[dict[str, Any]]:
        """The combinations of a grid, each once, the last key changing fastest.

        A key whose condition does not hold is no part of a combination.
        """
        return list(self._combinations({}, self.dimensions))

    def has_large_grid(self) -> bool:
        """Whether the grid has too many combinations to be listed."""
        beyond = islice(self._combinations({}, self.dimensions), LARGEST_GRID, None)
        return next(beyond, None) is not None

    def check(self) -> None:
        """Raise ValueError for what no file of a search says, but a record of one may."""
        for each in self.dimensions:
            each.check()
        keys, names = [each.key for each in self.dimensions], self.objective
        known = 0 < len(names) < 3 and len({*names} & {*OBJECTIVE["enum"]}) == len(names)
        if not known or len({*keys}) < len(keys):
            raise ValueError("a key appears twice, or its objective is none of a search")

    def needed(self, *dimensions: Dimension) -> dict[str, Any]:
        """Values of other keys with which these are set, in the order of the keys."""
        found: dict[str, Any] = {}
        wanted = [*dimensions]
        for each in reversed(self.dimensions):
            asked = [one.when[each.key] for one in wanted if each.key in one.when]
            if asked:
                common = [value for value in asked[0] if all(value in other for other in asked)]
                found[each.key] = (common or asked[0])[0]
                wanted.append(each)
        return dict(reversed(found.items()))

    def can_meet(self, *dimensions: Dimension) -> bool:
        """Whether a trial can have all of these keys."""
        needed = self.needed(*dimensions)
        above = [each for each in self.dimensions if each.key in needed]
        return all(each.holds(needed) for each in (*above, *dimensions))

    def _combinations(
        self, chosen: dict[str, Any], left: Sequence[Dimension]
    ) -> Iterator[dict[str, Any]]:
        """Those that begin with the chosen values."""
        if not left:
            yield chosen
        elif not left[0].holds(chosen):
            yield from self._combinations(chosen, left[1:])
        else:
            for value in left[0].grid():
                yield from self._combinations({**chosen, left[0].key: value}, left[1:])


def assignment(key: str, value: Any) -> str:
    """``key=value``, as ``--set`` takes it."""
    return f"{key}={json.dumps(value)}"


def load_search(
    reference: str | Path,
    overrides: Sequence[str] = (),
    plugins: Callable[[], Plugins] = lambda: NONE,
) -> tuple[LoadedConfig, Search]:
    """The config and its search.

    Raises ConfigError with every problem of the block, each with its place: unknown keys, empty
    ranges, and values that the config does not take.
    """

    def mistakes(node: Node) -> list[Problem]:
        alone = _Reader(BLOCK)
        alone.search(node, 0)
        return alone.problems

    loaded, node = load_beside(
        reference, BLOCK, overrides, plugins(), mistakes, packaged_searches()
    )
    if node is None:
        raise ConfigError(
            f"{loaded.title}: has no block 'search'; it names the keys to search, as in "
            "search: {keys: {optimizer.lr: {low: 0.001, high: 0.1, log: true}}, trials: 50}"
        )
    reader = _Reader(BLOCK)
    search = reader.search(node, loaded.config.seed)

    def fits(settings: Sequence[str]) -> None:
        load_beside(loaded, BLOCK, (*overrides, *settings), plugins())

    clean = not reader.problems
    if clean and search.sampler == "grid" and search.has_large_grid():
        text = f"make more than {LARGEST_GRID:,} combinations, too many for a grid"
        reader.note(node, "keys", f"{text}; use fewer values, or the sampler random")
    reader.try_values(node, search, fits)
    reader.try_pairs(node, search)
    # Beside accuracy or loss, the seconds may be those of the whole training.
    alone = search.objective == ("seconds",)
    if clean and alone and loaded.config.train.goal is None:
        reader.note(node, "objective", "seconds to the goal: the config has no train.goal")
    if clean and set(search.objective) - {"seconds"}:
        data = loaded.config.data
        if data.fold is None and not data.validation:
            reader.note(node, "objective", "is measured on validation, but data.validation is 0")
        ends = (e.ends() for e in search.dimensions if e.key == "data.validation")
        if data.fold is None and 0 in chain.from_iterable(ends):
            reader.note(node, "keys.data.validation", "0 leaves no validation to measure")
    by = loaded.config.checkpoint.best_by
    for name in search.objective if clean else ():
        if name not in ("accuracy", "r2", "loss", "seconds", by):
            reader.note(node, "objective", f"{name} needs checkpoint.best_by: {name}")
    if reader.problems:
        raise_problems(str(loaded.path), reader.problems)
    return loaded, search


class _Reader(BlockReader):
    """Turns the nodes of a block into a search, and notes every problem."""

    def note(self, node: Node, path: str, message: str) -> None:
        """A problem of the value at ``path`` in the block, which is ``node``."""
        for part in path.split(".", 1) if path.startswith("keys.") else [path]:
            node = node.child(part) or node
        self.at(node.key_place or node.place, path, message)

    def search(self, node: Node, seed: int) -> Search:
        """The search; problems are noted."""
        known = SEARCH_SCHEMA["properties"]
        given = self.mapping(node, "", known)
        if not isinstance(node.value, dict):
            return Search(())
        if "keys" not in given:
            self.at(node.place, "keys", "is missing: the keys to search, each with its values")
        draws = read_sampler(given.get("sampler"), self)
        sampler = draws.pop("sampler", "tpe")
        if not {"trials", "seconds", "epochs"} & given.keys() and sampler != "grid":
            self.at(node.place, "trials", "is missing: give a budget of trials, seconds or epochs")
        dimensions = tuple(self._dimensions(given.get("keys"), sampler))
        prune = self._prune(given.get("prune"))
        objective = self._objective(given.get("objective"))
        if prune is not None and len(objective) > 1:
            self.at(given["prune"].place, "prune", "compares trials by one objective, not by two")
        if prune is not None and objective == ("seconds",):
            self.at(given["prune"].place, "prune", "needs the objective accuracy or loss")
        plain = {key: each for key, each in known.items() if "type" in each and key != "keys"}
        numbers = {"seed": seed, **self.values(given, "", plain)}
        return Search(dimensions, objective, sampler, prune=prune, **numbers, **draws)

    def try_values(self, node: Node, search: Search, fits: Callable[[Sequence[str]], None]) -> None:
        """Note every value that the config does not take, alone or with what it depends on.

        Not of a key whose entry has a problem, or of one that depends on it: its values mean less.
        """
        keys = node.child("keys")
        wrong = tuple(f"{problem.path}." for problem in self.problems)
        sound: set[str] = set()
        for each in search.dimensions:
            if not sound.issuperset(each.when) or any(
                path.startswith(f"{BLOCK}.keys.{each.key}.") for path in wrong
            ):
                continue
            sound.add(each.key)
            own = (keys and keys.child(each.key)) or node
            before = [assignment(*pair) for pair in search.needed(each).items()]
            for value in each.ends():
                setting = assignment(each.key, value)
                try:
                    fits((*before, setting))
                except ConfigError as error:
                    reason = str(error).splitlines()[-1].strip()
                    reason = reason.removeprefix(f"--set {setting}: ").removeprefix(f"{each.key}: ")
                    end = "values" if each.values else "low" if value == each.ends()[0] else "high"
                    place = own.place_with(end)
                    place = place if place.rank else own.key_place or own.place
                    of_key = "unknown key" in reason or "is not a key" in reason
                    text = reason if of_key else f"{value!r} does not fit: {reason}"
                    if each.step and not each.whole and "whole number" in reason:
                        text = f"steps of {each.step:g} lead to {value!r}: {reason}"
                    elif not of_key and not each.values and "number" not in reason:
                        text = f"{text}; this key needs a list of values, not a range"
                    self.at(place, f"keys.{each.key}", text)
                    break

    def try_pairs(self, node: Node, search: Search) -> None:
        """Note keys of which a config has one alone, if a trial can have both."""
        for one, other in combinations(search.dimensions, 2):
            if exclude_each_other(one.key, other.key) and search.can_meet(one, other):
                text = f"cannot be set beside {one.key}, which is searched too"
                self.note(node, f"keys.{other.key}", f"{text}; search one of them, or use 'when'")

    def _dimensions(self, node: Node | None, sampler: str) -> Iterator[Dimension]:
        if node is None:
            return
        if not isinstance(node.value, dict) or not node.value:
            self.at(node.place, "keys", "expected a mapping of keys, as in --set, to their values")
            return
        known: dict[str, Dimension | None] = {}
        for key, value in node.value.items():
            path, found = f"keys.{key}", None
            if key in _REFUSED:
                self.at(value.key_place or value.place, path, _REFUSED[key])
            elif fields := self._fields(value, path, known, [*node.value], sampler):
                found = Dimension(key, **fields)
                yield found
            known[key] = found

    def _fields(
        self, node: Node, path: str, known: Known, names: Sequence[str], sampler: str
    ) -> dict[str, Any]:
        """What a key may be, as fields of a dimension; none if it is wrong."""
        if isinstance(node.value, list):
            return self._listed(node, path)
        if not isinstance(node.value, dict):
            expected = "expected a list of values or a range {low, high}"
            self.at(node.place, path, f"{expected} (got {node.described()})")
            return {}
        listed = "values" in node.value
        options = self.mapping(node, path, (VALUES if listed else RANGE)["properties"])
        when = read_conditions(options.get("when"), f"{path}.when", known, names, self.at)
        if listed:
            found = self._listed(options["values"], f"{path}.values")
        else:
            found = self._range(node, options, path, sampler)
        return found and {**found, "when": when}

    def _listed(self, node: Node, path: str) -> dict[str, Any]:
        if any(map(_is_range, [node, *node.items])):
            self.at(node.place, path, "write a range directly under its key, without a list")
        elif not node.items:
            text = f"expected a list of at least one value (got {node.described()})"
            self.at(node.place, path, text)
        else:
            return {"values": tuple(node.plain())}
        return {}

    def _range(
        self, node: Node, options: Mapping[str, Node], path: str, sampler: str
    ) -> dict[str, Any]:
        def wrong(name: str, text: str) -> None:
            self.at(options.get(name, node).place, f"{path}.{name}", text)

        before = len(self.problems)
        for name in {"low", "high"} - options.keys():
            wrong(name, "is missing; a range has low and high")
        own = {key: each for key, each in RANGE["properties"].items() if key != "when"}
        numbers = self.values(options, path, own)
        if len(self.problems) > before:
            return {}
        log = numbers.pop("log", False)
        low, high, step = numbers["low"], numbers["high"], numbers.get("step", 0)
        whole = all(is_whole(number) for number in numbers.values())
        if low >= high:
            place = node.place_with("low", "high")
            self.at(place, path, f"the range is empty: low {low} is not below high {high}")
        elif log and low <= 0:
            wrong("low", f"log: true needs a low above 0 (got {low})")
        elif log and step:
            wrong("step", "cannot be combined with log: true")
        elif step > high - low:
            wrong("step", f"a step of {step} is larger than the range, {low} to {high}")
        elif sampler == "grid" and (log or not (step or whole)):
            self.at(node.place, path, "a grid needs a list of values, or a range with a step")
        elif (step or sampler == "grid") and (high - low) / (step or 1) > MOST_STEPS:
            wrong("step", f"makes more than {MOST_STEPS} values")
        else:
            step = step or (1 if whole else 0)
            last = last_of(low, high, step) if step else high
            high = int(last) if whole else last
            return {"low": low, "high": high, "log": log, "step": step, "whole": whole}
        return {}

    def _objective(self, node: Node | None) -> tuple[str, ...]:
        if node is None:
            return ("accuracy",)
        items = node.items if isinstance(node.value, list) else [node]
        found = [self.value(item, "objective", OBJECTIVE) for item in items]
        names = tuple(word for word in found if word)
        if not items or len(items) > 2 or len(set(names)) < len(names):
            self.at(node.place, "objective", "expected one objective, or two different ones")
        return names or ("accuracy",)

    def _prune(self, node: Node | None) -> tuple[int, int] | None:
        if node is None or node.value is False:
            return None
        if node.value is True:
            return 5, 1
        numbers = self.values(self.mapping(node, "prune", PRUNE), "prune", PRUNE)
        return numbers.get("after_trials", 5), numbers.get("after_validations", 1)


def _is_range(node: Node) -> bool:
    return (
        isinstance(node.value, dict)
        and {"low", "high"} <= node.value.keys() <= RANGE["properties"].keys()
    )

"""A config's training step timed on this machine: phases, batch sizes, peers, an earlier time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, field
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from ..backends.base import Backend, Limits
from ..common.errors import ConfigError, UsageError, explaining
from ..common.files import read_regular
from ..common.printable import html_text, paragraph
from ..common.records import dataclass
from ..common.text import samples_of, versions_text
from ..common.typed_json import Count, Finite, Name, from_json
from ..configs import RunConfig
from ..training.assemble import check_declared, describe_data
from ..training.records.numerics import versions_of
from ..training.session import Session
from ..training.timing import Series, long_enough, made_up, series, with_batch
from .explain import Operation, operations_of, ratio, whole_step
from .summary import summarize
from .tables import table
from .units import bytes_text, time_text

_ROUNDS, _REPEATS = 9, 3
_STEP = "step"
# What else comes before backward.
_FORWARD = ("data", "loss")
_LONGEST = 1 << 20
Peers = Callable[[Session, Backend, Callable[[str], None]], dict[str, Series]]
"""Other programs' steps for a session, by name."""


@dataclass(frozen=True)
class Quartiles:
    """Seconds of a step over the rounds: the first quartile, the median, the third."""

    low: Finite
    median: Finite
    high: Finite

    @classmethod
    def of(cls, values: Sequence[float]) -> Quartiles:
        return cls(*map(float, np.percentile(values, (25, 50, 75))))


@dataclass(frozen=True)
class Timed:
    """Steps with a batch size.

    ``seconds``: of ``forward``, ``backward`` and ``update``, whose calls are timed one by one, and
    of the whole ``step``. ``peers``: of others' steps, and ``ratios``: the median over the rounds
    of theirs / ours. ``bytes``: planned, as ``summary`` has them; None if there are too many.
    """

    batch_size: Count
    seconds: dict[Name, Quartiles]
    samples_per_second: Finite
    bytes: Count | None
    fraction_of_limit: Finite | None
    peers: dict[Name, Quartiles] = field(default_factory=dict)
    ratios: dict[Name, Finite] = field(default_factory=dict)


@dataclass(frozen=True)
class Bench:
    """The steps of a config on this machine; ``samples``: what its samples are called."""

    config: str
    backend: Name
    samples: Name
    versions: dict[Name, Name]
    batches: tuple[Timed, ...]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def _repr_html_(self) -> str:
        return html_text(self.as_text())

    def as_text(self) -> str:
        """A row for each batch size, and one for each peer."""
        shown = ("forward", "backward", "update")
        head = ("batch", *shown, _STEP, "quartiles", f"{self.samples}/s", "memory", "of limit")
        rows: list[tuple[str, ...]] = [head]
        peers = [("batch", "beside", _STEP, "quartiles", "theirs / ours")]
        for each in self.batches:
            size, share = str(each.batch_size), each.fraction_of_limit
            parts = (time_text(each.seconds[name].median) for name in shown if name in each.seconds)
            needs = "" if each.bytes is None else bytes_text(each.bytes)
            rate = f"{each.samples_per_second:,.0f}"
            of_limit = "" if share is None else f"{share:.0%}"
            rows.append((size, *parts, *_cells(each.seconds[_STEP]), rate, needs, of_limit))
            peers += [
                (size, name, *_cells(found), f"{each.ratios[name]:.2f}")
                for name, found in each.peers.items()
            ]
        about = f"A training step of {self.config} on {self.backend}"
        beside = ["", *table(peers, "><>")] if len(peers) > 1 else []
        return paragraph([about, versions_text(self.versions), "", *table(rows, ">"), *beside])

    def slower(self, before: Bench) -> list[str]:
        """What takes longer than before by more than the noise of both: no quartiles overlap.

        Raises UsageError for an earlier measurement without a batch size in common, or of another
        backend.
        """
        known = {each.batch_size: each.seconds for each in before.batches}
        if self.backend != before.backend or not known.keys() & {
            b.batch_size for b in self.batches
        }:
            sizes = ", ".join(map(str, known))
            raise UsageError(
                f"the baseline was measured on {before.backend} with batch sizes {sizes}, which "
                "this measurement has not; measure the same"
            )
        return [
            f"batch {each.batch_size}, {name}: {time_text(then.median)} -> {time_text(now.median)}"
            for each in self.batches
            for name, now in each.seconds.items()
            if (then := known.get(each.batch_size, {}).get(name)) and now.low > then.high
        ]


def bench(
    title: str,
    config: RunConfig,
    file: Path,
    backend: Backend,
    sizes: Sequence[int] | None,
    peers: Peers | None,
    notice: Callable[[str], None],
) -> Bench:
    """Time the config's step with each batch size, by default its own, half and double of it.

    Raises ShapeError, ConfigError or DatasetError if the config cannot be trained so.
    """
    info, own = describe_data(config), config.data.batch_size
    if sizes is None:
        check_declared(config)
        most, parts = info.train_count or 2 * own, config.train.accumulate
        near = {own // 2, own, 2 * own}
        sizes = sorted(n for n in near if n == own or (parts <= n <= most and n % parts == 0))
    limits = backend.limits(config.run.precision)
    batches = tuple(
        _timed(with_batch(config, size), file, backend, limits, peers, notice) for size in sizes
    )
    versions = versions_of(backend)
    return Bench(title, backend.name, samples_of(info.shape), versions, batches)


def read_bench(path: Path) -> Bench:
    """What ``to_json`` gave, from a file. Raises ConfigError."""
    with explaining(path, "cannot be read", "name a file of bench", ConfigError):
        try:
            return from_json(read_regular(path, _LONGEST), Bench)
        except ValueError as error:
            raise ConfigError(f"{path}: holds no measurement of bench: {error}") from None


def _timed(
    config: RunConfig,
    file: Path,
    backend: Backend,
    limits: Limits,
    peers: Peers | None,
    notice: Callable[[str], None],
) -> Timed:
    with made_up(config, file, backend, notice) as session:
        executable, stretch = session.executable, session.stretches[0]
        sides = {_STEP: series(session)} | (
            {} if peers is None else peers(session, backend, notice)
        )
        counts = {name: long_enough(run) for name, run in sides.items()}
        spent, phases = defaultdict[str, list[float]](list), defaultdict[str, list[float]](list)
        for _ in range(_ROUNDS):
            # What disturbs the machine for a while disturbs all sides.
            for name, run in sides.items():
                spent[name].append(run(counts[name]))
            operations = [
                operations_of(plain, executable, executable.measure(plain.name, _REPEATS), limits)
                for plain in stretch.graphs()
            ]
            for name, seconds in _by_phase(
                [*operations[:1] * stretch.own, *operations[1:]]
            ).items():
                phases[name].append(seconds)
        step = Quartiles.of(ours := spent.pop(_STEP))
        least = whole_step(step.median, operations, stretch.own).limit_seconds
    summary = summarize(config, file)
    gpu = summary.gpu if backend.name == "cuda" else summary.training
    return Timed(
        config.data.batch_size,
        {name: Quartiles.of(found) for name, found in phases.items()} | {_STEP: step},
        config.data.batch_size / step.median,
        None if gpu is None else gpu.total,
        ratio(least, step.median),
        {name: Quartiles.of(found) for name, found in spent.items()},
        {name: median(np.array(found) / ours) for name, found in spent.items()},
    )


def _by_phase(sections: Iterable[Sequence[Operation]]) -> dict[str, float]:
    found = dict.fromkeys(("forward", "backward", "update"), 0.0)
    for operation in (operation for section in sections for operation in section):
        phase = operation.origin.phase
        found["forward" if phase in _FORWARD else phase] += operation.seconds or 0.0
    return found


def _cells(found: Quartiles) -> tuple[str, str]:
    return time_text(found.median), f"{time_text(found.low)} to {time_text(found.high)}"

"""A config's training step timed on this machine: phases, batch sizes, peers, an earlier time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from ..backends.base import Backend, Limits
from ..common.errors import UsageError
from ..common.printable import html_text, paragraph
from ..common.records import dataclass
from ..common.text import versions_text
from ..common.typed_json import Count, Finite, Name
from ..configs import LoadedConfig, RunConfig, placed
from ..training.assemble import check_declared, describe_data
from ..training.records.numerics import versions_of
from ..training.session import Session
from ..training.timing import Series, long_enough, made_up, series, with_batch
from .explain import operations_of, ratio, whole_step
from .summary import summarize
from .tables import table
from .units import bytes_text, time_text

_ROUNDS, _REPEATS = 9, 3
_PHASES = ("forward", "backward", "update")
Peers = Callable[[Session, Backend, Callable[[str], None]], dict[str, Series]]
"""Other programs' steps for a session, by name."""


@dataclass(frozen=True)
class Timed:
    """Steps with a batch size; ``seconds``: the quartiles over the rounds of several times.

    ``forward``, ``backward``, ``update``: of the calls one by one; ``step``: of the whole step;
    then those of peers, and in ``ratios`` the median over the rounds of theirs / ours. ``bytes``:
    planned, as ``summary`` has them; None if there are too many for a GPU.
    """

    batch_size: Count
    seconds: dict[Name, tuple[Finite, Finite, Finite]]
    ratios: dict[Name, Finite]
    bytes: Count | None
    fraction_of_limit: Finite | None

    def rows(self) -> list[list[str]]:
        """Cells of our step, and of each peer's."""
        found = []
        for name in ("step", *self.ratios):
            ours, (low, middle, high) = name == "step", self.seconds[name]
            parts = [time_text(self.seconds[phase][1]) if ours else "" for phase in _PHASES]
            span = f"{time_text(low)} to {time_text(high)}"
            needs = bytes_text(self.bytes) if ours and self.bytes else ""
            share, rate = self.fraction_of_limit if ours else None, self.batch_size / middle
            row = [str(self.batch_size), "dnnstack" if ours else name, *parts, time_text(middle)]
            row += [span, f"{rate:,.0f}", needs, "" if share is None else f"{share:.0%}"]
            found.append([*row, "" if ours else f"{self.ratios[name]:.2f}"])
        return found


@dataclass(frozen=True)
class Bench:
    """The steps of a config on this machine."""

    config: str
    backend: Name
    versions: dict[Name, Name]
    batches: tuple[Timed, ...]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def _repr_html_(self) -> str:
        return html_text(self.as_text())

    def as_text(self) -> str:
        """A row for each batch size and program."""
        about = f"A training step of {self.config} on {self.backend}"
        head = ["batch", "step of", *_PHASES, "whole step", "quartiles", "samples/s"]
        rows = [row for each in self.batches for row in each.rows()]
        compared = None if any(each.ratios for each in self.batches) else -1
        shown = [row[:compared] for row in ([*head, "memory", "of limit", "/ ours"], *rows)]
        return paragraph([about, versions_text(self.versions), "", *table(shown, "><>")])

    def slower(self, before: Bench) -> list[str]:
        """What of ours takes longer than before by more than the noise of both: no quartiles
        overlap.

        Raises UsageError for another config or backend, or other batch sizes alone.
        """
        known = {each.batch_size: each.seconds for each in before.batches}
        same = (self.config, self.backend) == (before.config, before.backend)
        if not same or not any(each.batch_size in known for each in self.batches):
            raise UsageError(
                f"the baseline is of {before.config} on {before.backend}, with batch sizes of "
                f"{', '.join(map(str, known))}; measure the same"
            )
        return [
            f"batch {each.batch_size}, {name}: {time_text(then[1])} -> {time_text(now[1])}"
            for each in self.batches
            for name, now in each.seconds.items()
            if (then := known.get(each.batch_size, {}).get(name)) and now[0] > then[2]
            if name not in each.ratios
        ]


def bench(
    loaded: LoadedConfig,
    backend: Backend,
    sizes: Sequence[int] | None,
    peers: Peers | None,
    notice: Callable[[str], None],
) -> Bench:
    """Time the config's step with each batch size, by default its own, half and double of it.

    Raises UsageError for sizes below 1, and what ``explain`` raises.
    """
    with placed(loaded):
        config, info = loaded.config, describe_data(loaded.config)
        if sizes is None:
            check_declared(config)
            own, parts = config.data.batch_size, config.train.accumulate
            most = max(own, info.train_count or 2 * own)
            sizes = [n for n in (own // 2, own, 2 * own) if 0 < n <= most and n % parts == 0]
        if min(sizes, default=0) < 1:
            raise UsageError("batch sizes: expected whole numbers of at least 1, such as 32,64,128")
        limits = backend.limits(config.run.precision)
        given = (loaded.path, backend, limits, peers, notice)
        found = tuple(_timed(with_batch(config, size), *given) for size in sizes)
    return Bench(loaded.title, backend.name, versions_of(backend), found)


def _timed(
    config: RunConfig,
    file: Path,
    backend: Backend,
    limits: Limits,
    peers: Peers | None,
    notice: Callable[[str], None],
) -> Timed:
    spent, size = defaultdict[str, list[float]](list), config.data.batch_size
    with made_up(config, file, backend, notice) as session:
        executable, stretch = session.executable, session.stretches[0]
        sides = {"step": series(session)}
        sides |= peers(session, backend, notice) if peers else {}
        counts = {name: long_enough(run) for name, run in sides.items()}
        for _ in range(_ROUNDS):
            phases = dict.fromkeys(_PHASES, 0.0)
            sections = [
                operations_of(plain, executable, executable.measure(plain.name, _REPEATS), limits)
                for plain in stretch.graphs()
            ]
            for operation in sum([*sections[:1] * stretch.own, *sections[1:]], ()):
                phase = operation.origin.phase
                phases[phase if phase in phases else "forward"] += operation.seconds or 0.0
            for name, seconds in phases.items():
                spent[name].append(seconds)
            # In turn, so that what disturbs the machine for a while disturbs all.
            for name, run in sides.items():
                spent[name].append(run(counts[name]))
        step = median(spent["step"])
        least = whole_step(step, sections, stretch.own).limit_seconds
    summary = summarize(config, file)
    needs = summary.gpu if backend.name == "cuda" else summary.training
    quartiles = {n: np.percentile(times, (25, 50, 75)).tolist() for n, times in spent.items()}
    del sides["step"]
    return Timed(
        size,
        {name: (low, middle, high) for name, (low, middle, high) in quartiles.items()},
        {name: median(np.divide(spent[name], spent["step"])) for name in sides},
        None if needs is None else needs.total,
        ratio(least, step),
    )

"""The library calls of each operation of a training step, with cost, time and limit."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from ..backends.base import Backend, BoundCall, Executable, Limits
from ..common.printable import html_text
from ..common.records import dataclass
from ..configs import RunConfig
from ..graph.graph import Graph, Op, Origin, Tensor
from ..graph.ops import Average, ParameterUpdate
from ..training.network import Network
from ..training.sections import Stretch
from ..training.share import ALONE, RankShare, shared_out
from ..training.timing import MOST, Agreed, long_enough, made_up, series
from .fusion import replacements, same_op
from .glance import glance
from .roofline import roofline
from .svg import written

if TYPE_CHECKING:
    from ..backends.cuda.cards import Card

_FEWEST = 3
_BUDGET = 1.0
_STRETCHES = 5
# How often limits are measured again that a step was faster than.
_TRIES = 2


@dataclass(frozen=True)
class Call:
    """A library call and the seconds that it took, None if not measured."""

    bound: BoundCall
    seconds: float | None

    def to_json(self) -> dict[str, Any]:
        shown = ("library", "function", "implementation", "arguments")
        return {**{key: getattr(self.bound, key) for key in shown}, "seconds": self.seconds}


@dataclass(frozen=True)
class Operation:
    """An operation as it is run, the plain operations that it replaces, and its library calls.

    ``replaced`` has one operation if a rewrite only moved it, and none if it was not rewritten.
    ``halved``: the tensors that are kept in 16 bits. ``calls`` is empty if nothing has to be done,
    as for a view, or if another operation's call does it, as a convolution's may that has a
    max-pool in its kernel. ``candidates``: calls among which timing chooses on the device, where
    nothing has been timed.
    """

    op: Op
    replaced: tuple[Op, ...]
    calls: tuple[Call, ...]
    limits: Limits | None
    halved: frozenset[Tensor] = frozenset()
    candidates: tuple[str, ...] = ()

    @property
    def origin(self) -> Origin:
        return self.op.origin[0]

    @property
    def title(self) -> str:
        layers = ", ".join(dict.fromkeys(origin.layer for origin in self.op.origin))
        return f"{self.op.name} of {layers}, {self.origin.phase}"

    @property
    def seconds(self) -> float | None:
        return sum_known(call.seconds for call in self.calls)

    @property
    def bytes(self) -> int:
        """The least bytes moved, as the tensors are kept; updates work on full numbers besides."""
        whole = self.op.bytes()
        if isinstance(self.op, (ParameterUpdate, Average)):
            return whole
        tensors = (*self.op.reads(), *self.op.writes())
        return whole - min(sum(t.nbytes // 2 for t in tensors if t in self.halved), whole // 2)

    @property
    def limit_seconds(self) -> float | None:
        """The least time that this machine needs: max(flops / peak, bytes / bandwidth).

        The roofline of Williams, Waterman and Patterson (CACM 52, 2009).
        """
        if self.limits is None or not self.calls:
            return None
        return max(
            self.op.flops() / (self.limits.gflops * 1e9),
            self.bytes / (self.limits.gbytes * 1e9),
        )

    def to_json(self) -> dict[str, Any]:
        op = self.op
        tensors = {"inputs": op.reads(), "outputs": op.writes()}
        return {
            "op": op.name,
            "phase": self.origin.phase,
            "origins": [vars(origin) for origin in op.origin],
            "replaces": [
                {"op": source.name, "layer": source.origin[0].layer} for source in self.replaced
            ],
            **{
                key: [{"name": t.name, "shape": t.shape, "dtype": t.dtype} for t in found]
                for key, found in tensors.items()
            },
            "flops": op.flops(),
            "bytes": self.bytes,
            "seconds": self.seconds,
            "limit_seconds": self.limit_seconds,
            "fraction_of_limit": ratio(self.limit_seconds, self.seconds),
            "calls": [call.to_json() for call in self.calls],
            **({"candidates": self.candidates} if self.candidates else {}),
        }


@dataclass(frozen=True)
class Total:
    """Sums over operations."""

    operations: int
    calls: int
    flops: int
    bytes: int
    seconds: float | None
    limit_seconds: float | None


@dataclass(frozen=True)
class WholeStep:
    """Seconds of a step as training runs it, of its calls one by one, and of the limit.

    ``gaps`` is the time between the calls; below 0 if calls overlap, or take longer alone.
    """

    seconds: float
    calls_seconds: float
    limit_seconds: float

    @property
    def gaps(self) -> float:
        return self.seconds - self.calls_seconds


@dataclass(frozen=True)
class Foreseen:
    """The card that a step was foreseen for, without a GPU; ``needed``: bytes, at most.

    ``timed``: the packaged config whose choices, timed on such a card, were taken, if any were.
    """

    card: Card
    precision: str
    limits: Limits
    needed: int
    timed: str | None

    def to_json(self) -> dict[str, Any]:
        return {**vars(self), "limits": self.limits.to_json(), "card": self.card.name}


@dataclass(frozen=True)
class Explanation:
    """A training step: its graph before rewrites, and every operation that runs, in order.

    ``foreseen``: of one that was not compiled for a device that is there.
    """

    config: str
    backend: str
    versions: Mapping[str, str]
    batch_size: int
    network: Network
    plain: Graph
    operations: tuple[Operation, ...]
    limits: Limits | None
    whole: WholeStep | None
    foreseen: Foreseen | None = None

    def by_layer(self) -> dict[str, list[Operation]]:
        """Operations by the layer that first needs them, layers in the order of forward."""
        order = dict.fromkeys(op.origin[0].layer for op in self.plain.ops)
        layers: dict[str, list[Operation]] = {layer: [] for layer in order}
        for operation in self.operations:
            layers[operation.origin.layer].append(operation)
        return {layer: members for layer, members in layers.items() if members}

    def totals(self) -> dict[str, Total]:
        """The total of each phase, in the order of their first operation, and of the ``step``."""
        phases = dict.fromkeys(operation.origin.phase for operation in self.operations)
        parts: dict[str, list[Operation]] = {
            phase: [o for o in self.operations if o.origin.phase == phase] for phase in phases
        }
        return {name: _total(part) for name, part in {**parts, "step": self.operations}.items()}

    def roofline(self) -> str:
        """The operations of a step that was measured, below the machine's limits, as SVG."""
        points = [(o.title, o.op.flops(), o.bytes, o.seconds or 0.0) for o in self.operations]
        title = f"A training step of {self.config}, batch {self.batch_size}, {self.backend}"
        return written(roofline(points, self.limits or Limits(1.0, 1.0), title))

    def to_dict(self) -> dict[str, Any]:
        """What ``dnnstack explain --json`` prints."""
        return dict(json.loads(json.dumps(self.to_json())))

    def _repr_html_(self) -> str:
        from .explain_text import as_text

        return html_text(as_text(self))

    def to_json(self) -> dict[str, Any]:
        """Layers in the order of forward, and totals by phase; unmeasured seconds are None."""
        limits, step, about = self.limits, self.whole, self.foreseen
        return {
            "config": self.config,
            "backend": self.backend,
            "versions": dict(self.versions),
            "batch_size": self.batch_size,
            "at_a_glance": glance(self),
            **({} if about is None else {"foreseen": about.to_json()}),
            "limits": limits and limits.to_json(),
            "layers": [
                {"name": layer, "operations": [member.to_json() for member in members]}
                for layer, members in self.by_layer().items()
            ],
            "totals": {name: _with_share(part) for name, part in self.totals().items()},
            "whole_step": step and _with_share(step, gap_seconds=step.gaps),
        }


def explain(
    config: RunConfig,
    file: Path,
    backend: Backend,
    measured: bool,
    notice: Callable[[str], None],
    share: RankShare = ALONE,
    agreed: Agreed = lambda number: number,
) -> Explanation:
    """Compile the config's training step as training would, without its data.

    measured: time every call on random pictures, and measure the machine's limits. ``share``: what
    this process computes, if several explain together; ``agreed(number)`` is then the first one's
    number, so that all do the same. Raises ShapeError, ConfigError or DatasetError if the config
    cannot be trained.
    """
    config, _ = shared_out(config, share.ranks, None)
    calls = config.run.calls
    with made_up(config, file, backend, notice, share) as session:
        executable = session.executable
        # Parameters that are frozen only later are trained in the first stretch.
        stretch = session.stretches[0]
        seconds: dict[str, list[float]] = {}
        limits, step = None, None
        if measured:
            run = series(session)
            seconds = _measure(executable, stretch, agreed)
            count = long_enough(run, agreed)
            step = median(run(count) for _ in range(_STRETCHES))
            limits = backend.limits(config.run.precision)

        def operations() -> list[tuple[Operation, ...]]:
            return [
                operations_of(plain, executable, seconds.get(plain.name), limits)
                for plain in stretch.graphs()
            ]

        sections = operations()
        whole = None if step is None else whole_step(step, sections, stretch.own)
        tries = _TRIES
        while limits and whole and whole.limit_seconds > whole.seconds and tries:
            # While it was measured, other programs may have run.
            again, tries = backend.limits(config.run.precision), tries - 1
            limits = Limits(max(limits.gflops, again.gflops), max(limits.gbytes, again.gbytes))
            sections = operations()
            whole = whole_step(whole.seconds, sections, stretch.own)
        return Explanation(
            config=str(file),
            backend=backend.name,
            versions={**backend.versions(), **({"calls": calls} if calls else {})},
            batch_size=session.plan.batch_size,
            network=session.network,
            plain=stretch.train,
            operations=tuple(chain.from_iterable(sections)),
            limits=limits,
            whole=whole,
        )


def ratio(limit: float | None, seconds: float | None) -> float | None:
    """The share of the limit that is reached; None where there is none.

    What takes less time than the limit has found its data in a cache, or the limit was measured
    while other programs ran: then there is no share either.
    """
    return None if limit is None or not seconds or limit > seconds else limit / seconds


def _with_share(part: Total | WholeStep, **more: float) -> dict[str, Any]:
    share = ratio(part.limit_seconds, part.seconds)
    return {**vars(part), **more, "fraction_of_limit": share}


def calls_of(executable: Executable, section: str) -> list[tuple[Op, BoundCall]]:
    """The calls of a section, each with the operation of its graph that it is for."""
    ops = executable.graphs[section].ops
    listed = set(ops)
    return [
        # A call for several layers has an operation with all their names.
        (call.op if call.op in listed else same_op(call.op, ops) or call.op, call)
        for call in executable.calls(section)
    ]


def operations_of(
    plain: Graph, executable: Executable, seconds: Sequence[float] | None, limits: Limits | None
) -> tuple[Operation, ...]:
    calls = calls_of(executable, plain.name)
    times: Sequence[float | None] = seconds if seconds is not None else [None] * len(calls)
    by_op: dict[Op, list[Call]] = {}
    for (op, bound), time in zip(calls, times, strict=True):
        by_op.setdefault(op, []).append(Call(bound, time))
    graph = executable.graphs[plain.name]
    replaced, halved = replacements(plain, graph), executable.halved(plain.name)
    return tuple(
        Operation(op, replaced.get(op, ()), tuple(by_op.get(op, ())), limits, halved)
        for op in graph.ops
    )


def _measure(executable: Executable, stretch: Stretch, agreed: Agreed) -> dict[str, list[float]]:
    """Median seconds of every call by section, over runs of about a second in all."""
    found = {}
    for name in (graph.name for graph in stretch.graphs()):
        found[name] = executable.measure(name, _FEWEST)
        repeats = agreed(min(MOST, int(_BUDGET / max(sum(found[name]), 1e-6))))
        if repeats > _FEWEST:
            found[name] = executable.measure(name, repeats)
    return found


def whole_step(seconds: float, sections: Sequence[Sequence[Operation]], parts: int) -> WholeStep:
    """The sums over a step, whose first section runs once for each part of the batch."""
    totals = [_total(section) for section in sections]
    totals += totals[:1] * (parts - 1)
    calls = sum(total.seconds or 0.0 for total in totals)
    return WholeStep(seconds, calls, sum(total.limit_seconds or 0.0 for total in totals))


def _total(operations: Sequence[Operation]) -> Total:
    return Total(
        operations=len(operations),
        calls=sum(len(operation.calls) for operation in operations),
        flops=sum(operation.op.flops() for operation in operations),
        bytes=sum(operation.bytes for operation in operations),
        seconds=sum_known(operation.seconds for operation in operations),
        limit_seconds=sum_known(operation.limit_seconds for operation in operations),
    )


def sum_known(values: Iterable[float | None]) -> float | None:
    """The sum of the values that are known; None if none is."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None

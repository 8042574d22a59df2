"""Compiling for a card that need not be there: the calls of a step, and what timing would decide.

Everything is bound in a dry run, so nothing is allocated, launched or timed. Where a table of
choices ships for the card and the network, these are taken. Needs no GPU, no CuPy and no frontend.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from ...common.errors import LibraryError, ShapeError
from ...graph.graph import Tensor
from ...graph.ops import Conv2d, Conv2dBackwardData, Conv2dBackwardFilter
from ...graph.rewrites import rewritten
from ..base import Array, BoundCall, Limits, Options, Precision
from ..compiling import Choices, Sections
from ..tuning import Tuning, fingerprint, training_sections
from .backend import DEFAULT_CHOICES, CudaBackend
from .binding.bind import Arithmetic, Binder
from .binding.choices import AtEnd
from .binding.ending import BATCH, TAIL
from .binding.feeds import Feeds
from .binding.layouts import Geometry, add_shared
from .binding.store import Store
from .cards import Card
from .dry_run import STREAM, Cuda, Silent
from .executable import CudaExecutable
from .libraries.conv_plans import WORKSPACE_LIMIT, ConvSpec
from .memory_plan import check_fits, choose_residency
from .tuned import Shipped, of_card
from .tuner import LAYOUTS

UNDECIDED = "engine decided by timing on the card"
_ROLES = {Conv2d: "forward", Conv2dBackwardData: "data", Conv2dBackwardFilter: "filter"}
_ENDINGS = ("", BATCH, TAIL, f"{TAIL},{BATCH}")
# What a search passes over, too: choices that do not go together.
_UNFIT = (LibraryError, ShapeError, ValueError)


class _AtMost(int):
    def __str__(self) -> str:
        return f"at most {int(self)}"


class _Convolution(Silent):
    """Stands for ConvGraph; shows what the graph says, and the plan of the choices."""

    workspace_bytes = _AtMost(WORKSPACE_LIMIT)

    def __init__(self, _: object, *given: Any, **how: Any) -> None:
        kind, operands, window = given
        self.shown = ConvSpec(kind, tuple(operands.items()), window, **how).shown()

    def plans(self) -> int:
        return 1

    def name(self, index: int) -> str:
        return UNDECIDED

    def choice(self, index: int) -> str:
        return str(index)

    def choose(self, index: int | None = None, like: str = "") -> None:
        self.plan_name = like or (UNDECIDED if index is None else f"plan {index}")
        self.plan = index


class DryExecutable(CudaExecutable):
    """Sections bound to a card in a dry run: their calls can be read, and nothing runs."""

    def __init__(
        self,
        graphs: Sections,
        tuning: Tuning,
        card: Card,
        arithmetic: Arithmetic,
        streamed: bool,
        plans: Mapping[str, str],
    ) -> None:
        """``plans``: the names of cuDNN's, by the names of choices."""
        self._plans = plans
        self.graphs, self.tuning, self.notices = graphs, tuning, ()
        self._store = Store(Cuda())
        if streamed:
            self._store.feeds = Feeds(graphs, lambda step: 0, self._store.cuda)
        convolution: Any = _Convolution
        stream = replace(
            STREAM,
            convolution=convolution,
            overlaps=lambda: card.capability >= (9, 0),
            processors=card.processors,
        )
        add_shared(self._store, graphs, Geometry(tuning.choices, arithmetic.dtype))
        streams = [stream] * int(tuning.choices.get("streams", "1"))
        given = (self._store, streams, arithmetic, tuning.choices, lambda: stream)
        self._sections = {name: Binder(graph, *given) for name, graph in graphs.items()}
        for binder in self._sections.values():
            binder.bind()

    def calls(self, section: str) -> list[BoundCall]:
        named = self._sections[section].choice
        return [
            replace(call, implementation=self._plans[key])
            if (key := named(call.op, _ROLES.get(type(call.op), ""))) in self._plans
            and call.function == "cudnnBackendExecute"
            else call
            for call in super().calls(section)
        ]

    def write(self, tensor: Tensor, array: Array) -> None:
        """Nothing: no data are kept."""

    def close(self) -> None:
        """Nothing: no memory is held."""


class DryBackend(CudaBackend):
    """A card, by what its maker states; ``compile`` gives a DryExecutable.

    ``made``: what was compiled last; ``mark``: that of its tables of choices; ``table``: the one
    that ships, or the defaults, of no config; ``needed``: the bytes that it takes at most.
    """

    made: DryExecutable
    mark: str
    table: Shipped
    needed: int

    def __init__(self, card: Card) -> None:
        self.device: Any = card

    def compile(self, sections: Sections, options: Options | None = None) -> DryExecutable:
        options = options or Options()
        precision = self.precision(options.precision)
        rewrites = self.rewrites if options.fusion else {}
        graphs = {name: rewritten(graph, rewrites) for name, graph in sections.items()}
        free = int(self.device.gigabytes * 1e9)
        streamed, memory = choose_residency(graphs, precision, options, free)
        check_fits(memory, free, self.device.name)
        given = training_sections(graphs), options.deterministic
        self.mark = fingerprint(*given, numbers=False)
        ships = options.tune and options.tune_seconds is None
        found = of_card(self.device.name, self.mark, precision) if ships else None
        default = Shipped("", precision, self.mark, DEFAULT_CHOICES[precision])
        self.table = found.tables[0] if found else default
        self._environment = found.environment if found else {"GPU": self.device.name}
        self._how = Arithmetic.of(precision, options.fusion, options.deterministic), streamed
        self._precision = precision
        self.needed = memory.total
        self.made = self._bound(graphs, self.table.choices)
        return self.made

    def _bound(self, graphs: Sections, choices: Choices) -> DryExecutable:
        tuning = Tuning(self.name, choices=choices)
        return DryExecutable(graphs, tuning, self.device, *self._how, self.table.plans)

    def others(self) -> Iterator[DryExecutable]:
        """What was compiled, with the choices that timing may take: each way of each in turn."""
        trained, made = training_sections(self.made.graphs), list[DryExecutable]()
        for layout in LAYOUTS[self._precision]:
            made.append(self._bound(trained, layout))
        yield from made
        ways = [way for binder in made[0].binders() for way in _ways(binder)]
        changes = [{"ending": ending} for ending in _ENDINGS]
        changes += [{name: text, "ending": _ENDINGS[-1]} for name, text in ways if _is_end(text)]
        for changed in (*changes, *_in_turn(ways)):
            with suppress(*_UNFIT):
                yield self._bound(trained, {**LAYOUTS[self._precision][0], **changed})

    def limits(self, precision: Precision = "auto") -> Limits:
        card: Card = self.device
        return Limits(card.tflops[self.precision(precision)] * 1e3, card.bandwidth)

    def versions(self) -> Mapping[str, str]:
        """Those that the choices were timed with, where a table of them ships."""
        return self._environment


def _ways(binder: Binder) -> Iterator[tuple[str, str]]:
    """Of every choice, by its name, one of each kernel that timing may take."""
    yield from ((f"{name}/gemm", "0") for name in binder.products)
    yield from ((name, mark) for name, marks in binder.either.items() for mark in marks)
    makers = [(name, *each) for name, all_ in binder.variants.items() for each in all_]
    makers += [(name, AtEnd.mark, make) for name, make in binder.at_once.items()]
    for name, mark, make in makers:
        with suppress(*_UNFIT):
            candidates = make()
            every = range(candidates.plans())
            # By the kernel: the last of each.
            kernels = {candidates.name(index).partition(" ")[0]: index for index in every}
            yield from ((name, f"{mark}{candidates.choice(at)}") for at in kernels.values())


def _in_turn(ways: Sequence[tuple[str, str]]) -> Iterator[dict[str, str]]:
    """Each way once, of all choices at the same time; not those of which a step has only one."""
    by_name = defaultdict[str, list[str]](list)
    for name, text in ways:
        if not _is_end(text):
            by_name[name].append(text)
    for turn in range(max(map(len, by_name.values()), default=0)):
        yield {name: texts[turn % len(texts)] for name, texts in by_name.items()}


def _is_end(text: str) -> bool:
    return text.startswith(AtEnd.mark)

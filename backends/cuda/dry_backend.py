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
from ..base import Array, BoundCall, Limits, Options, Precision
from ..compiling import Choices, Sections
from ..tuning import Tuning, fingerprint, training_sections
from . import tuned
from .backend import CudaBackend, Plan
from .binding.bind import Arithmetic, Binder
from .binding.choices import AtEnd
from .binding.ending import BATCH, TAIL
from .binding.feeds import Feeds
from .binding.launches import Stream
from .binding.layouts import Geometry, add_shared
from .binding.pictures import Pictures
from .binding.store import Store
from .cards import Card
from .dry_run import STREAM, Cuda, Silent
from .executable import CudaExecutable
from .libraries.conv_plans import ConvSpec
from .tuner import LAYOUTS

ENGINE, UNDECIDED = "cudnnBackendExecute", "engine decided by timing on the card"
_ROLES = {Conv2d: "forward", Conv2dBackwardData: "data", Conv2dBackwardFilter: "filter"}
_ENDINGS = ("", BATCH, TAIL, f"{TAIL},{BATCH}")
PRECISIONS: tuple[Precision, ...] = ("fp32", "tf32", "bf16")
# What a search passes over, too: choices that do not go together.
_UNFIT = (LibraryError, ShapeError, ValueError)


class _Convolution(Silent):
    """Stands for ConvGraph; shows what the graph says, and the plan of the choices."""

    def __init__(self, _: object, *given: Any, **how: Any) -> None:
        kind, operands, window = given
        self.shown = ConvSpec(kind, tuple(operands.items()), window, **how).shown()

    def choose(self, index: int | None = None, like: str = "") -> None:
        self.plan_name = like or (UNDECIDED if index is None else f"plan {index}")


class DryExecutable(CudaExecutable):
    """Sections bound to a card in a dry run: their calls can be read, and nothing runs.

    ``plans``: the names of cuDNN's that are known, by the names of choices.
    """

    plans: Mapping[str, str] = {}

    def __init__(
        self,
        graphs: Sections,
        tuning: Tuning,
        streams: Sequence[Stream],
        arithmetic: Arithmetic,
        notices: Sequence[str] = (),
        *how: Any,
    ) -> None:
        self.graphs, self.tuning, self.notices, self._streams = graphs, tuning, notices, streams
        self._arithmetic, self._how, self._store = arithmetic, how, Store(Cuda())
        if how[1]:
            self._store.feeds = Feeds(graphs, lambda step: 0, self._store.cuda)
        add_shared(self._store, graphs, Geometry(tuning.choices, arithmetic.dtype))
        given = (self._store, streams, arithmetic, tuning.choices, lambda: streams[0])
        self._sections = {name: Binder(graph, *given) for name, graph in graphs.items()}
        for binder in self._sections.values():
            binder.bind()

    def bound(self, graphs: Sections, choices: Choices) -> DryExecutable:
        """Sections with other choices."""
        streams = [self._streams[0]] * int(choices.get("streams", "1"))
        tuning = Tuning("cuda", choices=choices)
        return DryExecutable(graphs, tuning, streams, self._arithmetic, (), *self._how)

    def others(self, precision: Precision) -> Iterator[DryExecutable]:
        """Those that train, with the choices that timing may take: each way of each in turn."""
        trained, layouts = training_sections(self.graphs), LAYOUTS[precision]
        if self._arithmetic.lecture:
            return
        every = [self.bound(trained, layout) for layout in layouts]
        yield from every
        changes = [{"ending": ending} for ending in _ENDINGS]
        by_name = defaultdict[str, list[str]](list)
        for name, text in (way for binder in every[0].binders() for way in _ways(binder)):
            if text.startswith(AtEnd.mark):
                # A step has one.
                changes.append({name: text, "ending": _ENDINGS[-1]})
            else:
                by_name[name].append(text)
        for turn in range(max(map(len, by_name.values()), default=0)):
            changes.append({name: texts[turn % len(texts)] for name, texts in by_name.items()})
        for changed in changes:
            with suppress(*_UNFIT):
                yield self.bound(trained, {**layouts[0], **changed})

    def calls(self, section: str) -> list[BoundCall]:
        named = self._sections[section].choice

        def known(call: BoundCall) -> BoundCall:
            key = named(call.op, _ROLES.get(type(call.op), ""))
            shown = {name: text for name, text in call.arguments.items() if name != "workspace"}
            plan = self.plans.get(key, call.implementation)
            return replace(call, implementation=plan, arguments=shown)

        return [known(call) if call.function == ENGINE else call for call in super().calls(section)]

    def write(self, tensor: Tensor, array: Array) -> None:
        """Nothing: no data are kept."""

    def close(self) -> None:
        """Nothing: no memory is held."""


class DryBackend(CudaBackend):
    """A card, by what its maker states; ``compile`` gives a DryExecutable, which is ``made`` then.

    ``mark``: of the tables of choices for that; ``shipped``: the file of those that ship, with the
    one that was taken; ``chosen``: the precision.
    """

    executable = DryExecutable
    made: DryExecutable
    mark = ""
    shipped: tuned.Card | None = None

    def __init__(self, card: Card) -> None:
        self.device: Any = card
        self.free_bytes = lambda: int(card.gigabytes * 1e9)
        self._capture, self._pictures, self._tune = True, Pictures(), True

    def compile(self, sections: Sections, options: Options | None = None) -> DryExecutable:
        self._tune = (options or Options()).tune
        made = super().compile(sections, options)
        assert isinstance(made, DryExecutable)
        self.made, made.plans = made, self.shipped.tables[0].plans if self.shipped else {}
        return made

    def _stream(self, index: int, tf32: bool) -> Stream:
        card: Card = self.device
        given: dict[str, Any] = {"convolution": _Convolution, "processors": card.processors}
        return replace(STREAM, overlaps=lambda: card.capability >= (9, 0), **given)

    def _planned(self, plan: Plan, _: Sections, trained: Sections, precision: Precision) -> Plan:
        self.mark, known = fingerprint(trained, *plan.extra, numbers=False), None
        self.chosen = precision
        if self._tune and not plan.thorough:
            known = tuned.of_card(self.device.name, self.mark, precision)
        self.shipped, choices = known, known.tables[0].choices if known else plan.choices
        return replace(plan, search=None, choices=choices)

    def limits(self, precision: Precision = "auto") -> Limits:
        rate = self.device.tflops[PRECISIONS.index(self.precision(precision))]
        return Limits(rate * 1e3, self.device.bandwidth)

    def versions(self) -> Mapping[str, str]:
        """Those that the choices were timed with, where a table of them ships."""
        return self.shipped.environment if self.shipped else {"GPU": self.device.name}


def _ways(binder: Binder) -> Iterator[tuple[str, str]]:
    """Of every choice, by its name, one of each kernel that timing may take."""
    yield from ((f"{name}/gemm", "0") for name in binder.products)
    yield from ((name, mark) for name, marks in binder.either.items() for mark in marks)
    makers = [(name, *each) for name, all_ in binder.variants.items() for each in all_]
    makers += [(name, AtEnd.mark, make) for name, make in binder.at_once.items()]
    for name, mark, make in makers:
        with suppress(*_UNFIT):
            candidates = make()
            if isinstance(candidates, Silent):
                yield name, f"{mark}0"
                continue
            every = range(candidates.plans())
            # By the kernel: the last of each.
            kernels = {candidates.name(index).partition(" ")[0]: index for index in every}
            yield from ((name, f"{mark}{candidates.choice(at)}") for at in kernels.values())

"""Compiling: rewrite the graphs, settle what is decided by timing, build; alike on every device."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import field, replace
from typing import Generic, TypeVar

from ..common.records import dataclass
from ..graph.graph import Graph
from ..graph.rewrites import rewritten
from .base import Backend, Options, Precision
from .settling import Search, Shipped, settle
from .tuning import UNEQUAL, Tuning, fingerprint, training_sections
from .tuning_cache import forget

_LOG = logging.getLogger("dnnstack.layers")
_NO_LECTURE = "run.calls: the lecture's calls are a GPU's; here all is as with run.fusion false"
Sections = Mapping[str, Graph]
Choices = Mapping[str, str]
ExecutableT = TypeVar("ExecutableT")


class ChoiceError(ValueError):
    """A tuning names a choice that this backend does not have."""


@dataclass(frozen=True, kw_only=True)
class CompilePlan(Generic[ExecutableT]):
    """What a backend gives to compile certain graphs in a certain precision.

    ``build(graphs, tuning, notices)`` makes the executable; it raises one of ``refusals`` if a
    choice of the tuning is not available. ``choices`` are taken without a search; ``search``,
    ``thorough`` and ``quiet`` are those of ``settle``, None where there is nothing to search.
    ``code`` marks the backend's code, and ``extra`` is what else the choices depend on.
    ``training_only``: choices that are left out where nothing trains.
    """

    build: Callable[[Sections, Tuning, Sequence[str]], ExecutableT]
    refusals: tuple[type[Exception], ...] = ()
    choices: Choices = field(default_factory=dict)
    search: Search | None = None
    shipped: Shipped = lambda sought: None
    thorough: bool = False
    quiet: Callable[[], bool] = lambda: True
    code: str = ""
    extra: tuple[object, ...] = ()
    training_only: Collection[str] = ()


def compiled(
    backend: Backend,
    sections: Sections,
    options: Options,
    planned: Callable[[Sections, Sections, Precision], CompilePlan[ExecutableT]],
) -> ExecutableT:
    """The sections as an executable, with the tuning that was given, is known, or is found now.

    ``planned(graphs, trained, precision)``: the backend's part, of all sections after the rewrites
    and of those among them that train. If a choice of the tuning is not available, another tuning
    takes its place, and the executable's notices say so.
    """
    precision = backend.precision(options.precision)
    rewrites = backend.rewrites if options.fusion else {}
    graphs = {name: rewritten(graph, rewrites) for name, graph in sections.items()}
    trained = training_sections(graphs)
    plan = planned(graphs, trained, precision)
    code = {"dnnstack": plan.code} if plan.code else {}
    environment = {**backend.versions(), **code, "precision": precision}
    mark = fingerprint(trained, *plan.extra) if trained else ""
    # What is fastest does not depend on a momentum or an angle: such trainings share a search.
    alike = fingerprint(trained, *plan.extra, numbers=False) if trained else ""
    present = Tuning(backend.name, environment, mark, plan.choices)

    def settled(given: Tuning | None, shipped: Shipped) -> tuple[Tuning, tuple[str, ...]]:
        search = plan.search if options.tune else None
        found, notes = settle(
            present,
            given,
            bool(trained),
            search,
            plan.thorough,
            shipped=shipped,
            alike=alike,
            quiet=plan.quiet,
            interrupt=options.interrupt,
            notice=options.notice,
        )
        if not trained:
            # The table may be of another machine.
            kept = {k: v for k, v in found.choices.items() if k not in plan.training_only}
            found = replace(found, choices=kept)
        return found, notes

    offered: list[Choices] = []

    def noted(sought: Tuning) -> Choices | None:
        found = plan.shipped(sought)
        offered.extend([] if found is None else [found])
        return found

    tuning, notices = settled(options.tuning, noted)
    if options.calls == "lecture" and backend.name != "cuda":
        notices = (*notices, _NO_LECTURE)
    try:
        return plan.build(graphs, tuning, notices)
    except plan.refusals as error:
        if tuning.choices == present.choices:
            raise
        if tuning.choices in offered:
            # Nothing was computed with it before.
            _LOG.info("tuning: what ships does not do here: %s", error)
        else:
            # A damaged table, or one of another version of ours: what it names is not there.
            reason = f"{UNEQUAL}: a choice of the tuning is not available now: {error}"
            notices = (*notices, reason)
    # Behind the handler: the error's traceback keeps alive what was half built.
    forget(replace(present, graph=alike))
    tuning, _ = settled(None, lambda sought: None)
    return plan.build(graphs, tuning, notices)

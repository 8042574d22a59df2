"""A backend that keeps what it has compiled for the next training of the same sections."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from operator import attrgetter
from typing import Any

from ..common.records import dataclass
from ..graph.graph import Graph, Tensor
from ..graph.rewrites import Rewrite, rewritten
from .base import Array, Backend, Executable, Options

Sections = Mapping[str, Graph]


@dataclass(frozen=True)
class _Compiled:
    """``how``: it was compiled; ``settled``: no tuning was given."""

    executable: Executable
    sections: Sections
    how: tuple[object, ...]
    settled: bool

    def lent(
        self, sections: Sections, options: Options, rewrites: Mapping[str, Rewrite]
    ) -> tuple[_Compiled, dict[Tensor, Tensor]] | None:
        """What it is once it computes with the numbers of these sections; None if it cannot.

        With its own tables, by those of the sections that are of another length.
        """
        given = options.tuning
        alike = self.settled if given is None else given == self.executable.tuning
        if not alike or self.how != _how(options) or list(self.sections) != list(sections):
            return None
        tables: dict[Tensor, Tensor] = {}
        taken: dict[str, Graph] = {}
        for name, graph in sections.items():
            other = _lengths(self.sections[name], graph)
            taken[name] = _with_tables(graph, other)
            tables |= other
        pairs = [(self.sections[name], graph) for name, graph in taken.items()]
        if any(_frame(known) != _frame(graph) for known, graph in pairs):
            return None
        try:
            if all(known.ops == graph.ops for known, graph in pairs):
                return self, tables
            # A tuning that is given is for certain numbers.
            if given is not None:
                return None
            chosen = rewrites if options.fusion else {}
            graphs = {name: rewritten(graph, chosen) for name, graph in taken.items()}
            found = self.executable.renumber(graphs)
        except ValueError:
            # An operation of a plugin holds an array, whose comparison is an array too.
            return None
        return (replace(self, sections=taken), tables) if found else None


class Keeping:
    """The given backend, but the executable that was closed last is kept.

    If the same sections are compiled next, with the same options, it is given again, as empty as a
    new one, except for its data sets: the same calls, so the same bits. Sections are the same if
    all their operations are; rates lie in tables, whose numbers and lengths are no part of them.
    So are those whose operations differ in numbers that the executable takes, as on a GPU, where
    compiling is most of a short training. For one training after the other: each closes its
    executable before the next one compiles.
    """

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._kept: _Compiled | None = None

    name: Any = property(attrgetter("_backend.name"))
    engines: Any = property(attrgetter("_backend.engines"))
    waiting_threads: Any = property(attrgetter("_backend.waiting_threads"))
    pieces: Any = property(attrgetter("_backend.pieces"))
    rewrites: Any = property(attrgetter("_backend.rewrites"))
    precision: Any = property(attrgetter("_backend.precision"))
    limits: Any = property(attrgetter("_backend.limits"))
    versions: Any = property(attrgetter("_backend.versions"))

    def compile(self, sections: Sections, options: Options | None = None) -> Executable:
        options = options or Options()
        kept, self._kept = self._kept, None
        if kept is not None:
            if lent := kept.lent(sections, options, self._backend.rewrites):
                now, tables = lent
                now.executable.renew()
                return Lent(now.executable, partial(self._keep, now), tables)
            # What is kept needs memory that the next one may need.
            kept.executable.close()
        del kept
        made = self._backend.compile(sections, options)
        now = _Compiled(made, dict(sections), _how(options), options.tuning is None)
        return Lent(made, partial(self._keep, now), {})

    def close(self) -> None:
        """Free what is kept."""
        kept, self._kept = self._kept, None
        if kept is not None:
            kept.executable.close()

    def _keep(self, made: _Compiled) -> None:
        self.close()
        self._kept = made


def _watched_call(name: str) -> Any:
    def call(self: Lent, *given: Any, **named: Any) -> Any:
        with self._watched() as held:
            return getattr(held, name)(*given, **named)

    return call


class Lent:
    """An executable that is given back by ``close``; after an error it is closed as any other."""

    def __init__(
        self, executable: Executable, give_back: Callable[[], None], tables: Mapping[Tensor, Tensor]
    ) -> None:
        """``tables``: the executable's, by those of the same name that it is asked for."""
        self._executable: Executable | None = executable
        self._give_back, self._tables = give_back, tables
        self._failed = False

    tuning: Any = property(attrgetter("_held.tuning"))
    graphs: Any = property(attrgetter("_held.graphs"))
    notices: Any = property(attrgetter("_held.notices"))
    function: Any = property(attrgetter("_held.function"))
    halved: Any = property(attrgetter("_held.halved"))
    calls: Any = property(attrgetter("_held.calls"))
    run = _watched_call("run")
    run_in_turn = _watched_call("run_in_turn")
    measure = _watched_call("measure")
    poison = _watched_call("poison")
    renew = _watched_call("renew")
    renumber = _watched_call("renumber")

    def write(self, tensor: Tensor, array: Array) -> None:
        with self._watched() as held:
            held.write(self._tables.get(tensor, tensor), array)

    def read(self, tensor: Tensor) -> Array:
        with self._watched() as held:
            return held.read(self._tables.get(tensor, tensor))

    def patch_sums(
        self, images: Tensor, rows: Array, window: tuple[int, int]
    ) -> tuple[Array, Array] | None:
        with self._watched() as held:
            return held.patch_sums(self._tables.get(images, images), rows, window)

    def close(self) -> None:
        held, self._executable = self._executable, None
        if held is None:
            return
        if self._failed:
            held.close()
        else:
            self._give_back()

    @property
    def _held(self) -> Executable:
        if self._executable is None:
            raise ValueError("the executable is closed")
        return self._executable

    @contextmanager
    def _watched(self) -> Iterator[Executable]:
        """The executable; it may be of no use once something has gone wrong in it."""
        try:
            yield self._held
        except BaseException:
            self._failed = True
            raise


def _how(options: Options) -> tuple[object, ...]:
    names = ("precision", "fusion", "deterministic", "tune", "tune_seconds", "residency")
    return tuple(getattr(options, name) for name in (*names, "calls", "share_memory"))


def _lengths(known: Graph, graph: Graph) -> dict[Tensor, Tensor]:
    """The known tables, by those of a section that differ in length alone: that of a training."""
    held = {t.name: t for t in known.tensors() if _is_table(t)}
    ours = (t for t in graph.tensors() if _is_table(t) and t.name in held)
    pairs = ((t, held[t.name]) for t in ours)
    return {t: own for t, own in pairs if t != own and t.shape[1:] == own.shape[1:]}


def _is_table(tensor: Tensor) -> bool:
    """Whether it has a number for every step, which the calls find by the step's."""
    return tensor.role == "data" and tensor.dtype == "float32"


def _with_tables(graph: Graph, replaced: Mapping[Tensor, Tensor]) -> Graph:
    """The section with other tables in place of its own."""
    if not replaced:
        return graph
    made = graph.substituted(replaced)
    made.results = {name: replaced.get(tensor, tensor) for name, tensor in graph.results.items()}
    return made


def _frame(graph: Graph) -> tuple[object, ...]:
    """What a backend reads of a section beside the operations: not its seed, for they have the
    keys made of it."""
    return (graph.name, graph.batch_size, graph.training, graph.results)

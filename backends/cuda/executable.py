"""The executable: every section captured once as a CUDA graph, then relaunched."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from itertools import chain, groupby
from typing import Any

import numpy as np

from ...common.records import dataclass
from ...graph.graph import SHARED, Graph, Tensor
from ...graph.ops import Average
from ...graph.ops.updates import ParameterUpdate
from ..base import Array, BoundCall, check_array, in_three_steps
from ..live import renumber, renumbered
from ..tuning import Tuning
from . import operations  # noqa: F401  # they register
from .binding.bind import Arithmetic, Binder, workspace_sizes
from .binding.buffer import Buffer
from .binding.feeds import Feeds
from .binding.launches import JOINS, Step, Stream, launches
from .binding.layouts import Geometry, add_shared
from .binding.pictures import Pictures
from .binding.store import Store
from .failures import AFTER, Allocating, explained, failed, launch_all
from .libraries.layout import BFLOAT
from .libraries.runtime import (
    CAPTURING,
    captured,
    copy_flat,
    cuda_api,
    device,
    device_errors,
    synchronize,
)
from .libraries.timing import captured_seconds, host_seconds
from .operations.whiten import patch_sums

# Steps that one graph holds, and launches it may hold at most; and steps of one that is captured
# once a section has run so often, for between two graphs nothing overlaps.
TOGETHER, MOST_LAUNCHES = 8, 1000
MANY, OFTEN = 32, 2000
# Seconds of a step that is timed alone, and of timings that are enough.
SLOW, LONG = 0.02, 0.2
CAPTURED = f"--no-graph names the call that fails; {AFTER}"


@dataclass(frozen=True)
class _HostWork:
    """What the host computes between two graphs; its copies wait for what the stream was given."""

    steps: Sequence[Step]

    def launch(self, stream: Any) -> None:
        launch_all(self.steps)


class CudaExecutable:
    """Sections bound to the streams of the GPU; see base.Executable.

    ``capture``: False launches every call by itself, for debugging; the bits are the same.
    ``streamed``: data sets stay in host memory; ``pictures``: see Store.
    """

    def __init__(
        self,
        graphs: Mapping[str, Graph],
        tuning: Tuning,
        streams: Sequence[Stream],
        arithmetic: Arithmetic,
        notices: Sequence[str] = (),
        capture: bool = True,
        streamed: bool = False,
        pictures: Pictures | None = None,
    ) -> None:
        self.tuning, self.graphs, self.notices, self._streams = tuning, graphs, notices, streams
        self._arithmetic, self._capture = arithmetic, capture
        self._store = Store(cuda_api(), pictures)
        self._sections: dict[str, Binder] = {}
        self._captured: dict[tuple[tuple[str, ...], int], list[Any]] = {}
        self._generation = 0
        # Steps that sections have run, alone or in turn.
        self._ran: dict[tuple[str, ...], int] = {}
        self._running: str | None = None
        try:
            with self._explained(), device().stream:
                with Allocating():
                    if streamed:
                        self._store.feeds = Feeds(graphs, self._position, self._store.cuda)
                    add_shared(self._store, graphs, Geometry(tuning.choices, arithmetic.dtype))
                self._bind()
        except BaseException:
            self.close()
            raise

    def _bind(self) -> None:
        for binder in self._sections.values():
            binder.close()
        for name, graph in self.graphs.items():
            given = (self._store, self._streams, self._arithmetic, self.tuning.choices)
            binder = self._sections[name] = Binder(graph, *given, self._beside)
            with Allocating(section=name, batch_size=graph.batch_size):
                binder.bind()
        self._complete()
        self._generation = self._store.generation
        self._captured.clear()
        synchronize()

    def _beside(self) -> Stream:
        """One more stream than those that compute, with the handles of the first."""
        return replace(self._streams[0], cuda=device().numbered_stream(len(self._streams)))

    def _complete(self) -> None:
        """Give one workspace a stream, for sections do not run at the same time; and kernels."""
        sizes, empty = workspace_sizes(self._sections.values()), self._store.cuda.empty
        with Allocating(workspaces=sum(sizes.values())):
            workspaces = {stream: empty(size, "uint8") for stream, size in sizes.items()}
        for binder in self._sections.values():
            binder.give_workspaces(workspaces)
            binder.compile()

    def run(self, section: str, steps: int = 1, wait: bool = True) -> None:
        self.run_in_turn([section], steps, wait)

    def run_in_turn(self, sections: Sequence[str], steps: int = 1, wait: bool = True) -> None:
        """One graph for all of them, and for several steps, where that is possible."""
        self._running = sections[0]
        with self._explained():
            with device().stream:
                self._run(tuple(sections), steps)
            if wait:
                synchronize()

    def _run(self, sections: tuple[str, ...], steps: int) -> None:
        if self._generation != self._store.generation:
            with CAPTURING:
                self._bind()
        binders = [self._sections[section] for section in sections]
        count, feeds = sum(len(binder.steps) for binder in binders), self._store.feeds
        # Steps of data that are fed, and those with a part on the host, have a graph each.
        single = bool(feeds) or any(binder.has_host_work for binder in binders)
        if len(sections) > 1 and (not self._capture or single or count > MOST_LAUNCHES):
            # Of a section that is repeated, a graph may hold several runs.
            alike = [(name, len([*group])) for name, group in groupby(sections)]
            for section, runs in alike * steps:
                self._run((section,), runs)
            return
        while steps:
            times = 1 if single or not self._capture else self._held(sections, count, steps)
            if self._capture and (sections, times) not in self._captured:
                # At its first launch a library may wait for the device, which breaks captures.
                with CAPTURING:
                    self._captured[sections, times] = self._record(sections, times)
            feeds.load(sections[0])
            if self._capture:
                for part in self._captured[sections, times]:
                    part.launch(device().stream)
            else:
                # One after the other, so that an error belongs to the call that it follows.
                launch_all(binders[0].steps, binders[0].streams)
            steps -= times

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Name the section that was last begun where the device reports an error."""
        section, shown = self._running, dict[str, object]()
        if section is not None:
            shown = {"section": section, "batch_size": self.graphs[section].batch_size}
        try:
            with Allocating(**shown):
                yield
        except device_errors() as error:
            raise failed("CUDA", "cudaGraphLaunch", error, shown, CAPTURED) from None

    def _held(self, sections: tuple[str, ...], count: int, steps: int) -> int:
        """How many of so many steps, each of ``count`` launches, a graph holds; counts them."""
        ran = self._ran.get(sections, 0)
        wanted = (MANY, TOGETHER) if ran >= OFTEN else (TOGETHER,)
        fitting = (each for each in wanted if each <= steps and each * count <= MOST_LAUNCHES)
        held = next(fitting, 1)
        self._ran[sections] = ran + held
        return held

    def _record(self, sections: tuple[str, ...], times: int) -> list[Any]:
        """Capture ``times`` runs of sections in turn, after one of each on state that is put back,
        because modules load lazily: graphs, and what the host computes between them."""
        for binder in (self._sections[section] for section in dict.fromkeys(sections)):
            with self._restored(binder):
                launch_all(binder.steps)
        each = [self._sections[section] for section in sections]
        if len(each) == 1:
            steps = each[0].repeated(times)
        elif len(each) == 2 and each[1].gathers_for(each[0]):
            steps = each[0].leads(each[1], times)
        else:
            steps = [step for binder in each for step in binder.steps] * times
        joins, parts = all(binder.overlaps == JOINS for binder in each), list[Any]()
        for on_host, group in groupby(steps, lambda step: step.on_host):
            if on_host:
                parts.append(_HostWork([*group]))
            else:
                work = (partial(explained, *launch) for launch in launches(group, joins))
                parts.append(captured(work, device().stream))
        return parts

    @contextmanager
    def _restored(self, binder: Binder) -> Iterator[None]:
        """Put back all that a section updates in place, and what its sums over ranks do besides."""
        sums = (self._store.small_sums.of(op) for op in binder.graph.ops)
        others = (op for small in sums if small is not None for op in small.merged)
        work = chain(binder.graph.ops, others)
        tensors = dict.fromkeys(t for op in work for t in op.tensors(op.updates))
        changed = [self._buffer(t).array for t in tensors]
        if self._store.has_bf16:
            changed.append(self._store.bf16_arena())
        saved = [_copied(array) for array in changed]
        yield
        for array, before in zip(changed, saved, strict=True):
            if isinstance(before, np.ndarray):
                array.set(before)
            else:
                copy_flat(before, array, device().stream)
        synchronize()

    def poison(self) -> None:
        with self._explained(), device().stream:
            synchronize()
            for binder in self._sections.values():
                binder.poison()
            synchronize()

    def renew(self) -> None:
        with self._explained(), device().stream:
            synchronize()
            self._store.clear()
            synchronize()

    def renumber(self, sections: Mapping[str, Graph]) -> bool:
        with self._explained(), device().stream:
            synchronize()
            live = {name: binder.live for name, binder in self._sections.items()}
            found = renumber(self.graphs, sections, live)
            synchronize()
        if found:
            self.graphs = sections
            self.tuning = renumbered(self.tuning, sections, *self._arithmetic.mark)
            others = [binder.was_relaunched() for binder in self._sections.values()]
            if any(others):
                # Graphs hold the arguments of their launches.
                self._captured.clear()
        return found

    def write(self, tensor: Tensor, array: Array) -> None:
        check_array(tensor, array)
        with self._explained(), device().stream:
            if self._store.feeds.holds(tensor):
                self._store.feeds.write(tensor, array)
            elif tensor.role == "data":
                self._store.write_data(tensor, array)
            else:
                buffer = self._buffer(tensor)
                values = np.asarray(array, tensor.dtype)
                buffer.array.set(buffer.layout.pack(values))
                if tensor.role == "parameter":
                    layout = replace(buffer.layout, dtype=BFLOAT)
                    self._store.renew(tensor, lambda: layout.pack(values))
                self._store.feeds.moved(tensor)
            synchronize()

    def _position(self, tensor: Tensor) -> int:
        """The value of a step counter."""
        return int(self._buffer(tensor).array.get()[0])

    def read(self, tensor: Tensor) -> Array:
        with self._explained(), device().stream:
            synchronize()
            if self._store.feeds.holds(tensor):
                return self._store.feeds.read(tensor)
            if tensor.role == "data":
                return self._store.read_data(tensor)
            buffer = self._buffer(tensor)
            return buffer.layout.unpack(np.asarray(buffer.array.get()))

    def patch_sums(
        self, images: Tensor, rows: Array, window: tuple[int, int]
    ) -> tuple[Array, Array] | None:
        if self._store.feeds.holds(images) or images.dtype != "uint8":
            return None
        # Its kernel is loaded here, and what frees memory may wait for the device.
        with CAPTURING, self._explained(), device().stream as stream:
            return patch_sums(self._store.data[images], rows, window, stream)

    def function(self, section: str, given: Tensor, found: Tensor) -> Callable[[Array], Array]:
        return in_three_steps(self, section, given, found)

    def calls(self, section: str) -> Sequence[BoundCall]:
        return [step.call for step in self._sections[section].steps if step.call is not None]

    def halved(self, section: str) -> frozenset[Tensor]:
        held = self._sections[section].buffers.items()
        copied = self._store.in_bf16()
        return frozenset(t for t, buffer in held if buffer.dtype == BFLOAT) | copied

    def measure(self, section: str, repeats: int) -> list[float]:
        times = []
        binder = self._sections[section]
        with self._explained(), device().stream, self._restored(binder):
            for step in binder.steps:
                if step.call is None:
                    step.launch()
                elif step.on_host:
                    times.append(host_seconds(step.launch, repeats))
                else:
                    stream = binder.streams[step.stream].cuda
                    times.append(captured_seconds(step.launch, stream, repeats))
        return times

    def binders(self) -> Sequence[Binder]:
        """The bound sections, whose choices a search times."""
        return list(self._sections.values())

    def step_seconds(self, section: str, repeats: int) -> float:
        """Seconds of one run of a captured section: the fastest of ``repeats`` timings, fewer where
        they take long."""
        ops = self.graphs[section].ops
        updates = [op for op in ops if isinstance(op, (ParameterUpdate, Average))]
        tables = [(op.decays if isinstance(op, Average) else op.rates).shape[0] for op in updates]

        def timed(steps: int) -> float:
            for counter in {op.step for op in updates}:
                self.write(counter, np.zeros(1, np.int64))
            begin = time.perf_counter()
            self.run(section, steps)
            return time.perf_counter() - begin

        timed(1)
        steps, spent = 1, [timed(1)]
        if spent[0] <= SLOW:
            # Whole graphs of several steps, as a training launches them; never beyond its end.
            steps = min([2 * TOGETHER, *tables])
            timed(steps)
            spent = [timed(steps)]
        while len(spent) < repeats and sum(spent) < LONG:
            spent.append(timed(steps))
        return min(spent) / steps

    def close(self) -> None:
        # After an error of the device every call fails; it has been reported by then.
        with suppress(*device_errors()):
            synchronize()
        cuda = self._store.cuda
        self._store.close()
        self._captured.clear()
        for binder in self._sections.values():
            binder.close()
        self._sections.clear()
        self._store = Store(cuda)

    def _buffer(self, tensor: Tensor) -> Buffer:
        if tensor.role in SHARED:
            return self._store.buffers[tensor]
        return self._sections[tensor.section].buffers[tensor]


def _copied(array: Any) -> Any:
    """A copy on the device, or on the host where the memory does not suffice for a moment."""
    try:
        return array.copy()
    except MemoryError:
        return array.get()

"""The executable: sections bound to primitives, run as loops over prebound calls."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from statistics import median

import numpy as np
from numpy.typing import NDArray

from ...common.errors import DnnlError
from ...graph.graph import SHARED, Graph, Tensor
from ..base import Array, BoundCall, check_array, in_three_steps
from ..tuning import Tuning

# Their import enters their kernels into the table.
from . import (  # noqa: F401
    classic,
    collectives,
    combine,
    fallback,
    linear,
    losses,
    lrn,
    muon,
    norm,
    pointwise,
    quantized,
    sharing,
    statistics,
    step,
    updates,
)
from .arenas import plan_arenas
from .bind import Binder
from .host_memory import enough_for
from .library import library, status_name
from .memory import Memory
from .primitive import Step
from .store import Store, is_plain, load_plain, store_plain

# A step is timed no further once its runs have taken so long together.
LONG_SECONDS = 1.0


class OneDnnExecutable:
    """Sections bound to oneDNN primitives over shared arenas; see base.Executable.

    ``activations``: the type of activations and their gradients. ``share``: see Options.
    """

    def __init__(
        self,
        graphs: Mapping[str, Graph],
        tuning: Tuning,
        threads: int,
        notices: Sequence[str] = (),
        activations: str = "float32",
        share: bool = False,
    ) -> None:
        self.tuning, self.graphs, self.notices, self._threads = tuning, graphs, notices, threads
        self._store = Store()
        self._sections: dict[str, Binder] = {}
        # What is read again and again, such as the answers of a network, is looked up once.
        self._plain: dict[Tensor, NDArray[np.float32]] = {}
        library().set_threads(threads)
        with enough_for(graphs):
            gradients = plan_arenas(self._store, graphs, tuning.choices, activations)
            for name, graph in graphs.items():
                binder = Binder(graph, self._store, tuning.choices, activations, share)
                binder.memories.update(gradients[name])
                binder.bind()
                self._sections[name] = binder
        self._updating = {
            name for name, graph in graphs.items() if any(op.updates for op in graph.ops)
        }
        self._stale = set(graphs)

    def run(self, section: str, steps: int = 1, wait: bool = True) -> None:
        binder = self._sections[section]
        library().set_threads(self._threads)
        if section in self._stale:
            _run(binder.prologue)
            self._stale.discard(section)
        for _ in range(steps):
            _run(binder.steps)
        if section in self._updating:
            self._stale.update(name for name in self._sections if name != section)

    def run_in_turn(self, sections: Sequence[str], steps: int = 1, wait: bool = True) -> None:
        for section in (*sections,) * steps:
            self.run(section)

    def poison(self) -> None:
        for name, binder in self._sections.items():
            binder.poison(entering=name in self._stale)

    def renew(self) -> None:
        self._store.clear()
        self._stale.update(self._sections)

    def renumber(self, sections: Mapping[str, Graph]) -> bool:
        return False

    def write(self, tensor: Tensor, array: Array) -> None:
        check_array(tensor, array)
        if tensor.role == "data":
            self._store.data[tensor].array = array
        elif tensor.dtype == "float32":
            store_plain(self._held(tensor), tensor, array)
            if tensor.role in SHARED:
                self._stale.update(self._sections)
        else:
            self._held_array(tensor)[...] = array

    def read(self, tensor: Tensor) -> Array:
        if tensor.dtype != "float32" or tensor.role == "data":
            return self._held_array(tensor).copy()
        if not self._is_plain(tensor):
            return load_plain(self._held(tensor), tensor)
        return self._plain[tensor].copy()

    def function(self, section: str, given: Tensor, found: Tensor) -> Callable[[Array], Array]:
        if given.role != "data" or not self._is_plain(found):
            return in_three_steps(self, section, given, found)
        held, answers = self._store.data[given], self._plain[found]
        shape, dtype = given.shape[1:], np.dtype(given.dtype)

        def call(array: Array) -> Array:
            if array.shape[1:] != shape or array.dtype != dtype:
                check_array(given, array)
            held.array = array
            self.run(section)
            return answers.copy()

        return call

    def patch_sums(
        self, images: Tensor, rows: Array, window: tuple[int, int]
    ) -> tuple[Array, Array] | None:
        return None

    def calls(self, section: str) -> Sequence[BoundCall]:
        binder = self._sections[section]
        return [entry.call for entry in (*binder.prologue, *binder.steps)]

    def halved(self, section: str) -> frozenset[Tensor]:
        held = self._sections[section].memories.items()
        return frozenset(t for t, memory in held if memory.descriptor.dtype == "bfloat16")

    def measure(self, section: str, repeats: int) -> list[float]:
        binder = self._sections[section]
        library().set_threads(self._threads)
        every = (*binder.prologue, *binder.steps)
        times: list[list[float]] = [[] for _ in every]
        changed = self._changed(binder.graph)
        saved = [array.copy() for array in changed]
        for _ in range(repeats):
            for entry, spent in zip(every, times, strict=True):
                spent.append(_seconds((entry,)))
        for array, before in zip(changed, saved, strict=True):
            array[...] = before
        self._stale.update(self._sections)
        return [median(spent) for spent in times]

    def _changed(self, graph: Graph) -> list[NDArray[np.generic]]:
        """The memory of everything that a section updates in place."""
        tensors = dict.fromkeys(t for op in graph.ops for t in op.tensors(op.updates))
        return [
            self._held(t).buffer if t.dtype == "float32" else self._held_array(t) for t in tensors
        ]

    def step_seconds(self, section: str, repeats: int) -> float:
        """Seconds of the section's library calls: the fastest of ``repeats`` runs after a warm-up.

        Fewer if they take long; a very long warm-up counts itself.
        """
        binder = self._sections[section]
        library().set_threads(self._threads)
        for memory in self._store.memories.values():
            # Small and positive, for zeros and denormals run at another speed.
            memory.array()[:] = 0.01
        calls = [entry for entry in binder.steps if entry.primitive is not None]
        times: list[float] = []
        while len(times) <= repeats and sum(times) <= LONG_SECONDS:
            times.append(_seconds(calls))
        return min(times[1:] or times)

    def close(self) -> None:
        for binder in self._sections.values():
            for entry in (*binder.steps, *binder.prologue):
                if entry.primitive is not None:
                    entry.primitive.close()
        self._sections.clear()
        self._plain.clear()
        self._store = Store()

    def _is_plain(self, tensor: Tensor) -> bool:
        """Whether a float tensor's memory is its canonical array, which is then in ``_plain``."""
        if tensor not in self._plain:
            memory = self._held(tensor)
            if not is_plain(memory, tensor):
                return False
            self._plain[tensor] = memory.array(tensor.shape)
        return True

    def _held(self, tensor: Tensor) -> Memory:
        if tensor.role in SHARED:
            return self._store.memories[tensor]
        binder = self._sections[tensor.section]
        if tensor in binder.overwritten:
            raise KeyError(f"{tensor.name}: its memory was given to a later tensor")
        return binder.memories[tensor]

    def _held_array(self, tensor: Tensor) -> NDArray[np.generic]:
        if tensor.role == "data":
            return self._store.data[tensor].array
        if tensor.role in SHARED:
            return self._store.arrays[tensor]
        return self._sections[tensor.section].arrays[tensor]


@np.errstate(all="ignore")
def _run(steps: Sequence[Step]) -> None:
    for entry in steps:
        if entry.function(*entry.arguments):
            _fail(entry)


def _seconds(steps: Sequence[Step]) -> float:
    begin = time.perf_counter()
    _run(steps)
    return time.perf_counter() - begin


def _fail(entry: Step) -> None:
    status = entry.function(*entry.arguments) or 0
    call = entry.call
    shown = {"op": call.op.label(), **call.arguments}
    raise DnnlError("oneDNN", call.function, status_name(status), shown)

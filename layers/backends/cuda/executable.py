"""The executable: every section captured once as a CUDA graph, then relaunched."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from statistics import median
from typing import Any

import numpy as np

from ....common.errors import LibraryError, ShapeError
from ...graph import SHARED, Graph, Tensor
from ..base import Array, BoundCall
from ..tuning import Tuning
from . import convolution, fused, linear, losses, pointwise, pool  # noqa: F401  # they register
from . import step as ends  # noqa: F401
from .bind import Binder, Lane, Precision, Step
from .conv_graph import ConvGraph
from .layout import BFLOAT
from .parameters import Geometry, add_gradients, add_parameters
from .runtime import cupy, device, synchronize
from .store import Buffer, Store

AFTER = "the checkpoints saved before are good; resume, with a smaller batch if memory ran out"


class CudaExecutable:
    """Sections bound to the lanes of the GPU; see base.Executable.

    ``capture``: False launches every call by itself, for debugging; the bits are the same.
    """

    def __init__(
        self,
        graphs: Mapping[str, Graph],
        tuning: Tuning,
        lanes: Sequence[Lane],
        precision: Precision,
        notices: Sequence[str] = (),
        capture: bool = True,
    ) -> None:
        self.tuning = tuning
        self.graphs = graphs
        self.notices = notices
        self._lanes = lanes
        self._precision = precision
        self._capture = capture
        self._store = Store()
        self._sections: dict[str, Binder] = {}
        self._captured: dict[str, Any] = {}
        self._generation = 0
        with device().stream:
            rules = Geometry(tuning.choices, precision.narrow)
            add_parameters(self._store, graphs, rules)
            self._gradients = {
                name: add_gradients(self._store, name, graph) for name, graph in graphs.items()
            }
            self._bind()

    def _bind(self) -> None:
        for name, graph in self.graphs.items():
            binder = Binder(graph, self._store, self._lanes, self._precision, self.tuning.choices)
            binder.buffers.update(self._gradients[name])
            binder.bind()
            self._sections[name] = binder
        self._generation = self._store.generation
        self._captured.clear()
        synchronize()

    def run(self, section: str, steps: int = 1) -> None:
        try:
            self._run(section, steps)
            synchronize()
        except cupy().cuda.runtime.CUDARuntimeError as error:
            shown = {"section": section, "batch_size": self.graphs[section].batch_size}
            raise LibraryError("CUDA", "cudaGraphLaunch", str(error), shown, AFTER) from None

    def _run(self, section: str, steps: int) -> None:
        with device().stream:
            if self._generation != self._store.generation:
                self._bind()
            if not self._capture:
                for _ in range(steps):
                    _launch(self._sections[section].steps)
                return
            if section not in self._captured:
                self._captured[section] = self._record(section)
            graph, stream = self._captured[section], device().stream
            for _ in range(steps):
                graph.launch(stream)

    def _record(self, section: str) -> Any:
        """Capture a section, after a run on state that is put back: modules load lazily."""
        binder, stream = self._sections[section], device().stream
        with self._restored(binder):
            _launch(binder.steps)
        stream.begin_capture()
        try:
            _launch(binder.steps)
        finally:
            graph = stream.end_capture()
        return graph

    @contextmanager
    def _restored(self, binder: Binder) -> Iterator[None]:
        """Put everything that a section updates in place back to what it was before."""
        tensors = dict.fromkeys(t for op in binder.graph.ops for t in op.tensors(op.updates))
        changed = [self._buffer(t).array for t in tensors]
        if self._store.has_narrow:
            changed.append(self._store.narrow_arena())
        saved = [array.copy() for array in changed]
        yield
        for array, before in zip(changed, saved, strict=True):
            array[...] = before
        synchronize()

    def write(self, tensor: Tensor, array: Array) -> None:
        if array.shape[1:] != tensor.shape[1:] or (
            tensor.role != "data" and array.shape != tensor.shape
        ):
            raise ShapeError(f"'{tensor.name}' has shape {tensor.shape}, not {array.shape}")
        if tensor.role == "data" and array.dtype != tensor.dtype:
            raise ShapeError(f"'{tensor.name}' is {tensor.dtype}, not {array.dtype}")
        with device().stream:
            if tensor.role == "data":
                self._write_data(tensor, array)
            else:
                buffer = self._buffer(tensor)
                values = np.asarray(array, tensor.dtype)
                buffer.array.set(buffer.layout.pack(values))
                narrow = replace(buffer.layout, dtype=BFLOAT)
                if tensor.role == "parameter":
                    self._store.renew(tensor, narrow.pack(values))
            synchronize()

    def _write_data(self, tensor: Tensor, array: Array) -> None:
        held = self._store.data[tensor]
        if held.shape == array.shape:
            held.set(np.ascontiguousarray(array))
            return
        self._store.data[tensor] = cupy().asarray(np.ascontiguousarray(array))
        self._store.generation += 1

    def read(self, tensor: Tensor) -> Array:
        with device().stream:
            synchronize()
            if tensor.role == "data":
                return np.asarray(self._store.data[tensor].get())
            buffer = self._buffer(tensor)
            return buffer.layout.unpack(np.asarray(buffer.array.get()))

    def calls(self, section: str) -> Sequence[BoundCall]:
        return [step.call for step in self._sections[section].steps if step.call is not None]

    def measure(self, section: str, repeats: int) -> list[float]:
        cp = cupy()
        times = []
        binder = self._sections[section]
        with device().stream, self._restored(binder):
            for step in binder.steps:
                if step.call is None:
                    step.launch()
                    continue
                spent, stream = [], self._lanes[step.lane].stream
                for _ in range(repeats + 1):
                    start, stop = cp.cuda.Event(), cp.cuda.Event()
                    start.record(stream)
                    step.launch()
                    stop.record(stream)
                    stop.synchronize()
                    spent.append(cp.cuda.get_elapsed_time(start, stop) / 1e3)
                times.append(median(spent[1:]))
        return times

    def convolutions(self) -> dict[str, tuple[ConvGraph, Buffer]]:
        """Every convolution with the buffer that it writes, by the name of its choice."""
        return {
            name: found
            for binder in self._sections.values()
            for name, found in binder.convolutions.items()
        }

    def step_seconds(self, section: str, repeats: int) -> float:
        """Seconds of one run of a captured section, the fastest of so many after a warm-up."""
        self.run(section)
        best = float("inf")
        for _ in range(repeats):
            begin = time.perf_counter()
            self.run(section, 10)
            best = min(best, (time.perf_counter() - begin) / 10)
        return best

    def close(self) -> None:
        synchronize()
        self._captured.clear()
        self._sections.clear()
        self._store = Store()

    def _buffer(self, tensor: Tensor) -> Buffer:
        if tensor.role in SHARED:
            return self._store.buffers[tensor]
        return self._sections[tensor.section].buffers[tensor]


def _launch(steps: Sequence[Step]) -> None:
    cp = cupy()
    for step in steps:
        try:
            step.launch()
        except cp.cuda.runtime.CUDARuntimeError as error:
            raise _named(step, error) from None
        except LibraryError as error:
            if step.call is not None:
                error.arguments["op"] = step.call.op.label()
            raise


def _named(step: Step, error: Exception) -> LibraryError:
    call = step.call
    if call is None:
        return LibraryError("CUDA", "cudaStreamWaitEvent", str(error), {}, AFTER)
    shown = {"op": call.op.label(), **call.arguments}
    return LibraryError(call.library, call.function, str(error), shown, AFTER)

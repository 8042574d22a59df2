"""A trained network as a function of arrays: pictures in, probabilities out."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ...backends.base import Backend, Executable
from ...graph.graph import Graph, Shape
from ..augmentation import TEST_TIME, TestTime
from ..network import SEEN
from ..records.formats.calibration import familiarity_of
from .trained import Trained

Function: TypeAlias = "Callable[[NDArray[Any]], NDArray[np.float32]]"

# Batches that stay compiled, of whatever size, each with a copy of the parameters.
_KEPT = 3


class Forward:
    """Computes the probabilities of a trained network on a device, in batches.

    A batch of a new size is compiled, unless a compiled one has room for it and is at most half
    empty then; a size that comes twice in succession gets a batch of its own. So are pictures of
    another height or width. The three that were used last stay compiled. Threads may share the
    object; they take turns. ``tta``: a name of TEST_TIME, over whose views scores are averaged.
    """

    def __init__(self, trained: Trained, backend: Backend, tta: str = "none") -> None:
        self.trained, self._backend = trained, backend
        self._views = TEST_TIME[tta]
        self._views.check(trained.input_shape, len(trained.classes))
        self._lock = threading.Lock()
        self._batches: dict[tuple[int, bool, Shape], _Numbers] = {}
        self._last: Shape = ()
        # In a call of less than a millisecond each look-up counts: the shape and type of the batch
        # that was used last, if it has no other size, what computes it, and the most of a batch.
        self._latest: tuple[Shape, np.dtype[Any], Function] | None = None
        self._most = trained.config.data.evaluation_batch_size
        self._values = trained.checkpoint.provenance.columns is not None

    def __call__(self, inputs: NDArray[np.uint8] | NDArray[np.float32]) -> NDArray[np.float32]:
        """inputs: (N, C, H, W), pixels as uint8 or normalised numbers as float32; result: (N, K).

        Of a table in a file, numbers are those of its columns, which each network normalises.
        A picture alone is computed as a batch of one. In larger batches sums may be added in
        another order, which changes last bits.
        """
        count, most = len(inputs), self._most
        with self._lock:
            latest = self._latest
            if latest is not None and latest[0] == inputs.shape and latest[1] == inputs.dtype:
                return latest[2](inputs)
            if 0 < count <= most:
                return self._part(inputs)[1]
            found = np.empty((count, len(self.trained.classes)), np.float32)
            for first in range(0, count, most):
                found[first : first + most] = self._part(inputs[first : first + most])[1]
        return found

    def judged(
        self, inputs: NDArray[np.uint8] | NDArray[np.float32]
    ) -> tuple[NDArray[np.float32], NDArray[np.float64] | None]:
        """The same, and the familiarity of each, (N,), None where that is not measured."""
        trust = self.trained.trust
        if trust is None or not trust.arrays:
            return self(inputs), None
        answers, found = np.zeros((len(inputs), len(self.trained.classes)), np.float32), []
        with self._lock:
            for first in range(0, len(inputs), self._most):
                part = inputs[first : first + self._most]
                batch, answers[first : first + len(part)] = self._part(part)
                found.append(familiarity_of(*batch.seen(len(part)), trust.arrays))
        return answers, np.concatenate(found or [np.zeros(0)])

    def _part(self, part: NDArray[Any]) -> tuple[_Numbers, NDArray[np.float32]]:
        origin = self.trained.checkpoint.provenance
        if origin.columns is not None:
            part = origin.columns.filled(part)
        if self._values or (len(part) == 1 and part.dtype == np.uint8):
            part = origin.preprocessing(part)
        batch = self._batch(part.shape, part.dtype)
        return batch, batch(part)

    def close(self) -> None:
        """Free what was compiled; a later call compiles again."""
        with self._lock:
            self._latest = None
            while self._batches:
                self._batches.popitem()[1].close()

    def _batch(self, shape: Shape, dtype: np.dtype[Any]) -> _Numbers:
        """A compiled batch with room for inputs (N, C, H, W)."""
        count, pixels, picture = shape[0], dtype == np.uint8, shape[1:]
        sizes = [size for size, *kind in self._batches if kind == [pixels, picture]]
        roomy = [size for size in sizes if 1 < count <= size <= 2 * count]
        size = count if shape == self._last or not roomy else min(roomy)
        self._last = shape
        # The one that was used last is the last to go.
        batch = self._batches.pop((size, pixels, picture), None)
        if batch is None:
            while len(self._batches) >= _KEPT:
                self._batches.pop(next(iter(self._batches))).close()
            kind = _Pixels if pixels else _Numbers
            trained = self.trained.at_size((picture[1], picture[2]))
            batch = kind(trained, self._backend, size, self._views)
        self._batches[size, pixels, picture] = batch
        alike = size == count and not self._values
        self._latest = (shape, dtype, batch.whole) if alike else None
        return batch


class _Numbers:
    """The forward pass of a batch of normalised inputs, compiled.

    ``whole`` computes as many as in the last call, if these were all that there is room for.
    """

    def __init__(self, trained: Trained, backend: Backend, size: int, views: TestTime) -> None:
        self._size = size
        self._graph = trained.network.infer_graph(size, views)
        self._executable = trained.compile(backend, self._graph)
        self.whole = _function(self._executable, self._graph, "x")

    def __call__(self, inputs: NDArray[Any]) -> NDArray[np.float32]:
        """(n, C, H, W) float32 -> (n, K), n at most the size of the batch."""
        count = len(inputs)
        answers = self.whole(self._fitted(inputs))
        return answers if count == self._size else answers[:count].copy()

    def seen(self, count: int) -> tuple[NDArray[Any], NDArray[Any]]:
        """``SEEN`` of the last call, which had so many pictures."""
        features, logits = (self._executable.read(self._graph[name])[:count] for name in SEEN)
        return features, logits

    def _fitted(self, inputs: NDArray[Any]) -> NDArray[Any]:
        if len(inputs) == self._size:
            return inputs
        return np.resize(inputs, (self._size, *inputs.shape[1:]))

    def close(self) -> None:
        """Free it."""
        self._executable.close()


class _Pixels(_Numbers):
    """The same of bytes, which the device scales: a quarter of what the numbers would take."""

    def __init__(self, trained: Trained, backend: Backend, size: int, views: TestTime) -> None:
        self._size, self._count = size, 0
        scaling = trained.checkpoint.provenance.preprocessing
        self._graph = trained.network.classify_graph(size, scaling, views)
        self._executable = trained.compile(backend, self._graph, "device")
        labels = self._graph["labels"]
        self._executable.write(labels, np.zeros(labels.shape, labels.dtype))
        self._executable.write(self._graph["step"], np.zeros(1, np.int64))
        self.whole = _function(self._executable, self._graph, "images")

    def _fitted(self, inputs: NDArray[Any]) -> NDArray[Any]:
        count = len(inputs)
        if count != self._count:
            # Sample -1 is one of zeros.
            order = np.full(self._size, -1, np.int32)
            order[:count] = np.arange(count)
            # What nobody can change is looked at once.
            order.flags.writeable = False
            self._executable.write(self._graph["order"], order)
            self._count = count
        return inputs


def _function(executable: Executable, graph: Graph, given: str) -> Function:
    return executable.function(graph.name, graph[given], graph["probabilities"])

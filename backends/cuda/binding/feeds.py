"""Data sets that stay in host memory: their batches are copied to the device ahead of the step.

A thread gathers the next batches into page-locked buffers and copies them on a stream of its own,
while the device computes; before a step its batch moves into a staging buffer, whose address never
changes, so that the captured step reads it as it would read the data set. What a step computes is
the same to the last bit.

Who binds a gathering operation takes ``feeds.staged(section, tensor)`` for its images, labels and
order, and for the rows that random numbers are keyed by ``feeds.staging(section).rows``; who runs a
section calls ``feeds.load(section)`` before every launch of a step.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import cached_property, partial
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ....graph.graph import Graph, Tensor
from ....graph.ops import GatherBatch
from ...read_ahead import ReadAhead
from ..libraries.layout import padded
from ..libraries.runtime import device, device_errors

# Batches on their way: one is read, one is ready, one is copied, one is gathered.
SLOTS = 4
_ALIGNMENT = 256

Host = NDArray[Any]


class Packed:
    """One batch of an operation in one stretch of bytes: samples, labels, places, rows.

    images: (N, C, H, W) in the order of the batch; labels: (N,) or (N, K); both of the types of the
    operation's; order: (N,) int32, the place in ``images``, -1 for a masked sample; rows: (N,)
    int32, the row of the whole data set, which random numbers are keyed by.
    """

    def __init__(self, buffer: Any, op: GatherBatch) -> None:
        self.buffer, start = buffer, 0
        found = []
        for shape, dtype, size in self._parts(op):
            found.append(buffer[start : start + size].view(dtype).reshape(shape))
            start += padded(size, _ALIGNMENT)
        self.images, self.labels, self.order, self.rows = found

    @staticmethod
    def _parts(op: GatherBatch) -> Iterator[tuple[tuple[int, ...], str, int]]:
        """Shape, type and bytes of each."""
        n = op.x.shape[0]
        shapes = ((op.x.shape, op.images.dtype), (op.target.shape, op.target.dtype))
        for shape, dtype in (*shapes, ((n,), "int32"), ((n,), "int32")):
            yield shape, dtype, prod(shape) * (1 if dtype == "uint8" else 4)

    @classmethod
    def nbytes(cls, op: GatherBatch) -> int:
        return sum(padded(size, _ALIGNMENT) for *_, size in cls._parts(op))


class _Slot:
    """A page-locked buffer and its copy on the device.

    ``copied``: the device has it; ``taken``: the staging buffer has it.
    """

    def __init__(self, op: GatherBatch, cuda: Any) -> None:
        self._op = op
        self._memory = cuda.Pinned(Packed.nbytes(op))
        self.device = cuda.empty(Packed.nbytes(op), "uint8")
        self.copied = cuda.Event()
        self.taken = cuda.Event()

    @cached_property
    def host(self) -> Packed:
        """The page-locked buffer, zeroed at first."""
        buffer = np.asarray(self._memory)
        buffer[...] = 0
        return Packed(buffer, self._op)


class Feed:
    """The batches of one section, in the order that its gathering operation would read them.

    ``held``: the data sets in host memory by tensor; ``position`` gives the section's present step,
    asked for when the first batch after ``restart`` is wanted; ``cuda``: see Store.
    """

    def __init__(
        self, op: GatherBatch, held: Mapping[Tensor, Host], position: Callable[[], int], cuda: Any
    ) -> None:
        self.op, self._cuda, self._held, self._position = op, cuda, held, position
        self.staging = Packed(cuda.zeros(Packed.nbytes(op), "uint8"), op)
        self._copies = cuda.Stream()
        self._slots = [_Slot(op, cuda) for _ in range(SLOTS)]
        self._free = deque(self._slots)
        self._ahead: deque[tuple[_Slot, Future[None]]] = deque()
        self._next: int | None = None
        self._read_ahead = ReadAhead()
        use = cuda.use_device
        self._thread = ThreadPoolExecutor(1, "dnnstack-feed", initializer=use)

    def restart(self) -> None:
        """Forget batches gathered ahead: the data, the order or the step is another now."""
        for slot, sent in self._ahead:
            sent.cancel()
            self._free.append(slot)
        self._ahead.clear()
        self._next = None

    def load(self) -> None:
        """Let the step that is launched next on our stream find its batch in ``staging``.

        Raises what went wrong in the thread that gathers.
        """
        self._fill()
        slot, sent = self._ahead[0]
        sent.result()
        self._ahead.popleft()
        stream = device().stream
        stream.wait_event(slot.copied)
        kind = self._cuda.runtime.memcpyDeviceToDevice
        self._copy(self.staging.buffer, slot.device, kind, stream)
        slot.taken.record(stream)
        self._free.append(slot)
        self._fill()

    def _fill(self) -> None:
        """Have the next batches gathered, as many as there are slots for."""
        if self._next is None:
            self._next = self._position()
        while self._free:
            slot = self._free.popleft()
            self._ahead.append((slot, self._thread.submit(self._send, slot, self._next)))
            self._next += 1

    def close(self) -> None:
        """End the thread, and wait for its last copy: the memory goes back to another stream."""
        self._thread.shutdown(cancel_futures=True)
        with suppress(*device_errors()):
            self._copies.synchronize()

    def _send(self, slot: _Slot, step: int) -> None:
        slot.copied.synchronize()
        self._gather(slot.host, step)
        self._copies.wait_event(slot.taken)
        kind = self._cuda.runtime.memcpyHostToDevice
        self._copy(slot.device, slot.host.buffer, kind, self._copies)
        slot.copied.record(self._copies)

    def _copy(self, target: Any, source: Any, kind: int, stream: Any) -> None:
        """Copy between arrays of one size, device or page-locked, when the stream comes to it."""
        start = source.ctypes.data if isinstance(source, np.ndarray) else int(source.data.ptr)
        self._cuda.runtime.memcpyAsync(
            int(target.data.ptr), start, int(target.nbytes), kind, int(stream.ptr)
        )

    def _gather(self, target: Packed, step: int) -> None:
        n = self.op.x.shape[0]
        order = self._held[self.op.order]
        at = step % max(len(order) // n, 1)
        rows = order[at * n : (at + 1) * n]
        target.rows[...] = rows
        target.order[...] = np.where(rows < 0, -1, np.arange(n, dtype=np.int32))
        images = self._held[self.op.images]
        self._read_ahead(images, order, at * n, n)
        # A masked sample's picture is not looked at; "clip" spares NumPy a copy of the output.
        np.take(images, rows, axis=0, out=target.images, mode="clip")
        np.take(self._held[self.op.labels], rows, axis=0, out=target.labels, mode="clip")


class Feeds:
    """The feeds of an executable's sections, and the data sets that they gather from.

    ``position(tensor)`` gives the value of a step counter; ``cuda``: see Store.
    """

    def __init__(
        self, graphs: Mapping[str, Graph], position: Callable[[Tensor], int], cuda: Any
    ) -> None:
        self._held: dict[Tensor, Host] = {}
        self._feeds: dict[str, Feed] = {}
        self._last: dict[Tensor, str] = {}
        for name, graph in graphs.items():
            for op in graph.ops:
                if isinstance(op, GatherBatch):
                    self._feeds[name] = Feed(op, self._held, partial(position, op.step), cuda)
        self._tensors = {t for feed in self._feeds.values() for t in _sources(feed.op)}

    def __bool__(self) -> bool:
        return bool(self._feeds)

    def holds(self, tensor: Tensor) -> bool:
        """Whether a data tensor lives here and not on the device."""
        return tensor in self._tensors

    def staging(self, section: str) -> Packed:
        """Where the section's step finds its batch."""
        return self._feeds[section].staging

    def staged(self, section: str, tensor: Tensor) -> Any:
        """The device array that a section reads in the place of a data tensor."""
        feed = self._feeds[section]
        parts = (feed.staging.images, feed.staging.labels, feed.staging.order)
        return dict(zip(_sources(feed.op), parts, strict=True))[tensor]

    def write(self, tensor: Tensor, array: Host) -> None:
        """Take a data tensor. Samples are referred to, not copied; the caller leaves them be."""
        large = any(tensor == feed.op.images for feed in self._feeds.values())
        self._held[tensor] = np.asanyarray(array, order="C") if large else np.array(array)
        for feed in self._feeds.values():
            if tensor in _sources(feed.op):
                feed.restart()

    def read(self, tensor: Tensor) -> Host:
        """A copy of a data tensor. Raises KeyError for one that was never written."""
        return np.array(self._held[tensor])

    def moved(self, tensor: Tensor) -> None:
        """Say that a step counter was written."""
        for feed in self._feeds.values():
            if feed.op.step == tensor:
                feed.restart()

    def load(self, section: str) -> None:
        """Before every launch of a section's step; nothing to do if nothing is gathered.

        A section that runs before its data sets are written, to be timed, finds zeros.
        """
        feed = self._feeds.get(section)
        if feed is None or not all(t in self._held for t in _sources(feed.op)):
            return
        if self._last.get(feed.op.step, section) != section:
            # Another section has moved the counter that they share.
            feed.restart()
        self._last[feed.op.step] = section
        feed.load()

    def close(self) -> None:
        for feed in self._feeds.values():
            feed.close()


def _sources(op: GatherBatch) -> tuple[Tensor, Tensor, Tensor]:
    return op.images, op.labels, op.order

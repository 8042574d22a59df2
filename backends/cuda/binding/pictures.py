"""The data set that is on the device already, for the next training that reads it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from numpy.typing import NDArray

from ....graph.graph import Graph, Tensor

Host = NDArray[Any]


class Pictures:
    """Holds the pictures of one data set between two executables, of which one has them at a time.

    They are the host's array that they were copied from, which nobody can change, and the device's.
    """

    def __init__(self) -> None:
        self._held: tuple[Host, Any] | None = None

    def reserve(self, graphs: Iterable[Graph]) -> int:
        """The bytes that are held for these sections; what none of them can take is freed."""
        read = {t for graph in graphs for t in graph.tensors() if t.role == "data"}
        if self._held is not None and not any(map(self._fits, read)):
            self.free()
        return 0 if self._held is None else int(self._held[1].nbytes)

    def take(self, tensor: Tensor) -> tuple[Host, Any] | None:
        """The host's and the device's array for a tensor, which are no longer held then."""
        if not self._fits(tensor):
            return None
        held, self._held = self._held, None
        return held

    def give(self, tensor: Tensor, host: Host, array: Any) -> None:
        """Hold these from now on, if they are samples; targets, tables and orders are small."""
        if len(tensor.shape) == 4:
            self._held = host, array

    def free(self) -> None:
        self._held = None

    def _fits(self, tensor: Tensor) -> bool:
        return (
            self._held is not None
            and tensor.dtype == self._held[1].dtype
            and tensor.shape == tuple(self._held[1].shape)
        )

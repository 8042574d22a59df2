"""The registry of kernels: what computes an operation on a device, by the operation's type."""

from __future__ import annotations

from collections.abc import Collection
from typing import TypeVar

from ..common.errors import BackendUnavailableError
from ..graph.graph import Op

KernelT = TypeVar("KernelT")


class Registry(dict[type[Op], KernelT]):
    """The kernels of a device; ``fall_back`` names the operations that have none of their own.

    A kernel of oneDNN may also hand a single operation on, whose form the library does not have, to
    the reference (``onednn/fallback.py``); ``explain`` shows both.
    """

    def __init__(self, device: str) -> None:
        super().__init__()
        self._device = device
        self._defaults: dict[type[Op], KernelT] = {}

    def fall_back(self, kernel: KernelT, kinds: Collection[type[Op]]) -> None:
        """Let a kernel compute those of ``kinds`` that have none of their own."""
        self._defaults = dict.fromkeys(kinds, kernel)

    def default(self, op: Op) -> KernelT:
        """The kernel of ``fall_back`` for an operation."""
        return self._defaults[type(op)]

    def find(self, kind: type[Op]) -> KernelT | None:
        """The kernel of operations of this type; None where there is none."""
        return self.get(kind, self._defaults.get(kind))

    def of(self, op: Op) -> KernelT:
        """The kernel of an operation. Raises BackendUnavailableError where there is none."""
        kernel = self.find(type(op))
        if kernel is None:
            raise BackendUnavailableError(
                f"device '{self._device}': {op.label()} has no kernel there; use --device cpu"
            )
        return kernel

"""The registry of kernels: what computes an operation on a device, by the operation's type."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from ..common.errors import BackendUnavailableError
from ..graph.graph import Graph, Op

KernelT = TypeVar("KernelT")
_HANDED: list[Callable[[Op], bool]] = []


@contextmanager
def handed_on(wanted: Callable[[Op], bool]) -> Iterator[None]:
    """In this block every device hands these operations to what it falls back to."""
    _HANDED.append(wanted)
    try:
        yield
    finally:
        _HANDED.remove(wanted)


class Registry(dict[type[Op], KernelT]):
    """The kernels of a device; ``fall_back`` names the operations that have none of their own.

    A kernel of oneDNN may also hand a single operation on, whose form the library does not have, to
    the reference (``onednn/fallback.py``); ``explain`` shows both.
    """

    def __init__(self, device: str) -> None:
        super().__init__()
        self._device = device
        self._default: KernelT | None = None
        self._kinds: Collection[type[Op]] = ()
        self._unable: Callable[[Op], bool] = lambda op: False

    def fall_back(
        self,
        kernel: KernelT,
        kinds: Collection[type[Op]],
        unable: Callable[[Op], bool] = lambda op: False,
    ) -> None:
        """Let a kernel compute those of ``kinds`` that have none of their own.

        ``kinds`` may grow: plugins bring operations along. ``unable``: whether the own kernel of an
        operation's type cannot compute this one.
        """
        self._default, self._kinds, self._unable = kernel, kinds, unable

    def default(self, op: Op) -> KernelT:
        """The kernel of ``fall_back`` for an operation. Raises BackendUnavailableError."""
        if self._default is None or type(op) not in self._kinds:
            if _is_foreign(op):
                raise BackendUnavailableError(_not_entered(op))
            raise BackendUnavailableError(
                f"device '{self._device}': {op.label()} has no kernel there; use --device cpu"
            )
        return self._default

    def find(self, kind: type[Op]) -> KernelT | None:
        """The kernel of operations of this type; None where there is none."""
        return self.get(kind, self._default if kind in self._kinds else None)

    def computes(self, op: Op) -> bool:
        """Whether an operation has a kernel of its own here."""
        if self._default is not None and any(wanted(op) for wanted in _HANDED):
            return False
        return type(op) in self and not self._unable(op)

    def of(self, op: Op) -> KernelT:
        """The kernel of an operation. Raises BackendUnavailableError where there is none."""
        return self[type(op)] if self.computes(op) else self.default(op)


def without_kernel(graphs: Iterable[Graph], registry: Registry[KernelT]) -> list[str]:
    """The operations of plugins that have no kernel of their own on a device, each once.

    Those of ours without one are known, and cost little.
    """
    found = (op.label() for graph in graphs for op in graph.ops if _is_of_plugin(op))
    lacking = {op.label() for graph in graphs for op in graph.ops if not registry.computes(op)}
    return [label for label in dict.fromkeys(found) if label in lacking]


def _is_of_plugin(op: Op) -> bool:
    """Whether an operation, or the formula or augmentation in it, is defined outside dnnstack."""
    parts = (op, getattr(op, "formula", op), getattr(op, "augment", op))
    return any(_is_foreign(part) for part in parts if not isinstance(part, tuple))


def _is_foreign(part: object) -> bool:
    return type(part).__module__.partition(".")[0] != __name__.partition(".")[0]


def _not_entered(op: Op) -> str:
    """What to add to the file of an operation that has no kernel on any device."""
    name = type(op).__name__
    module = sys.modules.get(type(op).__module__)
    file = getattr(module, "__file__", None) or type(op).__module__
    arguments = ", ".join(("op", *op.inputs, *op.updates))
    return (
        f"{file}: the operation {op.label()} has no kernel on any device; add a function of "
        f"NumPy, with @kernel({name}, ...) before def name({arguments})"
    )

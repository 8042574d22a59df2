"""The entries of an executable's list: library calls and work of the host."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ...graph.graph import Op
from ..base import BoundCall
from .primitive import Primitive


@dataclass(frozen=True)
class Step:
    """One entry of the list: ``function(*arguments)`` returns a dnnl status or None."""

    function: Callable[..., int | None]
    arguments: tuple[Any, ...]
    call: BoundCall
    primitive: Primitive | None = None


def on_host(
    op: Op, function: Callable[[], None], name: str, details: Mapping[str, str] | None
) -> Step:
    """What NumPy does, by a function without arguments."""
    return Step(function, (), BoundCall(op, "numpy", name, "", details or {}))

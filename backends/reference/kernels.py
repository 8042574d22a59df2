"""The table of kernels: for every type of operation one function, arrays in, arrays out.

A kernel gets the operation and one argument for each of its ``inputs`` and ``updates``: an array, a
tuple of arrays, or None if an optional tensor is missing. It returns what the operation
``outputs`` and ``updates`` in the same form: one value, or a tuple if there are several fields.
It never writes into an argument, so an output may be a view of an input. It computes in the
precision of its arguments, so one function serves float32 and float64.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from ...common.records import dataclass
from ...graph.graph import Op
from ..registry import Registry

Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True)
class Kernel:
    """What computes an operation, and the NumPy function that does its bulk."""

    compute: Callable[..., Any]
    function: str


KERNELS: Registry[Kernel] = Registry("numpy")


def kernel(op: type[Op], function: str) -> Callable[[Function], Function]:
    """Enter the decorated function as the kernel of ``op``; ``function`` names NumPy's part."""

    def enter(compute: Function) -> Function:
        KERNELS[op] = Kernel(compute, function)
        return compute

    return enter

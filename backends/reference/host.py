"""A kernel of this backend within another one, on whatever holds that one's tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...graph.graph import Op, Tensor
from . import kernels

Get = Callable[[], Any]
Put = Callable[[Any], None]


def on_host(
    op: Op, fetching: Callable[[Tensor], Get], storing: Callable[[Tensor], Put]
) -> tuple[Callable[[], None], str]:
    """A function that computes an operation by this backend's kernel, and what it calls.

    fetching, storing: make what gets the array of a tensor, and what takes it. What the operation
    updates in place is fetched and stored; inputs come first.
    """
    kernel = kernels.KERNELS.of(op)
    fetch = [_each(getattr(op, field), fetching) for field in (*op.inputs, *op.updates)]
    store = [_all(getattr(op, field), storing) for field in (*op.outputs, *op.updates)]

    def run() -> None:
        values = kernel.compute(op, *[get() for get in fetch])
        for put, value in zip(store, values if len(store) > 1 else (values,), strict=True):
            put(value)

    return run, kernel.function


def _each(field: Tensor | tuple[Tensor, ...] | None, fetching: Callable[[Tensor], Get]) -> Get:
    if field is None:
        return lambda: None
    if isinstance(field, tuple):
        parts = [fetching(tensor) for tensor in field]
        return lambda: tuple(part() for part in parts)
    return fetching(field)


def _all(field: Tensor | tuple[Tensor, ...] | None, storing: Callable[[Tensor], Put]) -> Put:
    if field is None:
        return lambda value: None
    if not isinstance(field, tuple):
        return storing(field)
    parts = [storing(tensor) for tensor in field]

    def put_all(values: Any) -> None:
        for part, value in zip(parts, values, strict=True):
            part(value)

    return put_all

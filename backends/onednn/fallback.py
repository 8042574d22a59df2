"""The path for what oneDNN does not have, or has as slow reference code alone: NumPy's kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...graph.graph import Op, Tensor
from ..reference import kernels
from .bind import KERNELS, Binder

NOT_FAST = "oneDNN has no fast kernel for it"


def reference(b: Binder, op: Op, reason: str = NOT_FAST) -> None:
    """Bind the reference backend's kernel of an operation; what it updates must be state.

    Where the operation was tried in bfloat16, oneDNN's primitive for float32 comes first.
    """
    if b.dtype != "float32":
        b.dtype = "float32"
        return b.bind_one(op)
    fetch = [_fetcher(b, getattr(op, field)) for field in (*op.inputs, *op.updates)]
    store = [_writer(b, getattr(op, field)) for field in (*op.outputs, *op.updates)]
    kernel = kernels.KERNELS.of(op)

    def run() -> None:
        values = kernel.compute(op, *[get() for get in fetch])
        for put, value in zip(store, values if len(store) > 1 else (values,), strict=True):
            put(value)

    return b.host(op, run, kernel.function, {"reason": reason})


def _fetcher(b: Binder, field: Tensor | tuple[Tensor, ...] | None) -> Callable[[], Any]:
    if field is None:
        return lambda: None
    if isinstance(field, tuple):
        parts = [_fetcher(b, tensor) for tensor in field]
        return lambda: tuple(part() for part in parts)
    if field.role == "data":
        return b.data(field)
    array = b.plain(field).array(field.shape) if field.dtype == "float32" else b.array(field)
    return lambda: array


def _writer(b: Binder, field: Tensor | tuple[Tensor, ...] | None) -> Callable[[Any], None]:
    if field is None:
        return lambda value: None
    if isinstance(field, tuple):
        parts = [_writer(b, tensor) for tensor in field]

        def put_all(values: Any) -> None:
            for part, value in zip(parts, values, strict=True):
                part(value)

        return put_all
    if field.role == "state" and field.dtype == "float32":
        array = b.home(field).array(field.shape)
    elif field.dtype == "float32":
        array = b.output(field).array(field.shape)
    else:
        array = b.array(field)

    def put(value: Any) -> None:
        array[...] = value

    return put


KERNELS.fall_back(reference, kernels.KERNELS)

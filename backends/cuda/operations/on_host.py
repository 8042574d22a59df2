"""What a GPU has no kernel for, an operation of a plugin: NumPy's kernel, with copies both ways."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from ....graph.graph import Op, Tensor
from ...reference import kernels
from ..binding.bind import KERNELS, Binder
from ..binding.store import Buffer
from ..libraries.layout import BFLOAT

REASON = "the GPU has no kernel for it"


def reference(b: Binder, op: Op) -> None:
    """Copy what the operation reads to the host, compute there, and copy what it writes back."""
    fetch = [_fetcher(b, getattr(op, field)) for field in (*op.inputs, *op.updates)]
    store = [_writer(b, getattr(op, field)) for field in (*op.outputs, *op.updates)]
    kernel = kernels.KERNELS.of(op)

    def run() -> None:
        with np.errstate(all="ignore"):
            values = kernel.compute(op, *[get() for get in fetch])
        for put, value in zip(store, values if len(store) > 1 else (values,), strict=True):
            put(value)

    copied = sum(t.nbytes for t in (*op.reads(), *op.writes()))
    b.host(op, run, kernel.function, {"reason": REASON, "copied": f"{copied:,} bytes"})


def _fetcher(b: Binder, field: Tensor | tuple[Tensor, ...] | None) -> Callable[[], Any]:
    if field is None:
        return lambda: None
    if isinstance(field, tuple):
        parts = [_fetcher(b, tensor) for tensor in field]
        return lambda: tuple(part() for part in parts)
    if field.role == "data":
        device = b.data(field)
        return lambda: np.asarray(device.get())
    held = b.home(field)
    return lambda: held.layout.unpack(np.asarray(held.array.get()))


def _writer(b: Binder, field: Tensor | tuple[Tensor, ...] | None) -> Callable[[Any], None]:
    if field is None:
        return lambda value: None
    if isinstance(field, tuple):
        parts = [_writer(b, tensor) for tensor in field]

        def put_all(values: Any) -> None:
            for part, value in zip(parts, values, strict=True):
                part(value)

        return put_all
    # What is updated in place has its home; an output gets one.
    known = b.planned(field)
    held = b.home(field) if known is not None else b.output(field)

    def put(value: Any) -> None:
        _set(b, field, held, np.asarray(value, field.dtype))

    return put


def _set(b: Binder, tensor: Tensor, held: Buffer, value: Any) -> None:
    held.array.set(held.layout.pack(value))
    if tensor.role == "parameter":
        b.store.renew(tensor, replace(held.layout, dtype=BFLOAT).pack(value))


def _lacks_source(op: Op) -> bool:
    """Whether the operation's formula is written in NumPy alone."""
    formula = getattr(op, "formula", None)
    return formula is not None and not formula.cuda


KERNELS.fall_back(reference, kernels.KERNELS, _lacks_source)

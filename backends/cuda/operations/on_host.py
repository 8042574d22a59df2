"""What a GPU has no kernel for, an operation of a plugin: NumPy's kernel, with copies both ways."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from ....graph.graph import Op, Tensor
from ...reference import kernels
from ...reference.host import on_host
from ..binding.bind import KERNELS, Binder
from ..binding.buffer import Buffer
from ..libraries.layout import BFLOAT

REASON = "the GPU has no kernel for it"


def reference(b: Binder, op: Op) -> None:
    """Copy what the operation reads to the host, compute there, and copy what it writes back."""
    compute, function = on_host(op, partial(_fetcher, b), partial(_writer, b))

    def run() -> None:
        with np.errstate(all="ignore"):
            compute()

    copied = sum(t.nbytes for t in (*op.reads(), *op.writes()))
    b.host(op, run, function, {"reason": REASON, "copied": f"{copied:,} bytes"})


def _fetcher(b: Binder, tensor: Tensor) -> Callable[[], Any]:
    if tensor.role == "data":
        device = b.data(tensor)
        if not b.store.feeds.holds(tensor):
            return lambda: b.store.read_data(tensor)
        return lambda: np.asarray(device.get())
    held = b.home(tensor)
    return lambda: held.layout.unpack(np.asarray(held.array.get()))


def _writer(b: Binder, tensor: Tensor) -> Callable[[Any], None]:
    # What is updated in place has its home; an output gets one.
    known = b.planned(tensor)
    held = b.home(tensor) if known is not None else b.output(tensor)

    def put(value: Any) -> None:
        _set(b, tensor, held, np.asarray(value, tensor.dtype))

    return put


def _set(b: Binder, tensor: Tensor, held: Buffer, value: Any) -> None:
    held.array.set(held.layout.pack(value))
    if tensor.role == "parameter":
        b.store.renew(tensor, lambda: replace(held.layout, dtype=BFLOAT).pack(value))


def _lacks_source(op: Op) -> bool:
    """Whether the operation's formula is written in NumPy alone."""
    formula = getattr(op, "formula", None)
    return formula is not None and not formula.cuda


KERNELS.fall_back(reference, kernels.KERNELS, _lacks_source)

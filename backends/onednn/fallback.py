"""The path for what oneDNN does not have, or has as slow reference code alone: NumPy's kernel."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ...graph.graph import SHARED, Op, Tensor
from ..reference import kernels
from ..reference.host import on_host
from .bind import KERNELS, Binder
from .store import is_plain, store_plain

NOT_FAST = "oneDNN has no fast kernel for it"


def reference(b: Binder, op: Op, reason: str = NOT_FAST, exact: bool = False) -> None:
    """Bind the reference backend's kernel of an operation.

    ``exact``: it computes in float64, and only its results are rounded. Where the operation was
    tried in bfloat16, oneDNN's primitive for float32 comes first.
    """
    if b.dtype != "float32":
        b.dtype = "float32"
        return b.bind_one(op)
    run, function = on_host(op, partial(_fetcher, b, exact), partial(_writer, b))
    return b.host(op, run, function, {"reason": reason})


def _fetcher(b: Binder, exact: bool, tensor: Tensor) -> Callable[[], Any]:
    if tensor.role == "data":
        return b.data(tensor)
    array = b.plain(tensor).array(tensor.shape) if tensor.dtype == "float32" else b.array(tensor)
    if exact:
        return lambda: array.astype(np.float64)
    return lambda: array


def _writer(b: Binder, tensor: Tensor) -> Callable[[Any], None]:
    if tensor.dtype != "float32":
        array = b.array(tensor)
    else:
        # Parameters, their gradients and state lie where arenas were planned.
        planned = tensor.role in SHARED or tensor.role == "gradient"
        memory = b.home(tensor) if planned else b.output(tensor)
        if not is_plain(memory, tensor):
            return partial(store_plain, memory, tensor)
        array = memory.array(tensor.shape)

    def put(value: Any) -> None:
        array[...] = value

    return put


KERNELS.fall_back(reference, kernels.KERNELS)

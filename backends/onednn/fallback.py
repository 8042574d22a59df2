"""The path for what oneDNN does not have, or has as slow reference code alone: NumPy's kernel."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ...graph.graph import Op, Tensor
from ..reference import kernels
from ..reference.host import on_host
from .bind import KERNELS, Binder

NOT_FAST = "oneDNN has no fast kernel for it"


def reference(b: Binder, op: Op, reason: str = NOT_FAST, exact: bool = False) -> None:
    """Bind the reference backend's kernel of an operation; what it updates must be state.

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
    if tensor.role == "state" and tensor.dtype == "float32":
        array = b.home(tensor).array(tensor.shape)
    elif tensor.dtype == "float32":
        array = b.output(tensor).array(tensor.shape)
    else:
        array = b.array(tensor)

    def put(value: Any) -> None:
        array[...] = value

    return put


KERNELS.fall_back(reference, kernels.KERNELS)

"""The kernels of plugins: what they return is checked; NumPy would spread many wrong shapes."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import numpy as np

from ..backends.reference.kernels import kernel as enter_kernel
from ..common.errors import ShapeError
from ..graph.graph import Op, Tensor

Function = TypeVar("Function", bound=Callable[..., Any])


def kernel(op: type[Op], function: str) -> Callable[[Function], Function]:
    """Enter the decorated function as the kernel of ``op``; ``function`` names NumPy's part.

    It gets the operation and the arrays of its inputs, and returns one array for each output, of
    the output's shape. A training raises ShapeError, with the function's line, for anything else.
    """

    def enter(compute: Function) -> Function:
        @wraps(compute)
        def checked(given: Op, *inputs: Any) -> Any:
            found = compute(given, *inputs)
            _check(compute, given, found)
            return found

        enter_kernel(op, function)(checked)
        return compute

    return enter


def _check(compute: Callable[..., Any], op: Op, found: Any) -> None:
    names = (*op.outputs, *op.updates)
    values = found if len(names) > 1 else (found,)
    code = compute.__code__
    where = f"{code.co_filename}:{code.co_firstlineno}: {code.co_name}"
    if not isinstance(values, (tuple, list)) or len(values) != len(names):
        raise ShapeError(f"{where} must return {len(names)} values: {', '.join(names)}")
    for name, value in zip(names, values, strict=True):
        tensors = getattr(op, name)
        if isinstance(tensors, Tensor):
            _check_array(f"{where}, '{name}' of {op.label()}", tensors, value)


def _check_array(where: str, tensor: Tensor, value: Any) -> None:
    array = np.asarray(value)
    if array.dtype.kind not in "fiub":
        raise ShapeError(f"{where}: returned {type(value).__name__}, not an array of real numbers")
    if array.shape != tensor.shape:
        raise ShapeError(f"{where}: returned an array {array.shape}, but {tensor.shape} is needed")

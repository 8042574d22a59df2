"""Whether a plan of cuDNN computes its convolution: a trial on numbers whose result is known.

cuDNN 9.19 has a plan for filter gradients in float32 that computes wrong sums where the padding
differs between the sides; docs/testing.md says how that was found.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ....graph.geometry import Window
from ...known import Kind, numbers, product, result
from .layout import BFLOAT
from .operand import Operand
from .runtime import address_of, cuda_api, cupy

# What rounding may make of a result, which is a sum of positive numbers.
CLOSE = {"float32": 1e-3, BFLOAT: 2.0**-7}
OUTPUT: Mapping[Kind, str] = {"forward": "y", "data": "x", "filter": "w"}
# Runs a convolution, given device pointers by name.
Run = Callable[[Mapping[str, int]], None]


def is_right(
    kind: Kind,
    operands: Mapping[str, Operand],
    window: Window,
    run: Run,
    workspace: tuple[int, int],
) -> bool:
    """Whether ``run`` writes the known result everywhere.

    workspace: its address and size in bytes; it is filled with NaN first, as the output is. Called
    inside ``cupy_on``.
    """
    sizes = {name: operands[name].sizes for name in ("x", "w", "y")}
    arrays = {name: operand.array(0.0) for name, operand in operands.items()}
    for name in ("x", "w", "y"):
        if name != OUTPUT[kind]:
            own = numbers(sizes[name] if name == "w" else sizes[name][1:])
            _store(operands[name], arrays[name], product(own))
    found = arrays[OUTPUT[kind]]
    found.view("uint8").fill(0xFF)
    address, size = workspace
    if size:
        cuda_api().at_address(address, size).fill(0xFF)
    run(addresses(arrays))
    output = operands[OUTPUT[kind]]
    want = cupy().asarray(product(result(kind, sizes["x"], sizes["w"], sizes["y"], window)))
    gap = cupy().abs(_values(output, found) - want)
    return bool((gap <= CLOSE[output.dtype] * want).all())


def addresses(arrays: Mapping[str, Any]) -> dict[str, int]:
    """The device pointers of arrays."""
    return {name: address_of(array) for name, array in arrays.items()}


def _seen(operand: Operand, array: Any) -> Any:
    """A flat device array under the operand's sizes."""
    steps = tuple(step * array.itemsize for step in operand.strides)
    return cupy().lib.stride_tricks.as_strided(array, operand.sizes, steps)


def _store(operand: Operand, array: Any, values: np.ndarray[Any, Any]) -> None:
    """Small whole numbers, which bfloat16 holds; one picture stands for all of a batch."""
    if operand.dtype == BFLOAT:
        values = (values.view(np.uint32) >> 16).astype(np.uint16)
    _seen(operand, array)[...] = cupy().asarray(values)


def _values(operand: Operand, array: Any) -> Any:
    seen = _seen(operand, array)
    return (seen.astype("uint32") << 16).view("float32") if operand.dtype == BFLOAT else seen

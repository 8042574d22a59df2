"""Whether a plan of cuDNN computes its convolution: a trial on numbers whose result is known.

cuDNN 9.19 has a plan for filter gradients in float32 that computes wrong sums where the padding
differs between the sides; docs/testing.md says how that was found.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ....graph.geometry import Window
from ...known import Factors, Kind, Numbers, fine, numbers, product, result, signs, squares
from .layout import BFLOAT
from .operand import Operand
from .runtime import address_of, cuda_api, cupy

# What rounding may make of a result, which is a sum of positive numbers.
CLOSE = {"float32": 1e-3, BFLOAT: 2.0**-7}
# What float32 may lose, as a share of the root of the summed squares. TF32 loses 2e-4 or more, sums
# of 500,000 numbers, one by one, some 2e-5. cuDNN 9.28 has a plan that is asked for exact sums and
# loses 7e-4, though nothing of numbers that are all alike.
LOST = 8e-5
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
    arrays = _given(kind, operands, numbers)
    found = arrays[OUTPUT[kind]]
    found.view("uint8").fill(0xFF)
    address, size = workspace
    if size:
        cuda_api().at_address(address, size).fill(0xFF)
    run(addresses(arrays))
    output = operands[OUTPUT[kind]]
    want = cupy().asarray(_wanted(kind, operands, window, numbers))
    gap = cupy().abs(_values(output, found) - want)
    return bool((gap <= CLOSE[output.dtype] * want).all())


def is_exact(
    kind: Kind, operands: Mapping[str, Operand], window: Window, run: Run, relu: bool
) -> bool:
    """Whether ``run`` loses no more of operands in float32 than sums in float32 do.

    relu: negative results become 0. Called inside ``cupy_on``.
    """
    arrays = _given(kind, operands, fine)
    run(addresses(arrays))
    batch = signs(operands["x"].sizes[0]).sum()
    want = _wanted(kind, operands, window, fine, batch)
    found = _values(operands[OUTPUT[kind]], arrays[OUTPUT[kind]])
    gap = found - cupy().asarray(want.clip(0) if relu else want)
    size = _wanted(kind, operands, window, squares, batch**2).mean()
    return bool((gap * gap).mean() <= LOST**2 * size)


def _given(kind: Kind, operands: Mapping[str, Operand], factors: Factors) -> dict[str, Any]:
    """Device arrays: the operands with products of these factors, all else with 0."""
    arrays = {name: operand.zeros() for name, operand in operands.items()}
    for name in ("x", "w", "y"):
        if name != OUTPUT[kind]:
            sizes = operands[name].sizes
            own = factors(sizes if name == "w" else sizes[1:], name)
            values = product(own).astype(np.float32)
            if kind == "filter" and name == "x" and factors is fine:
                values = np.multiply.outer(signs(sizes[0]).astype(np.float32), values)
            _store(operands[name], arrays[name], values)
    return arrays


def _wanted(
    kind: Kind,
    operands: Mapping[str, Operand],
    window: Window,
    factors: Factors,
    pictures: float | None = None,
) -> Numbers:
    x, w, y = (operands[name].sizes for name in ("x", "w", "y"))
    return product(result(kind, x, w, y, window, factors, pictures))


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

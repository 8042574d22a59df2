"""Networks of 8-bit integers in fixed point: what a file of the format ``c`` computes, in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..backends.reference.kernels import KERNELS
from ..backends.reference.linear import by_group, unfold
from ..common.errors import ExportError
from ..common.records import dataclass
from ..graph.graph import Tensor
from ..graph.ops import Quantization, Quantize, QuantizedConv2d, QuantizedMatMul
from .plain import Plain

Array = NDArray[Any]
_PRODUCTS = QuantizedConv2d | QuantizedMatMul
_LARGEST = 2**31 - 1
# A bias of fewer bits would round away what it is for.
_LEAST_ROOM = 2**24


@dataclass(frozen=True, eq=False)
class FixedPoint:
    """A product of integers: of the sums v = x w + bias (32 bits) it answers v * scale as floats,
    or v * multiplier / 2^shift, rounded half up, within low and high; all but w: (outputs,)."""

    w: Array
    bias: Array
    scale: Array
    multiplier: Array
    shift: Array
    low: int
    high: int

    @classmethod
    def of(cls, op: Any, plain: Plain) -> FixedPoint:
        """Raises ExportError if sums could be too large for 32 bits."""
        whole, s, b = plain.integers(op)
        scale = op.given.scale * s
        rows = whole.reshape(len(s), -1) * np.sign(scale)[:, None]
        scale = np.abs(scale)
        reach = np.abs(rows).sum(1).max() * max(map(abs, op.given.bounds))
        room = min(_LARGEST - reach, 2**30)
        if room < _LEAST_ROOM:
            raise ExportError(
                f"layer '{op.origin[0].layer}': sums of {rows.shape[1]:,} products do not fit into "
                "32 bits; export it without --int8"
            )
        # Beside such a bias the weights count for nothing.
        constant = np.abs(b) > room * scale
        rows[constant] = 0
        scale = np.where(constant, np.abs(b) / room, np.where(scale == 0, 1.0, scale))
        ratio = scale / (op.to.scale if op.to else 1.0)
        shift = np.clip(31 - np.frexp(ratio)[1].astype(np.int64), 1, 62)
        multiplier = np.minimum(np.rint(np.ldexp(ratio, shift)), _LARGEST).astype(np.int64)
        low, high = op.to.bounds if op.to else (0, 0)
        bias, w = np.rint(b / scale).astype(np.int64), rows.reshape(whole.shape)
        low = max(low, 0) if op.relu else low
        return cls(w, bias, scale.astype(np.float32), multiplier, shift, low, high)

    def answers(self, op: Any, x: Array) -> Array:
        """What the operation answers to integers x, as float32."""
        x = x.astype(np.float64)
        if isinstance(op, QuantizedConv2d):
            total = by_group(self.w, op.groups) @ unfold(x, op.window, op.groups)
        else:
            total = x @ self.w.T
        along = (-1, *[1] * (len(op.y.shape) - 2))
        v = total.reshape(op.y.shape).astype(np.int64) + self.bias.reshape(along)
        if op.to is None:
            floats: Array = v.astype(np.float32) * self.scale.reshape(along)
            return np.maximum(floats, np.float32(0)) if op.relu else floats
        shift = self.shift.reshape(along)
        y = (v * self.multiplier.reshape(along) + (1 << (shift - 1))) >> shift
        return np.clip(y, self.low, self.high).astype(np.float32)


def of_pixels(plain: Plain, to: Quantization) -> tuple[Array, Array, int]:
    """(multiplier, offset, shift), by channel: the integer of a pixel is
    (raw * multiplier + offset) / 2^shift, rounded half up, in 32 bits."""
    scale, offset = plain.scale / to.scale, plain.shift / to.scale
    largest = (255 * np.abs(scale) + np.abs(offset)).max()
    shift = min(max(30 - int(np.ceil(np.log2(largest + 1e-9))), 1), 30)
    multiplier, plus = (np.rint(np.ldexp(v, shift)).astype(np.int64) for v in (scale, offset))
    return multiplier, plus, shift


def pixels_as_integers(raw: Array, plain: Plain, to: Quantization) -> Array:
    """What C makes of pixels; raw: (..., C)."""
    multiplier, offset, shift = of_pixels(plain, to)
    whole: Array = np.clip((raw * multiplier + offset + (1 << (shift - 1))) >> shift, *to.bounds)
    return whole


def starts_in_integers(plain: Plain) -> bool:
    """Whether pixels become integers without being floats before."""
    readers = plain.graph.consumers(plain.x)
    return plain.pixels and len(readers) == 1 and isinstance(readers[0], Quantize)


def answers(plain: Plain, raw: Array) -> Array:
    """What the file answers to raw: (N, C, H, W), as (N, K): products of integers to the bit."""
    fixed = {op: FixedPoint.of(op, plain) for op in plain.ops if isinstance(op, _PRODUCTS)}
    kind = np.float32 if plain.pixels else np.float64
    scale, shift = (v.astype(kind)[:, None, None] for v in (plain.scale, plain.shift))
    found = []
    for row in range(len(raw)):
        x = raw[row : row + 1]
        values: dict[Tensor, Any] = {plain.x: np.asarray(x * scale + shift, np.float32)}
        for op in plain.ops:
            given = [_value(plain, getattr(op, name), values) for name in op.inputs]
            if isinstance(op, _PRODUCTS):
                result = fixed[op].answers(op, given[0])
            elif isinstance(op, Quantize) and op.x == plain.x and starts_in_integers(plain):
                pixels = pixels_as_integers(np.moveaxis(x, 1, 3), plain, op.to)
                result = np.moveaxis(pixels, 3, 1).astype(np.float32)
            else:
                result = KERNELS.of(op).compute(op, *given)
            values[op.writes()[0]] = result[0] if len(op.outputs) > 1 else result
        found.append(np.asarray(values[plain.y]).reshape(-1))
    return np.array(found)


def _value(plain: Plain, tensor: Any, values: dict[Tensor, Any]) -> Any:
    if isinstance(tensor, tuple):
        return tuple(_value(plain, each, values) for each in tensor)
    return values[tensor] if tensor in values else tensor and plain.constant(tensor)

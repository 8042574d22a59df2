"""Products of 8-bit integers, and what keeps pictures in a byte each between them."""

from __future__ import annotations

import numpy as np
from dnnstack.graph import ops
from dnnstack.graph.geometry import Window
from dnnstack.graph.graph import Shape, Tensor

from .op_cases_windows import CONVOLUTIONS, Geometry
from .op_draft import Draft, case

# Not a simple fraction: no quotient lies just between two integers.
FINE, SIGNED = ops.Quantization(0.01713, False), ops.Quantization(0.0237, True)


def _quantized(d: Draft, shape: Shape, to: ops.Quantization) -> Tensor:
    """Integers on the way from floats."""
    x = d.floats("x", *shape)
    return d.graph.add(ops.Quantize(x=x, q=d.out("q", *shape), to=to))


def _channels(d: Draft, count: int, norm: bool) -> dict[str, Tensor]:
    given = {"bias": d.floats("bias", count, role="parameter")}
    if norm:
        given["weight"] = d.floats("weight", count, role="parameter")
        given["shift"] = d.floats("shift", count, role="parameter")
        given["running_mean"] = d.floats("mean", count, role="state")
        variance = d.rng.uniform(0.5, 2.0, count).astype(np.float32)
        given["running_var"] = d.given("var", variance, "state")
    return given


def conv2d(
    d: Draft,
    g: Geometry,
    given: ops.Quantization,
    to: ops.Quantization | None,
    norm: bool,
    relu: bool,
) -> None:
    x = _quantized(d, g.picture, given)
    w, y = d.floats("w", *g.weights, role="parameter"), d.out("y", *g.output(g.filters))
    channels = _channels(d, g.filters, norm)
    eps = 1e-5 if norm else 0.0
    product = ops.QuantizedConv2d(
        x=x, w=w, y=y, given=given, to=to, window=g.window, groups=g.groups, relu=relu, eps=eps,
        **channels,
    )  # fmt: skip
    d.graph.add(product)
    if to is not None and g.picture[2] > 9:
        n, c, h, width = y.shape
        window = Window((2, 2), (2, 2))
        pooled = d.out("pooled", n, c, *window.output(h, width))
        d.graph.add(ops.Pool2d(x=y, y=pooled, window=window, kind="max"))
        d.graph.add(ops.Reshape(x=pooled, y=d.out("flat", n, pooled.size // n)))


def matmul(d: Draft, given: ops.Quantization, to: ops.Quantization | None, relu: bool) -> None:
    x, w = _quantized(d, (5, 33), given), d.floats("w", 7, 33, role="parameter")
    d.graph.add(
        ops.QuantizedMatMul(
            x=x, w=w, y=d.out("y", 5, 7), given=given, to=to, relu=relu, **_channels(d, 7, False)
        )
    )


for at, (name, geometry) in enumerate(CONVOLUTIONS.items()):
    given, to = (FINE, SIGNED)[at % 2], (None, FINE, SIGNED)[at % 3]
    case(f"quantized_conv-{name}", conv2d, geometry, given, to, at % 4 < 2, at % 5 < 3)
for relu in (False, True):
    case(f"quantized_matmul-{relu:d}", matmul, SIGNED, FINE if relu else SIGNED, relu)
case("quantized_matmul-float", matmul, FINE, None, True)

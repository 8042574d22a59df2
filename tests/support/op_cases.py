"""A table of single operations with their inputs: what every backend is compared on.

``CASES[name](rng, law)`` describes one operation and draws its inputs by a law of values: "normal"
numbers, "ties" (small whole numbers, so that maxima tie and sums are exact) or "zeros".
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from dnnstack.graph import ops
from dnnstack.graph.graph import Shape

from . import (
    op_cases_augment,
    op_cases_classic,
    op_cases_collectives,
    op_cases_combine,
    op_cases_dropout,
    op_cases_losses,
    op_cases_norm,
    op_cases_quantized,
    op_cases_sharing,
    op_cases_updates,
    op_cases_windows,
)
from .op_cases_losses import probabilities
from .op_draft import ALPHA, CASES, Draft, case

__all__ = [
    "CASES",
    "op_cases_augment",
    "op_cases_classic",
    "op_cases_collectives",
    "op_cases_combine",
    "op_cases_dropout",
    "op_cases_losses",
    "op_cases_norm",
    "op_cases_quantized",
    "op_cases_sharing",
    "op_cases_updates",
    "op_cases_windows",
]

# ---------------------------------------------------------------- dense


def matmul(
    d: Draft, m: int, n: int, k: int, turn_a: bool, turn_b: bool, bias: bool, f: str | None
) -> None:
    a = d.floats("a", *((k, m) if turn_a else (m, k)))
    b = d.floats("b", *((n, k) if turn_b else (k, n)), role="parameter")
    d.length = k
    d.graph.add(
        ops.MatMul(
            a=a,
            b=b,
            c=d.out("c", m, n),
            transpose_a=turn_a,
            transpose_b=turn_b,
            bias=d.floats("bias", n, role="parameter") if bias else None,
            activation=f,
            activation_alpha=ALPHA.get(f or "", 0.0),
        )
    )


def matmul_bias_grad(d: Draft, n: int, units: int, inputs: int) -> None:
    dy, x = d.floats("dy", n, units), d.floats("x", n, inputs)
    d.length = n
    dw, db = d.gradient("w", units, inputs), d.gradient("b", units)
    d.graph.add(ops.MatMul(a=dy, transpose_a=True, b=x, c=dw, bias_grad=db))


for turn_a in (False, True):
    for turn_b in (False, True):
        case(f"matmul-{turn_a:d}{turn_b:d}", matmul, 5, 7, 33, turn_a, turn_b, False, None)
case("matmul-1x1", matmul, 1, 1, 1, False, True, True, None)
case("matmul-bias", matmul, 17, 10, 50, False, True, True, None)
for activation in ops.ACTIVATIONS:
    case(f"matmul-bias-{activation}", matmul, 6, 11, 9, False, True, True, activation)
case("matmul-relu", matmul, 6, 11, 9, False, True, False, "relu")
case("matmul-bias_grad", matmul_bias_grad, 19, 10, 12)


def batch_matmul(d: Draft, turn_a: bool, turn_b: bool, factor: float, *sizes: int) -> None:
    count, m, n, k = sizes
    a = d.floats("a", count, *((k, m) if turn_a else (m, k)))
    b = d.floats("b", count, *((n, k) if turn_b else (k, n)))
    d.length, turns = k, {"transpose_a": turn_a, "transpose_b": turn_b}
    d.graph.add(ops.BatchMatMul(a=a, b=b, c=d.out("c", count, m, n), **turns, factor=factor))


for turn_a in (False, True):
    for turn_b in (False, True):
        case(f"batch_matmul-{turn_a:d}{turn_b:d}", batch_matmul, turn_a, turn_b, 1.0, 4, 5, 7, 3)
case("batch_matmul-factor", batch_matmul, True, False, 0.25, 3, 17, 17, 8)
case("batch_matmul-1x1", batch_matmul, False, False, -2.0, 2, 1, 1, 1)


def bias_add(d: Draft, *shape: int) -> None:
    x, b = d.floats("x", *shape), d.floats("b", shape[1], role="parameter")
    d.graph.add(ops.BiasAdd(x=x, b=b, y=d.out("y", *shape)))


def bias_grad(d: Draft, *shape: int) -> None:
    d.length = int(np.prod(shape)) // shape[1]
    d.graph.add(ops.BiasGrad(dy=d.floats("dy", *shape), db=d.gradient("b", shape[1])))


for shape in ((4, 6), (2, 3, 5, 4), (1, 1), (3, 20, 1, 1)):
    case(f"bias_add-{shape}", bias_add, *shape)
    case(f"bias_grad-{shape}", bias_grad, *shape)


# ---------------------------------------------------------------- elementwise, softmax

EXTREMES = (-1e4, -100.0, -30.0, -9.0, -1e-3, -0.0, 0.0, 1e-3, 9.0, 30.0, 100.0, 1e4)


def activate(d: Draft, kind: str, extreme: bool, *shape: int) -> None:
    x = d.given("x", np.array([EXTREMES], np.float32)) if extreme else d.floats("x", *shape)
    d.graph.add(ops.Activation(x=x, y=d.out("y", *x.shape), kind=kind, alpha=ALPHA.get(kind, 0.0)))


def activate_backward(d: Draft, kind: str, extreme: bool, *shape: int) -> None:
    """The value is forward's output where the derivative follows from it: made by forward."""
    x = d.given("x", np.array([EXTREMES], np.float32)) if extreme else d.floats("x", *shape)
    value = x
    if kind in ops.FROM_OUTPUT:
        value = d.out("y", *x.shape)
        d.graph.add(ops.Activation(x=x, y=value, kind=kind, alpha=ALPHA.get(kind, 0.0)))
    dy, dx = d.floats("dy", *x.shape), d.out("dx", *x.shape)
    d.graph.add(
        ops.ActivationBackward(value=value, dy=dy, dx=dx, kind=kind, alpha=ALPHA.get(kind, 0.0))
    )


def activated_bias_grad(d: Draft, *shape: int) -> None:
    """A bias's gradient behind an activation's, which may sum on the way."""
    d.length = int(np.prod(shape)) // shape[1]
    value, dy, dx = d.floats("value", *shape), d.floats("dy", *shape), d.out("dx", *shape)
    d.graph.add(ops.ActivationBackward(value=value, dy=dy, dx=dx, kind="leaky_relu", alpha=0.25))
    d.graph.add(ops.BiasGrad(dy=dx, db=d.gradient("b", shape[1])))


case("bias_grad-activated", activated_bias_grad, 70, 12)
for activation in ops.ACTIVATIONS:
    for shape in ((3, 7), (2, 3, 5, 4), (2, 16, 4, 4)):
        case(f"activation-{activation}-{shape}", activate, activation, False, *shape)
        case(
            f"activation_backward-{activation}-{shape}",
            activate_backward,
            activation,
            False,
            *shape,
        )
    case(f"activation-{activation}-extremes", activate, activation, True)
    case(f"activation_backward-{activation}-extremes", activate_backward, activation, True)


def reshape(d: Draft, before: Shape, after: Shape) -> None:
    d.graph.add(ops.Reshape(x=d.floats("x", *before), y=d.out("y", *after)))


case("reshape-flatten", reshape, (3, 4, 2, 5), (3, 40))
case("reshape-unflatten", reshape, (3, 16), (3, 16, 1, 1))


def scale(d: Draft, *shape: int) -> None:
    d.graph.add(ops.Scale(x=d.floats("x", *shape), y=d.out("y", *shape), factor=-0.3))


for shape in ((3, 7), (2, 16, 4, 4)):
    case(f"scale-{shape}", scale, *shape)


def softmax(d: Draft, log: bool, *shape: int) -> None:
    d.length = shape[1]
    d.graph.add(ops.Softmax(x=d.floats("x", *shape), y=d.out("y", *shape), log=log))


def softmax_backward(d: Draft, log: bool, *shape: int) -> None:
    d.length = shape[1]
    p = probabilities(d, shape)
    y, dy = d.given("y", np.log(p) if log else p), d.floats("dy", *shape)
    d.graph.add(ops.SoftmaxBackward(y=y, dy=dy, dx=d.out("dx", *shape), log=log))


def large_scores(d: Draft, log: bool) -> None:
    x = d.given("x", np.array([[1e4, 0.0, -1e4], [88.0, 89.0, 90.0]], np.float32))
    d.graph.add(ops.Softmax(x=x, y=d.out("y", 2, 3), log=log))


for log in (False, True):
    name = "log_softmax" if log else "softmax"
    for shape in ((5, 10), (1, 1), (2, 7, 3, 2)):
        case(f"{name}-{shape}", softmax, log, *shape)
        case(f"{name}_backward-{shape}", softmax_backward, log, *shape)
    case(f"{name}-large", large_scores, log)


# ---------------------------------------------------------------- ends of a step


def gather_batch(
    d: Draft,
    channels: int,
    step: int,
    missing: bool,
    height: int = 5,
    width: int = 3,
    floats: bool = False,
    words: int = 0,
) -> None:
    n, steps, count = 4, 3, 7
    shape = count, channels, height, width
    pictures = d.rng.integers(0, 256, shape).astype(np.uint8)
    labels = np.arange(count, dtype=np.int32)
    if words:
        labels = d.rng.standard_normal((count, words)).astype(np.float32)
    order = d.rng.integers(0, count, n * steps).astype(np.int32)
    if missing:
        order[n * (step % steps) + 1] = -1
        order[n * (step % steps) + 3] = -1
    d.graph.add(
        ops.GatherBatch(
            images=d.given("images", d.drawn(shape) if floats else pictures, "data"),
            labels=d.given("labels", labels, "data"),
            order=d.given("order", order, "data"),
            step=d.given("step", np.array([step], np.int64), "state"),
            x=d.out("x", n, channels, height, width),
            target=d.out("target", n, *labels.shape[1:], dtype="float32" if words else "int32"),
            scale=tuple(1 / 255 + 0.01 * c for c in range(channels)),
            shift=tuple(0.5 * c - 0.4 for c in range(channels)),
        )
    )


case("gather_batch-grey", gather_batch, 1, 0, False)
case("gather_batch-colour", gather_batch, 3, 1, False)
case("gather_batch-next_epoch", gather_batch, 1, 5, False)
case("gather_batch-missing", gather_batch, 3, 4, True)
for channels in (2, 16, 19):
    # A truth table's columns are channels of one pixel.
    case(f"gather_batch-{channels}x1x1", gather_batch, channels, 1, True, 1, 1)
case("gather_batch-line", gather_batch, 3, 1, False, 1, 6)
for floats in (False, True):
    for words in (0, 1, 3) if floats else (1, 300):
        title = f"gather_batch-{'floats' if floats else 'bytes'}-{words}_words"
        for channels, width in ((1, 4), (1, 3), (3, 4), (16, 1)):
            sizes = (channels, 1, True, 5 if width > 1 else 1, width)
            case(f"{title}-{channels}x{width}", gather_batch, *sizes, floats, words)


def update(
    d: Draft, decay: Sequence[float], momentum: float, nesterov: bool, clip: float | None = None
) -> None:
    """Several steps of the whole update, over parameters of different shape and weight decay."""
    shapes: list[Shape] = [(3, 2, 2, 3), (3,), (4, 5), (4,)]
    parameters = tuple(
        d.floats(f"p{i}", *shape, role="parameter") for i, shape in enumerate(shapes)
    )
    gradients = tuple(d.floats(f"g{i}", *shape) for i, shape in enumerate(shapes))
    buffers = tuple(d.floats(f"v{i}", *shape, role="state") for i, shape in enumerate(shapes))
    rates = d.given("rates", np.array([9.0, 0.1, 0.03, 0.2], np.float32), "data")
    step = d.given("step", np.array([1], np.int64), "state")
    d.steps = 3 if clip is None else 1
    d.length = sum(p.size for p in parameters)
    if clip is not None:
        norm = d.out("norm", 1)
        d.graph.add(ops.GlobalNorm(gradients=gradients, norm=norm))
        d.graph.add(ops.ClipByNorm(norm=norm, gradients=gradients, max_norm=clip))
    d.graph.add(
        ops.SgdUpdate(
            gradients=gradients,
            rates=rates,
            step=step,
            parameters=parameters,
            buffers=buffers if momentum else (),
            weight_decay=tuple(decay),
            momentum=momentum,
            nesterov=nesterov,
        )
    )
    d.graph.add(ops.Advance(step=step))
    if not momentum:
        for buffer in buffers:
            del d.values[buffer], d.graph.results[buffer.name]


NO_DECAY, DECAY, MIXED = (0.0,) * 4, (0.01,) * 4, (0.1, 0.0, 0.1, 0.0)
for decay_name, decay in {"none": NO_DECAY, "all": DECAY, "weights": MIXED}.items():
    case(f"update-plain-{decay_name}", update, decay, 0.0, False)
    case(f"update-momentum-{decay_name}", update, decay, 0.9, False)
    case(f"update-nesterov-{decay_name}", update, decay, 0.9, True)
case("update-clipped", update, MIXED, 0.9, False, 0.5)
case("update-not_clipped", update, NO_DECAY, 0.0, False, 1e6)


def advance(d: Draft) -> None:
    d.graph.add(ops.Advance(step=d.given("step", np.array([41], np.int64), "state")))


case("advance", advance)

"""Operations with inputs on which float32 loses digits.

``CASES[name]()`` gives a draft of one operation, or of a forward and its backward, with its inputs.
"""

from __future__ import annotations

import gzip
import os
from collections.abc import Iterator
from itertools import pairwise, product
from math import erfc, sqrt
from pathlib import Path
from typing import Any

import numpy as np
from dnnstack.backends.base import Array
from dnnstack.backends.reference.pointwise import activate
from dnnstack.graph import ops
from dnnstack.graph.geometry import Window
from dnnstack.graph.graph import Shape, Tensor
from dnnstack.layers.losses.hinge import MultiMargin
from dnnstack.layers.losses.mean_squared_error import MeanSquaredError

from .. import op_cases
from ..op_cases_windows import Geometry
from ..op_draft import ALPHA
from .hard import CASES, Hard, Numbers, case

__all__ = ["CASES", "FEW", "mnist"]

# Rows of this many numbers between two bounds, on both sides of zero.
BOUNDS = (1e-3, 0.1, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 24.0, 32.0, 60.0)


def axis() -> Array:
    rows = [np.linspace(a, b, 64) for a, b in pairwise(BOUNDS)]
    return np.array([-row for row in rows[::-1]] + rows, np.float32)


def mnist() -> Path:
    """The training pictures of real MNIST in $DNNSTACK_DATA; they need not be there."""
    return Path(os.environ.get("DNNSTACK_DATA", ""), "mnist", "train-images-idx3-ubyte.gz")


def activation(d: Hard, kind: str) -> None:
    """Forward, and backward from x or from the right y: dx for dy = 1 is the slope."""
    values, alpha = axis(), ALPHA.get(kind, 0.0)
    x, y, dx = d.given("x", values), d.out("y", *values.shape), d.out("dx", *values.shape)
    d.graph.add(ops.Activation(x=x, y=y, kind=kind, alpha=alpha))
    dy = d.given("dy", np.ones(values.shape, np.float32))
    value = x
    if kind in ops.FROM_OUTPUT:
        value = d.given(
            "value", activate(kind, values.astype(np.float64), alpha).astype(np.float32)
        )
    d.graph.add(ops.ActivationBackward(value=value, dy=dy, dx=dx, kind=kind, alpha=alpha))
    d.each.update({y: len(values), dx: len(values)})
    if kind == "gelu":
        # 1 + erf(x) is 0 where erfc(-x) is not.
        d.right[y] = values * np.vectorize(lambda x: 0.5 * erfc(-x * sqrt(0.5)))(values)


for kind in ops.ACTIVATIONS:
    case(f"activation-{kind}", activation, "normal", kind)


ROWS, WIDE = 1024, 4096
LAWS = ("normal", "offset", "background")


def average_pool(d: Hard, g: Geometry, backward: bool) -> None:
    (op_cases.op_cases_windows.pool2d_backward if backward else op_cases.op_cases_windows.pool2d)(
        d, g, "avg"
    )


MNIST_LIKE = Geometry((128, 1, 28, 28), Window((5, 5)), 20)
WIDE_CONV = Geometry((32, 32, 16, 16), Window((3, 3), padding=(1, 1, 1, 1)), 16)
POOLS = {
    "global": Geometry((4, 16, 28, 28), Window((28, 28), (28, 28))),
    "3x3": Geometry((4, 16, 12, 12), Window((3, 3), (2, 2))),
}
windows = op_cases.op_cases_windows
for law in LAWS:
    case(f"dense-{law}", op_cases.matmul, law, 16, 10, WIDE, False, True, True, None)
    case(f"batch_matmul-{law}", op_cases.batch_matmul, law, False, True, 0.125, 4, 12, 16, 256)
    case(f"dense_data-{law}", op_cases.matmul, law, 16, 32, WIDE, False, False, False, None)
    case(f"dense_weights-{law}", op_cases.matmul_bias_grad, law, ROWS, 10, 12)
    case(f"bias_grad-flat-{law}", op_cases.bias_grad, law, ROWS, 10)
    case(f"bias_grad-pictures-{law}", op_cases.bias_grad, law, 128, 8, 28, 28)
    case(f"activated_sums-{law}", op_cases.activated_bias_grad, law, ROWS, 12)
    case(f"scale-{law}", op_cases.scale, law, 8, 64)
    for size, geometry in {"first": MNIST_LIKE, "wide": WIDE_CONV}.items():
        case(f"conv-{size}-{law}", windows.conv2d, law, geometry, True, None)
        case(f"conv_data-{size}-{law}", windows.conv2d_backward_data, law, geometry)
        case(f"conv_filter-{size}-{law}", windows.conv2d_backward_filter, law, geometry, True)
    for size, geometry in POOLS.items():
        case(f"average_pool-{size}-{law}", average_pool, law, geometry, False)
        case(f"average_pool_backward-{size}-{law}", average_pool, law, geometry, True)
    shape = (64, 6, 14, 14)
    scaled = op_cases.op_cases_classic
    case(f"channel_scale-{law}", scaled.channel_scale, law, 4.0, *shape)
    case(f"channel_scale_backward-{law}", scaled.channel_scale_backward, law, 4.0, *shape)
    case(f"add-{law}", op_cases.op_cases_combine.add, law, 3, None, 8, 64)


norms = op_cases.op_cases_norm
SHAPES = {
    "grey": (1024, 1, 28, 28),
    "blocks": (64, 16, 28, 28),
    "odd": (64, 5, 14, 14),
    "flat": (1024, 20),
    "pixel": (256, 20, 1, 1),
}
for law in LAWS:
    for size, shape in SHAPES.items():
        for kind in (None, "relu"):
            named = f"{size}-{law}" + (f"-{kind}" if kind else "")
            case(f"batch_norm-{named}", norms.batch_norm_both, law, shape, True, True, kind)
    case(
        f"batch_norm_inference-{law}",
        norms.batch_norm_inference,
        law,
        (8, 16, 9, 9),
        True,
        True,
        None,
    )
    case(f"batch_norm_frozen-{law}", norms.frozen_backward, law, (8, 16, 9, 9), True)
    for kind, back in ((ops.Lrn, ops.LrnBackward), (ops.DivisiveNorm, ops.DivisiveNormBackward)):
        for numbers in ("default", "strong", "wide"):
            named = f"{kind.__name__}-{numbers}-{law}"
            case(named, norms.local_both, law, kind, back, (2, 32, 8, 8), numbers, False)


def blocked(d: Hard, kind: str | None) -> None:
    """Behind a convolution, in the layout that a library chooses for it."""
    x, n, c = d.floats("pictures", 64, 8, 28, 28), 64, 32
    w = d.given("w", np.tile(np.eye(8, dtype=np.float32), (4, 1))[:, :, None, None], "parameter")
    before = d.out("before", n, c, 28, 28)
    d.graph.add(ops.Conv2d(x=x, w=w, y=before, window=Window((1, 1))))
    op = norms.norm_of(d, before, True, True, kind)
    dy, dx = d.floats("dy", *before.shape), d.out("dx", *before.shape)
    rest = {**norms.activated(op, kind), **norms.outputs(d, c, True, True)}
    given = {"mean": op.mean, "inverse_std": op.inverse_std, "weight": op.weight, "eps": op.eps}
    d.graph.add(ops.BatchNormBackward(x=before, dy=dy, dx=dx, **given, **rest))


def real_pictures(d: Hard) -> None:
    """A batch of 1024 real digits, standardised as one channel."""
    with gzip.open(mnist()) as file:
        bytes_of = np.frombuffer(file.read(16 + 1024 * 784), np.uint8, offset=16)
    pictures = (bytes_of.reshape(1024, 1, 28, 28) / 255.0 - 0.1307) / 0.3081
    x = d.given("x", pictures.astype(np.float32))
    op = norms.norm_of(d, x, True, True, None)
    dy, dx = d.floats("dy", *x.shape), d.out("dx", *x.shape)
    rest = norms.outputs(d, 1, True, True)
    given = {"mean": op.mean, "inverse_std": op.inverse_std, "weight": op.weight, "eps": op.eps}
    d.graph.add(ops.BatchNormBackward(x=x, dy=dy, dx=dx, **given, **rest))


for law in LAWS:
    for kind in (None, "relu"):
        case(f"batch_norm-convolved-{law}" + (f"-{kind}" if kind else ""), blocked, law, kind)
case("batch_norm-mnist", real_pictures, "normal")


def far(d: Hard, shape: Shape, mean: float, kind: str | None) -> None:
    """Values around ``mean``, with a deviation of 1; the gradient is around 0."""
    norms.batch_norm_both(d, shape, True, True, kind)
    x = d.graph.ops[0].reads()[0]
    d.values[x] = (d.values[x] + np.float32(mean)).astype(np.float32)


def few() -> Iterator[tuple[str, Shape, float, str | None]]:
    """Batch norms of at most 6,000 values, in odd shapes: some fixed, others drawn."""
    kinds, means = (None, "relu"), (0.0, 10.0, 100.0, 1000.0)
    for shape in ((4, 5, 7, 6), (7, 13, 9, 3), (3, 16, 5, 5)):
        for mean, kind in product(means[1:], kinds):
            yield "x".join(map(str, shape)), shape, mean, kind
    draw = Numbers("batch norms of few values")
    for at in range(16):
        n, c, h, w = (int(draw.integers(low, high, 1)[0]) for low, high in LIMITS)
        shape = (n, min(c, 6000 // (n * h * w)), h, w)
        yield f"drawn{at}", shape, means[at % 4], kinds[at // 4 % 2]


# Of samples, channels, rows and columns.
LIMITS = ((2, 17), (1, 25), (1, 17), (1, 17))
FEW = []
for named, shape, mean, kind in few():
    FEW.append(f"batch_norm-few-{named}-{mean:g}" + (f"-{kind}" if kind else ""))
    case(FEW[-1], far, "normal", shape, mean, kind)


MARGINS = (1.0, 2.0, 5.0, 10.0, 14.0, 17.0, 20.0, 30.0, 60.0, 80.0)
CLASSES = 10


def scores(d: Hard, shift: float) -> Tensor:
    """Rows whose first score is ahead of the others by a margin, all of them shifted."""
    x = d.rng.standard_normal((len(MARGINS), 8, CLASSES)) / 8.0
    x[:, :, 0] = np.array(MARGINS)[:, None]
    return d.given("x", (x + shift).reshape(-1, CLASSES).astype(np.float32))


def right(d: Hard, x: Tensor, wrong: bool) -> Tensor:
    return d.given("target", np.full(x.shape[0], 3 if wrong else 0, np.int32))


def softmax(d: Hard, shift: float) -> None:
    x = scores(d, shift)
    y, dx = d.out("y", *x.shape), d.out("dx", *x.shape)
    d.graph.add(ops.Softmax(x=x, y=y))
    dy = d.given("dy", d.rng.standard_normal(x.shape).astype(np.float32))
    d.graph.add(ops.SoftmaxBackward(y=y, dy=dy, dx=dx))
    d.each[y] = len(MARGINS)


def log_loss(d: Hard, shift: float, wrong: bool, smoothing: float, reduction: str) -> None:
    x = scores(d, shift)
    target = right(d, x, wrong)
    log_p, loss, dx = d.out("log_p", *x.shape), d.out("loss", 1), d.out("dx", *x.shape)
    rest: dict[str, Any] = {"label_smoothing": smoothing, "reduction": reduction, "target": target}
    d.graph.add(ops.SoftmaxCrossEntropy(x=x, log_p=log_p, loss=loss, **rest))
    d.graph.add(ops.SoftmaxCrossEntropyBackward(log_p=log_p, dx=dx, **rest))
    d.each[log_p] = len(MARGINS)
    if not smoothing:
        d.each[dx] = len(MARGINS)


def many_classes(d: Hard) -> None:
    x = d.given("x", (3.0 * d.rng.standard_normal((64, 1000))).astype(np.float32))
    target = d.given("target", d.rng.integers(0, 1000, 64).astype(np.int32))
    log_p, loss, dx = d.out("log_p", *x.shape), d.out("loss", 1), d.out("dx", *x.shape)
    d.graph.add(ops.SoftmaxCrossEntropy(x=x, target=target, log_p=log_p, loss=loss))
    d.graph.add(ops.SoftmaxCrossEntropyBackward(log_p=log_p, target=target, dx=dx))
    d.each[log_p] = 1


def plain_log_loss(d: Hard, shift: float, smoothing: float) -> None:
    """The same in four operations, as without the fused one."""
    x = scores(d, shift)
    target = d.given("target", np.zeros(len(MARGINS) * 8, np.int32))
    log_p, dlog_p, dx = (d.out(name, *x.shape) for name in ("log_p", "dlog_p", "dx"))
    rest: dict[str, Any] = {"x": log_p, "target": target, "formula": ops.CrossEntropy(smoothing)}
    d.graph.add(ops.Softmax(x=x, y=log_p, log=True))
    d.graph.add(ops.RowLoss(loss=d.out("loss", 1), **rest))
    d.graph.add(ops.RowLossBackward(dx=dlog_p, **rest))
    d.graph.add(ops.SoftmaxBackward(y=log_p, dy=dlog_p, dx=dx, log=True))
    d.each[log_p] = len(MARGINS)
    if not smoothing:
        d.each[dx] = len(MARGINS)


def distance(d: Hard, formula: ops.RowFormula, reduction: str) -> None:
    """Losses of scores that are near what is wanted: small differences of numbers."""
    x = d.given("x", (1.0 + d.rng.standard_normal((4096, CLASSES)) / 64).astype(np.float32))
    target = d.given("target", d.rng.integers(0, CLASSES, 4096).astype(np.int32))
    rest: dict[str, Any] = {"x": x, "target": target, "formula": formula, "reduction": reduction}
    d.graph.add(ops.RowLoss(loss=d.out("loss", 1), **rest))
    d.graph.add(ops.RowLossBackward(dx=d.out("dx", *x.shape), **rest))


for shift in (0.0, 100.0, -1000.0):
    case(f"softmax-{shift:g}", softmax, "normal", shift)
    for wrong in (False, True):
        named = f"log_softmax-{shift:g}-{'wrong' if wrong else 'right'}"
        case(named, log_loss, "normal", shift, wrong, 0.0, "mean")
case("log_softmax-smoothed", log_loss, "normal", 0.0, False, 0.1, "sum")
case("log_softmax-many", many_classes, "normal")
for smoothing in (0.0, 0.1):
    for shift in (0.0, 100.0):
        named = f"cross_entropy-{shift:g}-{smoothing:g}"
        case(named, plain_log_loss, "normal", shift, smoothing)
for reduction in ("mean", "sum"):
    for formula in (MeanSquaredError(), MultiMargin()):
        case(f"{formula.name}-{reduction}", distance, "normal", formula, reduction)

# ---------------------------------------------------------------- updates

case("sgd", op_cases.op_cases_updates.sgd_in_groups, "normal", 0.9, True, (0.1, 0.0, 0.1, 0.0))
for decoupled in (False, True):
    case(
        f"adam-{decoupled:d}",
        op_cases.op_cases_updates.adam,
        "normal",
        (0.1, 0.0, 0.1, 0.0),
        decoupled,
        (),
    )
case(
    "adagrad",
    op_cases.op_cases_updates.elementwise,
    "normal",
    "adagrad-options",
    (0.1, 0.0, 0.1, 0.0),
    (),
)
case("average", op_cases.op_cases_updates.average, "normal", False)
case("clip", op_cases.update, "normal", (0.0,) * 4, 0.0, False, 0.5)

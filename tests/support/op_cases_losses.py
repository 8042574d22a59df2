"""Losses and metrics: every loss that a config can name, found by scanning."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from dnnstack.backends.base import Array
from dnnstack.graph import ops
from dnnstack.graph.graph import Shape, Tensor
from dnnstack.layers.losses.rbf_map import MapCriterion

from .formulas import VARIANTS
from .op_draft import Draft, case


def probabilities(d: Draft, shape: Shape) -> Array:
    e = np.exp(d.drawn(shape).astype(np.float64))
    return (e / e.sum(1, keepdims=True)).astype(np.float32)


def targets(d: Draft, n: int, classes: int, masks: str, wide: bool = False) -> Tensor:
    drawn = d.rng.integers(0, classes, n).astype(np.int32)
    if wide:
        # Around 0.5, and equal ones among them.
        drawn = (d.rng.integers(-1, 4, (n, classes)) / 2).astype(np.float32).view(np.int32)
    if masks == "some":
        drawn[:: max(2, n // 3)] = -1
    elif masks == "all":
        drawn[:] = -1
    return d.given("target", drawn.view(np.float32) if wide else drawn)


class WideCubes(ops.RowFormula):
    """sum over k of (x[k] - target[k])^3 + power target[k]."""

    wide = True
    cuda = """
        __device__ float value(Row r) {
            float loss = 0.0f;
            for (int k = 0; k < r.classes; ++k) {
                float gap = r.x[k] - r.wanted[k];
                loss += gap * gap * gap + power * r.wanted[k];
            }
            return loss;
        }
        __device__ float slope(Row r, int k) {
            float gap = r.x[k] - r.wanted[k];
            return 3.0f * gap * gap;
        }
    """
    power: float = 0.5

    def value(self, x: Array, target: Array) -> Array:
        return np.asarray(((x - target) ** 3 + self.power * target).sum(1))

    def gradient(self, x: Array, target: Array) -> Array:
        return np.asarray(3 * (x - target) ** 2)


# Samples, classes, which are masked, how the losses are united.
ROWS: tuple[tuple[str, int, int, str, ops.Reduction], ...] = (
    ("plain", 6, 10, "none", "mean"),
    ("masked", 7, 5, "some", "mean"),
    ("sum", 7, 5, "some", "sum"),
    ("nothing_counts", 3, 4, "all", "mean"),
    ("one", 1, 2, "none", "sum"),
)
WIDE: tuple[tuple[str, int, int, str, ops.Reduction], ...] = (
    *ROWS,
    ("column", 70, 1, "some", "mean"),
)


def row_loss(
    d: Draft,
    f: ops.RowFormula,
    n: int,
    k: int,
    masks: str,
    reduction: ops.Reduction,
    backward: bool,
) -> None:
    d.length = n * k
    p = probabilities(d, (n, k))
    x = {"scores": d.drawn((n, k)), "p": p, "log_p": np.log(p)}[f.of]
    rest = {"x": d.given("x", x), "reduction": reduction}
    rest["target"] = targets(d, n, k, masks, f.wide)
    if backward:
        d.graph.add(ops.RowLossBackward(**rest, dx=d.out("dx", n, k), formula=f))
    else:
        d.graph.add(ops.RowLoss(**rest, loss=d.out("loss", 1), formula=f))


def softmax_cross_entropy(
    d: Draft, n: int, k: int, masks: str, smoothing: float, reduction: ops.Reduction, backward: bool
) -> None:
    d.length = n * k
    rest = {"label_smoothing": smoothing, "reduction": reduction}
    target = targets(d, n, k, masks)
    if backward:
        p = probabilities(d, (n, k)).astype(np.float64)
        log_p = d.given("log_p", np.log(p).astype(np.float32))
        dx = d.out("dx", n, k)
        d.graph.add(ops.SoftmaxCrossEntropyBackward(log_p=log_p, target=target, dx=dx, **rest))
    else:
        x, log_p, loss = d.floats("x", n, k), d.out("log_p", n, k), d.out("loss", 1)
        d.graph.add(ops.SoftmaxCrossEntropy(x=x, target=target, log_p=log_p, loss=loss, **rest))


for backward in (False, True):
    end = "_backward" if backward else ""
    for name, variant in VARIANTS.items():
        for title, *sizes in ROWS:
            case(f"{name}{end}-{title}", row_loss, variant.formula, *sizes, backward)
    for title, *sizes in WIDE:
        case(f"wide{end}-{title}", row_loss, WideCubes(), *sizes, backward)
    for title, n, k, masks, reduction in ROWS:
        smoothing = 0.0 if title == "plain" else 0.1
        given = (n, k, masks, smoothing, reduction, backward)
        case(f"softmax_cross_entropy{end}-{title}", softmax_cross_entropy, *given)


def metrics(
    d: Draft,
    masks: str,
    reduction: ops.Reduction,
    wide: bool = False,
    n: int = 9,
    k: int = 4,
    **answer: Any,
) -> None:
    scores, target = d.floats("scores", n, k), targets(d, n, k, masks, wide)
    loss = d.given("loss", np.array([0.7], np.float32))
    sums = d.given("sums", np.array([10.5, 3.0, 20.0]), "state")
    d.graph.add(
        ops.Metrics(
            scores=scores, target=target, loss=loss, sums=sums, reduction=reduction, **answer
        )
    )


case("metrics-mean", metrics, "none", "mean")
case("metrics-masked", metrics, "some", "mean")
case("metrics-sum", metrics, "some", "sum")
case("metrics-nothing_counts", metrics, "all", "mean")
ANSWERS: dict[str, dict[str, Any]] = {
    "largest": {},
    "threshold": {"answer": "threshold", "threshold": 0.0},
    "near": {"answer": "near"},
}
for name, answer in ANSWERS.items():
    for title, n, k, masks, reduction in WIDE:
        wide = partial(metrics, wide=True, n=n, k=k, **answer)
        case(f"metrics-{name}-{title}", wide, masks, reduction)


def map_far_away(d: Draft, backward: bool) -> None:
    """Penalties of LeNet-5's size: exponentials of them underflow or overflow."""
    x = d.given("x", np.array([[-400.0, -120.0, -90.0], [-1e4, -2e4, -3e4]], np.float32))
    target, formula = d.given("target", np.array([1, 2], np.int32)), MapCriterion(20.0)
    if backward:
        d.graph.add(ops.RowLossBackward(x=x, target=target, dx=d.out("dx", 2, 3), formula=formula))
    else:
        d.graph.add(ops.RowLoss(x=x, target=target, loss=d.out("loss", 1), formula=formula))


case("map-far_away", map_far_away, False)
case("map-far_away-backward", map_far_away, True)

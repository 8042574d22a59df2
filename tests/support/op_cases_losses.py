"""Losses and metrics: every loss that a config can name, found by scanning."""

from __future__ import annotations

import numpy as np
from dnnstack.backends.base import Array
from dnnstack.common.targets import Kind
from dnnstack.graph import ops
from dnnstack.graph.graph import Shape, Tensor
from dnnstack.layers.losses.loss import _ANSWERS, Loss
from dnnstack.layers.losses.rbf_map import MapCriterion

from .formulas import VARIANTS, drawn_targets, fitted
from .op_draft import Draft, case


def probabilities(d: Draft, shape: Shape) -> Array:
    e = np.exp(d.drawn(shape).astype(np.float64))
    return (e / e.sum(1, keepdims=True)).astype(np.float32)


def targets(d: Draft, n: int, classes: int, masks: str, kind: Kind = "class") -> Tensor:
    drawn = drawn_targets(kind, (n, classes), d.rng)
    words = drawn.view(np.int32)
    if masks == "some":
        words[:: max(2, n // 3)] = -1
    elif masks == "all":
        words[:] = -1
    return d.given("target", drawn)


# Samples, classes, which are masked, how the losses are united.
ROWS: tuple[tuple[str, int, int, str, ops.Reduction], ...] = (
    ("plain", 6, 10, "none", "mean"),
    ("masked", 7, 5, "some", "mean"),
    ("sum", 7, 5, "some", "sum"),
    ("nothing_counts", 3, 4, "all", "mean"),
    ("one", 1, 2, "none", "sum"),
)


def row_loss(
    d: Draft, loss: Loss, n: int, k: int, masks: str, reduction: ops.Reduction, backward: bool
) -> None:
    d.length, f = n * k, fitted(loss, k).formula
    p = probabilities(d, (n, k))
    x = {"scores": d.drawn((n, k)), "p": p, "log_p": np.log(p)}[f.of]
    target = targets(d, n, k, masks, loss.target)
    rest = {"x": d.given("x", x), "target": target, "reduction": reduction}
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
            case(f"{name}{end}-{title}", row_loss, variant, *sizes, backward)
    for title, n, k, masks, reduction in ROWS:
        smoothing = 0.0 if title == "plain" else 0.1
        given = (n, k, masks, smoothing, reduction, backward)
        case(f"softmax_cross_entropy{end}-{title}", softmax_cross_entropy, *given)


def metrics(d: Draft, masks: str, reduction: ops.Reduction, kind: Kind, k: int) -> None:
    n, answer = 9, _ANSWERS[kind]
    scores, target = d.floats("scores", n, k), targets(d, n, k, masks, kind)
    loss = d.given("loss", np.array([0.7], np.float32))
    sums = d.given("sums", np.array([10.5, 3.0, 20.0]), "state")
    d.graph.add(
        ops.Metrics(
            scores=scores,
            target=target,
            loss=loss,
            sums=sums,
            reduction=reduction,
            answer=answer,
            threshold=0.1 if answer == "threshold" else 0.0,
        )
    )


for target_kind in _ANSWERS:
    end, k = ("", 4) if target_kind == "class" else (f"-{target_kind}", 3)
    case(f"metrics-mean{end}", metrics, "none", "mean", target_kind, k)
    case(f"metrics-masked{end}", metrics, "some", "mean", target_kind, k)
    case(f"metrics-sum{end}", metrics, "some", "sum", target_kind, k)
    case(f"metrics-nothing_counts{end}", metrics, "all", "mean", target_kind, k)
case("metrics-one_number", metrics, "some", "mean", "numbers", 1)
case("metrics-one_question", metrics, "some", "mean", "yes_no", 1)


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

"""What all losses share: the last operations of forward and the first of backward."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import ClassVar

from typing_extensions import Self, dataclass_transform

from ...common.errors import ShapeError
from ...common.records import dataclass
from ...common.targets import Kind, named
from ...graph import ops
from ...graph.graph import Graph, Shape, Tensor
from ..layer import Layer
from .class_weights import Weighted


@dataclass_transform(kw_only_default=True, eq_default=False)
@dataclass(eq=False, kw_only=True)
class Loss:
    """Adds loss: (1,), metric sums: (3,) and the gradient of the network's output to a graph.

    Every class that derives from this one is a dataclass, with its options as fields.
    ``rule``: the formula of the loss of a sample. ``softmax``: the loss applies a softmax to the
    scores, so that a softmax at the end of the network is merged with it, and the softmax of the
    scores gives the probabilities; ``sigmoid`` likewise. ``unbounded``: it accepts scores of any
    size, whose softmax is shown as probabilities. ``gradient`` names what backward returns.
    ``kinds``: of the targets that it takes, of which ``target`` is that of the data.
    ``class_weights``: what the loss of a sample is multiplied by, for each class; none are all 1.
    """

    kind: ClassVar[str]
    rule: ClassVar[type[ops.RowFormula]]
    kinds: ClassVar[tuple[Kind, ...]] = ("class",)
    softmax: ClassVar[bool] = False
    sigmoid: ClassVar[bool] = False
    unbounded: ClassVar[bool] = False
    gradient: ClassVar[str] = "loss.dx"
    reduction: ops.Reduction = "mean"
    class_weights: tuple[float, ...] = ()
    target: Kind = "class"

    def __init_subclass__(cls) -> None:
        dataclass(eq=False, kw_only=True)(cls)

    @property
    def formula(self) -> ops.RowFormula:
        """The formula with those options of the loss that have the names of its own."""
        rule = self.rule(**{each.name: getattr(self, each.name) for each in fields(self.rule)})
        return Weighted(rule, self.class_weights) if self.class_weights else rule

    def unweighted(self) -> Self:
        """The same loss with every class counting the same."""
        return replace(self, class_weights=())

    def check(self, output_shape: Shape, classes: int) -> None:
        """Raise ShapeError if the network's output is not one score per class or target."""
        if output_shape != (classes,):
            raise ShapeError(
                f"the last layer gives {output_shape}, the data has {classes} "
                f"{named(self.target)}; end the stack with 'dense: {{units: {classes}}}'"
            )

    def check_layers(self, layers: Sequence[Layer]) -> None:
        """Raise ShapeError if the loss cannot train these layers."""
        last = next((layer for layer in reversed(layers) if not layer.children), None)
        if self.sigmoid and last is not None and last.kind == "softmax":
            raise ShapeError(
                f"layer '{last.name}' (softmax) makes shares of one whole, but '{self.kind}' takes "
                "a score for each question; remove it, or use 'sigmoid'"
            )
        for layer in layers:
            if not layer.differentiable:
                raise ShapeError(
                    f"layer '{layer.name}' ({layer.kind}) has no gradient, so '{self.kind}' cannot "
                    f"train what comes before it; use 'sigmoid', or 'loss: perceptron' with "
                    f"'{layer.kind}' as the last layer"
                )

    def forward(self, graph: Graph, scores: Tensor, target: Tensor) -> Tensor:
        """Add loss(scores, target); scores: (N, K), target: (N,). Returns loss: (1,)."""
        x, of = scores, self.formula.of
        if of != "scores":
            x = graph.tensor(f"loss.{of}", scores.shape)
            graph.add(ops.Softmax(x=scores, y=x, log=of == "log_p"))
        graph.keep("loss", x=x, target=target)
        loss, formula = graph.tensor("loss", (1,)), self.formula
        return graph.add(
            ops.RowLoss(x=x, target=target, loss=loss, formula=formula, reduction=self.reduction)
        )

    def backward(self, graph: Graph) -> Tensor:
        """Add the gradient of the loss with respect to the scores, and return it: (N, K)."""
        kept, formula, of = graph.kept("loss"), self.formula, self.formula.of
        x = kept["x"]
        dx = graph.tensor(self.gradient, x.shape)
        slopes = dx if of == "scores" else graph.tensor(f"loss.d{of}", x.shape)
        graph.add(ops.RowLossBackward(**kept, dx=slopes, formula=formula, reduction=self.reduction))
        if of != "scores":
            graph.add(ops.SoftmaxBackward(y=x, dy=slopes, dx=dx, log=of == "log_p"))
        return dx

    def metrics(self, graph: Graph, scores: Tensor, target: Tensor, loss: Tensor) -> Tensor:
        """Add the running sums (loss, right answers, samples); returns sums: (3,) float64.

        Of numbers the squared error is added up in the place of right answers, see ops.Metrics.
        """
        # Training may have several sections, one after the other.
        owner = "train" if graph.training else graph.name
        sums = graph.tensor(f"{owner}.sums", (3,), "float64", "state")
        return graph.add(
            ops.Metrics(
                scores=scores,
                target=target,
                loss=loss,
                sums=sums,
                reduction=self.reduction,
                answer=_ANSWERS[self.target],
                threshold=0.5 if self.target == "yes_no" and not self.sigmoid else 0.0,
            )
        )


_ANSWERS: dict[Kind, ops.Answer] = {
    "class": "largest",
    "numbers": "near",
    "yes_no": "threshold",
    "distribution": "largest",
}

"""Distillation: cross-entropy with the labels, and with what a trained network answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from ...common.options import Fraction, Positive
from ...graph import ops
from ...graph.graph import Graph, Tensor
from .cross_entropy import CrossEntropyLoss


class DistillLoss(CrossEntropyLoss):
    """weight * T**2 * KL(q, softmax(s / T)) + (1 - weight) * cross_entropy.

    q = softmax(s / T) of the teacher's scores, T the ``temperature``. Without a teacher, as in
    validation, it is the cross-entropy alone. Source: Hinton, Vinyals and Dean 2015, section 2.
    """

    kind = "distill"
    teacher: Annotated[
        str, "A run, by name or folder, or a checkpoint, whose network has the same classes."
    ] = ""
    temperature: Annotated[Positive, "The higher, the more its less likely classes count."] = 3.0
    weight: Annotated[Fraction, "The teacher's share of the loss."] = 0.9

    def forward(self, graph: Graph, scores: Tensor, target: Tensor) -> Tensor:
        taught = graph.kept("teacher").get("scores")
        if taught is None:
            return super().forward(graph, scores, target)
        with graph.under("label."):
            label = super().forward(graph, scores, target)
        log_p = self._softmax(graph, "log_p", scores, True)
        log_q = self._softmax(graph, "log_q", taught, True)
        q = self._softmax(graph, "q", taught, False)
        graph.keep("distill", x=log_p, target=q)
        how: dict[str, Any] = {"formula": ops.CrossEntropy(), "reduction": self.reduction}
        # Less the entropy of q, which has no gradient, it is the divergence.
        cross, entropy = (
            graph.add(ops.RowLoss(x=x, target=q, loss=graph.tensor(f"{name}.loss", (1,)), **how))
            for name, x in (("distill", log_p), ("entropy", log_q))
        )
        soft = self.weight * self.temperature**2
        return _sum(graph, "loss", {label: 1.0 - self.weight, cross: soft, entropy: -soft})

    def backward(self, graph: Graph) -> Tensor:
        kept = graph.kept("distill")
        if not kept:
            return super().backward(graph)
        with graph.under("label."):
            label = super().backward(graph)
        slopes, soft = (graph.tensor(f"distill.{name}", label.shape) for name in ("dlog_p", "dx"))
        formula = ops.CrossEntropy()
        graph.add(ops.RowLossBackward(**kept, dx=slopes, formula=formula, reduction=self.reduction))
        graph.add(ops.SoftmaxBackward(y=kept["x"], dy=slopes, dx=soft, log=True))
        # One T of T**2 is that of the scores.
        parts = {label: 1.0 - self.weight, soft: self.weight * self.temperature}
        return _sum(graph, self.gradient, parts)

    def _softmax(self, graph: Graph, name: str, scores: Tensor, log: bool) -> Tensor:
        """softmax(scores / T), or its logarithm."""
        x, y = (graph.tensor(f"distill.{each}", scores.shape) for each in (f"{name}.x", name))
        graph.add(ops.Scale(x=scores, y=x, factor=1.0 / self.temperature))
        return graph.add(ops.Softmax(x=x, y=y, log=log))


def _sum(graph: Graph, name: str, parts: Mapping[Tensor, float]) -> Tensor:
    """The sum of tensors, each times a factor."""
    terms = []
    for number, (x, factor) in enumerate(parts.items()):
        y = graph.tensor(f"{name}.part_{number}", x.shape)
        terms.append(graph.add(ops.Scale(x=x, y=y, factor=factor)))
    return graph.add(ops.Add(terms=tuple(terms), y=graph.tensor(name, terms[0].shape)))

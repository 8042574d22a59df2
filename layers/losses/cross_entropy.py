"""Cross-entropy: -log of the probability of the true class."""

from __future__ import annotations

from ...graph.ops import CrossEntropy, Reduction
from .loss import Loss


class CrossEntropyLoss(Loss):
    """-log softmax(scores)[target], averaged; with label smoothing against the smoothed target.

    The softmax belongs to the loss: a final ``softmax`` layer of the network is this one.
    """

    kind = "cross_entropy"
    softmax = True

    def __init__(self, *, label_smoothing: float = 0.0, reduction: Reduction = "mean") -> None:
        super().__init__(reduction=reduction)
        self.formula = CrossEntropy(label_smoothing)

"""Cross-entropy: -log of the probability of the true class."""

from __future__ import annotations

from typing import Annotated

from ...common.options import Share
from ...graph.ops import CrossEntropy
from .loss import Loss


class CrossEntropyLoss(Loss):
    """-log of the probability of the right class; a final softmax layer is fused with it.

    -log softmax(scores)[target], averaged; with label smoothing against the smoothed target. Of a
    distribution, minus the sum of its shares times the logarithms.
    """

    kind = "cross_entropy"
    kinds = ("class", "distribution")
    softmax = True
    rule = CrossEntropy
    label_smoothing: Annotated[Share, "Share of the target spread evenly over all classes."] = 0.0

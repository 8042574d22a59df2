"""The losses of a config: what training makes small.

t is the right class, s the scores of the last layer, p = softmax(s), K the number of classes.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from ...common.options import NotNegative, Positive
from .base import Typed, TypedModel


class LossConfig(TypedModel):
    kind: ClassVar[str] = "loss"
    written_last: ClassVar[tuple[str, ...]] = ("reduction",)
    reduction: Literal["mean", "sum"] = Field(
        default="mean", description="Over the samples of a batch; the log shows means either way."
    )


class CrossEntropyConfig(LossConfig):
    """-log of the probability of the right class; a final softmax layer is fused with it."""

    type: Literal["cross_entropy"] = "cross_entropy"
    label_smoothing: Annotated[float, Field(ge=0, lt=1)] = Field(
        default=0.0, description="Share of the target spread evenly over all classes."
    )


class MseConfig(LossConfig):
    """Mean of the squared differences to the one-hot target."""

    type: Literal["mse"] = "mse"


class HingeConfig(LossConfig):
    """(1 / K) sum over k != t of max(0, margin - s[t] + s[k]) ** power."""

    type: Literal["hinge"] = "hinge"
    margin: Positive = Field(
        default=1.0, description="How far the right score should lie above the others."
    )
    power: Literal[1, 2] = Field(default=1, description="1, or 2 for the squared hinge.")


class OneMinusPConfig(LossConfig):
    """1 - p[t]; a final softmax layer is fused with it."""

    type: Literal["one_minus_p"] = "one_minus_p"


class SquaredDistanceConfig(LossConfig):
    """Sum over k of p[k] (k - t) ** 2: classes as numbers; a final softmax is fused with it."""

    type: Literal["squared_distance"] = "squared_distance"


class RbfMapConfig(LossConfig):
    """Penalty of the right class + log(exp(-j) + sum of exp(-penalty)), for an rbf layer."""

    type: Literal["rbf_map"] = "rbf_map"
    j: NotNegative = Field(
        default=10.0, description="Penalties of wrong classes above it are hardly raised further."
    )
    competition: bool = Field(
        default=True, description="false leaves the logarithm out: the right class's penalty alone."
    )


class PerceptronConfig(LossConfig):
    """Rosenblatt's rule for one dense layer before heaviside: w += lr * (wanted - y) * x."""

    type: Literal["perceptron"] = "perceptron"


Loss = Annotated[
    Annotated[
        CrossEntropyConfig
        | MseConfig
        | HingeConfig
        | OneMinusPConfig
        | SquaredDistanceConfig
        | RbfMapConfig
        | PerceptronConfig,
        Field(discriminator="type"),
    ],
    Typed("loss"),
]

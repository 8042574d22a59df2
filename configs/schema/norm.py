"""Normalisation and dropout in a config."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, field_validator

from .base import NotNegative, Positive, problem
from .layer_base import Initializer, LayerConfig, ScaledInitializerConfig


class BatchNormConfig(LayerConfig):
    """Each channel to mean 0 and deviation 1 over the batch, then scaled and shifted.

    Evaluation takes running statistics of training in the place of the batch's.
    """

    written_last: ClassVar[tuple[str, ...]] = ("scale_initializer", "bias_initializer")
    type: Literal["batch_norm"] = "batch_norm"
    momentum: float = Field(
        default=0.1, gt=0, le=1, description="Weight of the new value in the running statistics."
    )
    eps: Positive = Field(default=1e-5, description="Added to the variance before the root.")
    scale: bool = Field(default=True, description="Multiply by a trained factor a channel.")
    center: bool = Field(default=True, description="Add a trained offset to each channel.")
    scale_initializer: Initializer = Field(
        default=ScaledInitializerConfig(type="ones"), description="First values of the factors."
    )
    bias_initializer: Initializer = Field(
        default=ScaledInitializerConfig(type="zeros"), description="First values of the offsets."
    )


class _LocalNorm(LayerConfig):
    size: Annotated[int, Field(ge=1, le=15)] = Field(
        default=5, description="Length of the window, odd."
    )
    alpha: NotNegative = Field(
        default=1e-4, description="Weight of the window's mean square (missing values count as 0)."
    )
    beta: Annotated[float, Field(ge=0.01)] = Field(default=0.75, description="Exponent.")
    k: Annotated[float, Field(ge=1e-5)] = Field(default=2.0, description="Added to the mean.")

    @field_validator("size")
    @classmethod
    def _odd(cls, size: int) -> int:
        if size % 2 == 0:
            raise problem("expected an odd number: the window has a middle")
        return size


class LrnConfig(_LocalNorm):
    """x / (k + alpha * mean of x^2 over neighbouring channels)^beta."""

    type: Literal["lrn"] = "lrn"


class LcnConfig(_LocalNorm):
    """x / (k + alpha * mean of x^2 over neighbouring pixels of the channel)^beta."""

    type: Literal["lcn"] = "lcn"


class DropoutConfig(LayerConfig):
    """In training, a random share of the values is set to 0, the rest scaled up to make up for it;
    nothing outside training."""

    type: Literal["dropout"] = "dropout"
    rate: Annotated[float, Field(ge=0, lt=1)] = Field(
        default=0.5, description="Share of the values that is dropped."
    )

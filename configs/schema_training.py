"""Loss, optimizer and learning-rate schedule of a config.

In every formula t is the number of updates done (0 at the first), lr the optimizer's ``lr``.
Arguments are in steps (updates) unless the key ends in ``_epochs``.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator

from .schema_base import (
    Count,
    Epochs,
    Model,
    NotNegative,
    Positive,
    Typed,
    TypedModel,
    problem,
    tupled,
)

Fraction = Annotated[float, Field(ge=0, le=1)]


def exactly_one(value: Any, info: ValidationInfo, other: str, own: str) -> Any:
    """``value`` of the field ``own``, if it or the field ``other`` before it is given, not both."""
    if other in info.data:
        first = info.data[other]
        if first is not None and value is not None:
            raise problem(f"give either {other} or {own}, not both")
        if first is None and value is None:
            raise problem(f"required: {other} or {own}", missing=True)
    return value


class LossConfig(TypedModel):
    kind: ClassVar[str] = "loss"


class CrossEntropyConfig(LossConfig):
    """-log of the probability of the right class; a final softmax layer is fused with it."""

    type: Literal["cross_entropy"] = "cross_entropy"
    label_smoothing: Annotated[float, Field(ge=0, lt=1)] = Field(
        default=0.0, description="Share of the target spread evenly over all classes."
    )


class MseConfig(LossConfig):
    """Mean of the squared differences to the one-hot target."""

    type: Literal["mse"] = "mse"


Loss = Annotated[
    Annotated[CrossEntropyConfig | MseConfig, Field(discriminator="type")], Typed("loss")
]


class SgdConfig(TypedModel):
    """Stochastic gradient descent as PyTorch's: buf = momentum * buf + g; p -= lr * buf."""

    kind: ClassVar[str] = "optimizer"
    type: Literal["sgd"] = "sgd"
    lr: Positive = Field(description="Learning rate, before the schedule.")
    momentum: Annotated[float, Field(ge=0, lt=1)] = Field(
        default=0.0, description="Share of the last update's direction that is kept."
    )
    nesterov: bool = Field(
        default=False, description="Nesterov's momentum: p -= lr * (g + m * buf)."
    )
    weight_decay: NotNegative = Field(
        default=0.0, description="g += weight_decay * p before the momentum (L2 regularisation)."
    )
    weight_decay_on: Literal["all", "weights"] = Field(
        default="all", description="Parameters that decay: all, or weights alone (no biases)."
    )
    clip_norm: Positive | None = Field(
        default=None, description="Scale all gradients down to this norm where theirs is larger."
    )

    @field_validator("nesterov")
    @classmethod
    def _needs_momentum(cls, nesterov: bool, info: ValidationInfo) -> bool:
        if nesterov and info.data.get("momentum") == 0:
            raise problem("nesterov needs a momentum above 0, such as 0.9")
        return nesterov


Optimizer = Annotated[SgdConfig, Typed("optimizer")]


class WarmupConfig(Model):
    """The first steps: lr is multiplied by a factor that rises in a line to 1.

    factor = start_factor + (1 - start_factor) * t / steps for t < steps.
    """

    steps: Count | None = Field(default=None, description="Length in steps.")
    epochs: Epochs | None = Field(
        default=None, validate_default=True, description="Length in epochs, instead of steps."
    )
    start_factor: Fraction = Field(default=0.1, description="Factor at the first step.")

    @field_validator("epochs")
    @classmethod
    def _one_length(cls, epochs: Any, info: ValidationInfo) -> Any:
        return exactly_one(epochs, info, "steps", "epochs")


class ScheduleConfig(TypedModel):
    kind: ClassVar[str] = "schedule"
    written_last: ClassVar[tuple[str, ...]] = ("warmup",)
    warmup: WarmupConfig | None = Field(
        default=None, description="Start with a smaller learning rate."
    )


class FixedConfig(ScheduleConfig):
    """lr_t = lr."""

    type: Literal["fixed"] = "fixed"


class StepConfig(ScheduleConfig):
    """lr_t = lr * gamma ** floor(t / step_size)."""

    type: Literal["step"] = "step"
    step_size: Count | None = Field(default=None, description="Steps between two changes.")
    step_size_epochs: Epochs | None = Field(
        default=None, validate_default=True, description="Epochs between two changes."
    )
    gamma: Positive = Field(default=0.1, description="Factor of each change.")

    @field_validator("step_size_epochs")
    @classmethod
    def _one_size(cls, value: Any, info: ValidationInfo) -> Any:
        return exactly_one(value, info, "step_size", "step_size_epochs")


def _rising(values: tuple[float, ...]) -> tuple[float, ...]:
    if any(b <= a for a, b in pairwise(values)):
        raise problem("expected milestones in rising order")
    return values


class MultistepConfig(ScheduleConfig):
    """lr_t = lr * gamma ** (number of milestones <= t)."""

    type: Literal["multistep"] = "multistep"
    milestones: (
        Annotated[tuple[Count, ...], Field(min_length=1), BeforeValidator(tupled)] | None
    ) = Field(default=None, description="Steps at which the rate changes.")
    milestones_epochs: (
        Annotated[tuple[Epochs, ...], Field(min_length=1), BeforeValidator(tupled)] | None
    ) = Field(default=None, validate_default=True, description="Epochs at which the rate changes.")
    gamma: Positive = Field(default=0.1, description="Factor of each change.")

    @field_validator("milestones")
    @classmethod
    def _steps_rise(cls, value: Any) -> Any:
        return value and _rising(value)

    @field_validator("milestones_epochs")
    @classmethod
    def _one_list(cls, value: Any, info: ValidationInfo) -> Any:
        return exactly_one(value and _rising(value), info, "milestones", "milestones_epochs")


class ExpConfig(ScheduleConfig):
    """lr_t = lr * gamma ** t."""

    type: Literal["exp"] = "exp"
    gamma: Annotated[float, Field(gt=0, le=1)] = Field(
        description="Factor of every single step: near 1, such as 0.9999."
    )


class InvConfig(ScheduleConfig):
    """lr_t = lr * (1 + gamma * t) ** -power."""

    type: Literal["inv"] = "inv"
    gamma: NotNegative = Field(description="How fast it falls, per step.")
    power: NotNegative = Field(description="The exponent.")


class _Ending(ScheduleConfig):
    written_last: ClassVar[tuple[str, ...]] = ("max_steps", "max_epochs", "warmup")
    max_steps: Count | None = Field(
        default=None,
        description="Step T at which the end is reached; default: the training's length.",
    )
    max_epochs: Epochs | None = Field(default=None, description="The same in epochs.")

    @field_validator("max_epochs")
    @classmethod
    def _one_end(cls, value: Any, info: ValidationInfo) -> Any:
        if value is not None and info.data.get("max_steps") is not None:
            raise problem("give either max_steps or max_epochs, not both")
        return value


class PolyConfig(_Ending):
    """lr_t = lr * (1 - t / T) ** power, 0 from T on."""

    type: Literal["poly"] = "poly"
    power: Positive = Field(default=1.0, description="The exponent; 1 is a straight line.")


class CosineConfig(_Ending):
    """lr_t = min_lr + (lr - min_lr) * (1 + cos(pi * t / T)) / 2, min_lr from T on."""

    type: Literal["cosine"] = "cosine"
    min_lr: NotNegative = Field(default=0.0, description="Learning rate at the end.")


class OneCycleConfig(ScheduleConfig):
    """Up from start_factor * lr to lr, then down to end_factor * lr at the training's end."""

    type: Literal["one_cycle"] = "one_cycle"
    peak_fraction: Annotated[float, Field(gt=0, lt=1)] = Field(
        default=0.3, description="Share of the training at which lr is reached."
    )
    start_factor: Fraction = Field(default=0.04, description="First rate, as a share of lr.")
    end_factor: Fraction = Field(default=0.0, description="Last rate, as a share of lr.")
    shape: Literal["cosine", "linear"] = Field(default="cosine", description="Form of both slopes.")


class CompoundingConfig(ScheduleConfig):
    """lr_t = lr * product over i = 1..t of 1 / (1 + decay * i)."""

    type: Literal["compounding"] = "compounding"
    decay: NotNegative = Field(description="Decay, per step; it compounds, so keep it tiny.")


Schedule = Annotated[
    Annotated[
        FixedConfig
        | StepConfig
        | MultistepConfig
        | ExpConfig
        | InvConfig
        | PolyConfig
        | CosineConfig
        | OneCycleConfig
        | CompoundingConfig,
        Field(discriminator="type"),
    ],
    Typed("schedule"),
]

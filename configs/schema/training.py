"""The learning-rate schedule of a config.

In every formula t is the number of updates done (0 at the first), lr the optimizer's ``lr``.
Arguments are in steps (updates) unless the key ends in ``_epochs``.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    BeforeValidator,
    Field,
    PlainSerializer,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
)

from .base import (
    LARGEST,
    Count,
    Epochs,
    Model,
    NotNegative,
    Positive,
    Typed,
    TypedModel,
    is_number,
    problem,
    tupled,
)

Fraction = Annotated[float, Field(ge=0, le=1)]
Step = Annotated[int, Field(ge=0, le=LARGEST)]


def exactly_one(value: Any, info: ValidationInfo, other: str, own: str) -> Any:
    """``value`` of the field ``own``, if it or the field ``other`` before it is given, not both."""
    if other in info.data:
        first = info.data[other]
        if first is not None and value is not None:
            raise problem(f"give either {other} or {own}, not both")
        if first is None and value is None:
            raise problem(f"required: {other} or {own}", missing=True)
    return value


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


def _rising(values: tuple[float, ...], what: str = "milestones") -> tuple[float, ...]:
    if any(b <= a for a, b in pairwise(values)):
        raise problem(f"expected {what} in rising order")
    return values


def _factors(value: Any) -> Any:
    values = value if isinstance(value, (list, tuple)) else [value]
    if not values or not all(is_number(v) and 0 < v <= 1e6 for v in values):
        raise problem("expected a number above 0, or a list with one for each milestone")
    return tuple(float(v) for v in values)


Factors = Annotated[
    tuple[float, ...],
    BeforeValidator(_factors),
    PlainSerializer(lambda v: v[0] if len(v) == 1 else list(v)),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "number", "exclusiveMinimum": 0},
                {"type": "array", "items": {"type": "number", "exclusiveMinimum": 0}},
            ]
        }
    ),
]


class MultistepConfig(ScheduleConfig):
    """lr_t = lr * gamma ** (number of milestones <= t), or the product of that many gammas."""

    type: Literal["multistep"] = "multistep"
    milestones: (
        Annotated[tuple[Count, ...], Field(min_length=1), BeforeValidator(tupled)] | None
    ) = Field(default=None, description="Steps at which the rate changes.")
    milestones_epochs: (
        Annotated[tuple[Epochs, ...], Field(min_length=1), BeforeValidator(tupled)] | None
    ) = Field(default=None, validate_default=True, description="Epochs at which the rate changes.")
    gamma: Factors = Field(
        default=(0.1,), description="Factor of each change: one for all, or one for each."
    )

    @field_validator("gamma")
    @classmethod
    def _one_each(cls, gamma: tuple[float, ...], info: ValidationInfo) -> tuple[float, ...]:
        changes = info.data.get("milestones") or info.data.get("milestones_epochs") or gamma
        if len(gamma) not in (1, len(changes)):
            raise problem(f"expected one number, or {len(changes)} for as many milestones")
        return gamma

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
    min_lr: NotNegative = Field(
        default=0.0,
        description="Learning rate at the end; the same where a group, or rest under muon, has its "
        "own lr. lr_factor multiplies it too.",
    )


class OneCycleConfig(ScheduleConfig):
    """Up from start_factor * lr to lr, then down to end_factor * lr at the training's end."""

    type: Literal["one_cycle"] = "one_cycle"
    peak_fraction: Annotated[float, Field(gt=0, lt=1)] = Field(
        default=0.3, description="Share of the training at which lr is reached."
    )
    start_factor: Fraction = Field(default=0.04, description="First rate, as a share of lr.")
    end_factor: Fraction = Field(default=0.0, description="Last rate, as a share of lr.")
    shape: Literal["cosine", "linear"] = Field(default="cosine", description="Form of both slopes.")


class PiecewiseConfig(ScheduleConfig):
    """lr times a factor that goes in straight lines from point to point."""

    type: Literal["piecewise"] = "piecewise"
    factors: Annotated[tuple[NotNegative, ...], Field(min_length=1), BeforeValidator(tupled)] = (
        Field(description="The factor of lr at each point.")
    )
    at: Annotated[tuple[Step, ...], BeforeValidator(tupled)] | None = Field(
        default=None, description="The points in steps, rising."
    )
    at_epochs: Annotated[tuple[NotNegative, ...], BeforeValidator(tupled)] | None = Field(
        default=None, description="The points in epochs."
    )
    at_fractions: Annotated[tuple[Fraction, ...], BeforeValidator(tupled)] | None = Field(
        default=None,
        validate_default=True,
        description="The points as shares of the training's steps, rounded down.",
    )

    @field_validator("at", "at_epochs", "at_fractions")
    @classmethod
    def _points(cls, points: Any, info: ValidationInfo) -> Any:
        own = info.field_name
        if points is not None:
            given = [key for key in ("at", "at_epochs") if info.data.get(key) is not None]
            if given:
                raise problem(f"give either {given[0]} or {own}, not both")
            if "factors" in info.data and len(points) != len(info.data["factors"]):
                raise problem(f"expected a point for each of {len(info.data['factors'])} factors")
            return _rising(points, "points")
        missing = own == "at_fractions" and all(
            key in info.data and info.data[key] is None for key in ("at", "at_epochs")
        )
        if missing:
            raise problem("required: at, at_epochs or at_fractions", missing=True)
        return points


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
        | PiecewiseConfig
        | CompoundingConfig,
        Field(discriminator="type"),
    ],
    Typed("schedule"),
]

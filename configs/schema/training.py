"""The learning-rate schedule of a config.

In every formula t is the number of updates done (0 at the first), lr the optimizer's ``lr``.
Arguments are in steps (updates) unless the key ends in ``_epochs``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import (
    Field,
    ValidationInfo,
    field_validator,
)

from ...common.options import LARGEST, Count, Fraction
from ...optimizers.schedules import SCHEDULES
from .base import Epochs, Model, Typed, TypedModel, problem
from .declared import config_models, union

Step = Annotated[int, Field(ge=0, le=LARGEST)]


def exactly_one(value: Any, info: ValidationInfo, other: str, own: str) -> Any:
    """``value`` of the field ``own``, if exactly one of it and the earlier ``other`` is given."""
    if other in info.data:
        first = info.data[other]
        if first is not None and value is not None:
            raise problem(f"give either {other} or {own}, not both")
        if first is None and value is None:
            raise problem(f"required: {other} or {own}", missing=True)
    return value


class WarmupConfig(Model):
    """The first steps: lr is multiplied by a factor that rises linearly to 1.

    factor = start_factor + (1 - start_factor) * t / steps for t < steps.
    """

    steps: Annotated[Count | None, "Length in steps."] = None
    epochs: Annotated[Epochs | None, "Length in epochs, instead of steps."] = None
    start_factor: Annotated[Fraction, "Factor at the first step."] = 0.1

    @field_validator("epochs")
    @classmethod
    def _one_length(cls, epochs: Any, info: ValidationInfo) -> Any:
        return exactly_one(epochs, info, "steps", "epochs")


class ScheduleConfig(TypedModel):
    kind: ClassVar[str] = "schedule"
    type: str
    written_last: ClassVar[tuple[str, ...]] = ("warmup",)
    warmup: Annotated[WarmupConfig | None, "Start with a smaller learning rate."] = None


_MODELS = config_models(SCHEDULES, ScheduleConfig)
FIXED = _MODELS["fixed"](type="fixed")

if TYPE_CHECKING:
    Schedule = ScheduleConfig
else:
    Schedule = Annotated[
        Annotated[union(_MODELS.values()), Field(discriminator="type")], Typed("schedule")
    ]

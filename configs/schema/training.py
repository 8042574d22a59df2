"""The learning-rate schedule of a config.

In every formula t is the number of updates done (0 at the first), lr the optimizer's ``lr``.
Arguments are in steps (updates) unless the key ends in ``_epochs``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar

from pydantic import Field

from ...common.options import LARGEST, Count, Fraction, either
from ...optimizers.schedules import SCHEDULES
from .base import Epochs, Model, Typed, TypedModel, checked
from .declared import config_models, one_of

Step = Annotated[int, Field(ge=0, le=LARGEST)]


class WarmupConfig(Model):
    """The first steps: lr is multiplied by a factor that rises linearly to 1.

    factor = start_factor + (1 - start_factor) * t / steps for t < steps.
    """

    steps: Annotated[Count | None, "Length in steps."] = None
    epochs: Annotated[
        Epochs | None, checked(either("steps", "epochs")), "Length in epochs, instead of steps."
    ] = None
    start_factor: Annotated[Fraction, "Factor at the first step."] = 0.1


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
    Schedule = one_of(_MODELS, Typed("schedule"))

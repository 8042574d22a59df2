"""The loss and the learning-rate schedule of a config.

In every formula of a schedule t is the number of updates done (0 at the first), lr the optimizer's
``lr``. Arguments are in steps (updates) unless the key ends in ``_epochs``. In those of losses t is
the right class, s the scores of the last layer, p = softmax(s), K the number of classes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from ...common.options import Count, Fraction, either
from ...layers.losses import LOSSES
from ...optimizers.schedules import SCHEDULES
from .base import Epochs, Model, Typed, TypedModel, checked
from .declared import config_models, one_of


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


_SCHEDULES: dict[str, type[ScheduleConfig]] = {}


def schedule_type(kinds: Mapping[str, type]) -> Any:
    """The type of a schedule in a config: one of those known before, or one of these kinds."""
    _SCHEDULES.update(config_models(kinds, ScheduleConfig))
    return one_of(_SCHEDULES, Typed("schedule"))


if TYPE_CHECKING:
    Schedule = ScheduleConfig
else:
    Schedule = schedule_type(SCHEDULES)
FIXED = _SCHEDULES["fixed"](type="fixed")


class LossConfig(TypedModel):
    kind: ClassVar[str] = "loss"
    type: str
    written_last: ClassVar[tuple[str, ...]] = ("reduction",)
    reduction: Annotated[
        Literal["mean", "sum"],
        "Over the samples of a batch: mean or sum; the log always shows means.",
    ] = "mean"


_LOSSES: dict[str, type[LossConfig]] = {}


def loss_type(kinds: Mapping[str, type]) -> Any:
    """The type of a loss in a config: one of those known before, or one of these kinds."""
    _LOSSES.update(config_models(kinds, LossConfig))
    return one_of(_LOSSES, Typed("loss"))


if TYPE_CHECKING:
    Loss = LossConfig
else:
    Loss = loss_type(LOSSES)
CROSS_ENTROPY = _LOSSES["cross_entropy"](type="cross_entropy")

"""The loss and the learning-rate schedule of a config, and what validations bring about.

In every formula of a schedule t is the number of updates done (0 at the first), lr the optimizer's
``lr``. Arguments are in steps (updates) unless the key ends in ``_epochs``. In those of losses t is
the right class, s the scores of the last layer, p = softmax(s), K the number of classes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema

from ...common.options import (
    LARGEST,
    Count,
    Fraction,
    NotNegative,
    Share,
    either,
    is_number,
    some_of,
)
from ...layers.losses import LOSSES
from ...optimizers.schedules import SCHEDULES
from .base import Epochs, Model, Typed, TypedModel, checked, problem
from .declared import config_models
from .one_of import Models, one_of


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
    noun: ClassVar[str] = "schedule"
    type: str
    written_last: ClassVar[tuple[str, ...]] = ("warmup",)
    warmup: Annotated[WarmupConfig | None, "Start with a smaller learning rate."] = None


_SCHEDULES = Models[ScheduleConfig]({})


def schedule_type(kinds: Mapping[str, type]) -> Any:
    """The type of a schedule in a config: one of those known before, or one of these kinds."""
    global _SCHEDULES
    _SCHEDULES = _SCHEDULES.with_others(config_models(kinds, ScheduleConfig))
    return one_of(_SCHEDULES, Typed("schedule"))


if TYPE_CHECKING:
    Schedule = ScheduleConfig
else:
    Schedule = schedule_type(SCHEDULES)
FIXED = _SCHEDULES["fixed"](type="fixed")


def _class_weights(value: Any) -> Any:
    if value == "balanced":
        return value
    table = isinstance(value, Mapping)
    if not (table or isinstance(value, (list, tuple))) or not value:
        raise problem(
            "expected balanced, a list with a number for each class, or a mapping of classes' "
            "names to numbers",
            words=("balanced",),
        )
    weights = list(value.values() if table else value)
    if not all(is_number(weight) and 0 <= weight <= _HEAVIEST for weight in weights):
        raise problem("expected numbers from 0 to 1000000")
    if not any(weights):
        raise problem("expected a number above 0")
    return {str(name): value[name] for name in value} if table else tuple(value)


_HEAVIEST = 1_000_000
_WEIGHT = {"type": "number", "minimum": 0, "maximum": _HEAVIEST}
ClassWeights = Annotated[
    Any,
    BeforeValidator(_class_weights),
    WithJsonSchema(
        {
            "anyOf": [
                {"enum": ["balanced"]},
                {"type": "array", "items": _WEIGHT, "minItems": 1},
                {"type": "object", "additionalProperties": _WEIGHT, "minProperties": 1},
            ]
        }
    ),
]
"""``balanced``, one for each class, or by the names of classes."""


class GoalConfig(Model):
    """The goal of training, which ends as soon as everything given here is reached.

    Measured at every validation or, without validation samples, over every line of the log.
    """

    accuracy: Annotated[
        Annotated[float, Field(ge=0, le=1)] | None, "Accuracy to reach, 0 to 1."
    ] = None
    r2: Annotated[
        Annotated[float, Field(le=1)] | None, "R2 to reach, where targets are numbers; at most 1."
    ] = None
    loss: Annotated[
        NotNegative | None,
        checked(some_of("accuracy", "r2", "loss")),
        "Mean loss that must not be exceeded.",
    ] = None


class PlateauConfig(Model):
    """The rates of all steps that follow are multiplied by a factor at every plateau.

    A validation is better if its value is beyond the best before it by more than ``threshold``
    times that; the formula is that of PyTorch's ReduceLROnPlateau with one validation less.
    """

    factor: Annotated[Annotated[float, Field(gt=0, lt=1)], "What the rates are multiplied by."] = (
        0.1
    )
    patience: Annotated[
        Count, "Validations in a row without improvement after which the rates fall."
    ] = 10
    threshold: Annotated[Share, "The least improvement that counts, as a share of the best."] = 1e-4
    cooldown: Annotated[
        Annotated[int, Field(ge=0, le=LARGEST)], "Validations after a fall that are not counted."
    ] = 0
    min_lr: Annotated[
        NotNegative,
        "Below this the optimizer's lr does not fall; other rates keep their ratio to it.",
    ] = 0.0
    by: Annotated[
        Literal["loss", "best"],
        "loss: of the validation; best: what the best checkpoint is best by.",
    ] = "loss"


class LossConfig(TypedModel):
    noun: ClassVar[str] = "loss"
    type: str
    written_last: ClassVar[tuple[str, ...]] = ("reduction", "class_weights")
    reduction: Annotated[
        Literal["mean", "sum"],
        "Over the samples of a batch: mean or sum; the log always shows means.",
    ] = "mean"
    class_weights: Annotated[
        ClassWeights | None,
        "In training, what the loss of a sample is multiplied by: balanced, a list with a number "
        "for each class, or {name: number}; default: 1.",
    ] = None


_LOSSES = Models[LossConfig]({})


def loss_type(kinds: Mapping[str, type]) -> Any:
    """The type of a loss in a config: one of those known before, or one of these kinds."""
    global _LOSSES
    _LOSSES = _LOSSES.with_others(config_models(kinds, LossConfig))
    return one_of(_LOSSES, Typed("loss"))


if TYPE_CHECKING:
    Loss = LossConfig
else:
    Loss = loss_type(LOSSES)
CROSS_ENTROPY = _LOSSES["cross_entropy"](type="cross_entropy")

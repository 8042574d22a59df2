"""The optimizer of a config: rules, groups of parameters, averages of the weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator

from ...common.options import (
    Count,
    NotNegative,
    Positive,
    Share,
    either,
    instead_of,
    options_of,
    some_of,
)
from ...optimizers import RULES
from ...optimizers.rules import Decaying
from .base import Epochs, Model, Typed, TypedModel, checked, one_or_more, problem, short, tupled
from .declared import config_models
from .one_of import Models, one_of
from .training import Schedule

Kind = Literal["kernel", "bias", "scale", "shift"]


def _listed(value: Any) -> Any:
    return (value,) if isinstance(value, str) else tupled(value)


Patterns = Annotated[
    tuple[Annotated[str, Field(min_length=1)], ...],
    BeforeValidator(_listed),
    short,
    one_or_more({"type": "string", "minLength": 1}),
]
"""One text or a list of them."""
Kinds = Annotated[
    tuple[Kind, ...],
    BeforeValidator(_listed),
    short,
    one_or_more({"enum": ["kernel", "bias", "scale", "shift"]}),
]


class GroupConfig(Model):
    """Parameters with their own settings; a parameter belongs to the first group it matches."""

    parameters: Annotated[
        Patterns | None, "Names such as conv2d_1.bias; * and ? stand for any text."
    ] = None
    kind: Annotated[
        Kinds | None,
        checked(some_of("parameters", "kind")),
        "kernel, bias, scale or shift (those of normalisation; scale also the "
        "coefficients of scaled_subsampling); if parameters are given too, both must match.",
    ] = None
    lr_factor: Annotated[
        NotNegative | None, "Multiple of the optimizer's learning rate of each step."
    ] = None
    lr: Annotated[
        NotNegative | None,
        checked(instead_of("lr_factor", "lr")),
        "Learning rate before the schedule, instead of lr_factor; "
        "min_lr of a cosine applies to it unchanged.",
    ] = None
    weight_decay: Annotated[NotNegative | None, "Weight decay; default: the optimizer's."] = None
    schedule: Annotated[
        Schedule | None, "Schedule of the group's rate; default: the training's."
    ] = None
    frozen: Annotated[bool, "Never train them."] = False
    freeze_until_epoch: Annotated[Epochs | None, "Epochs that pass before they are trained."] = None
    freeze_after_epoch: Annotated[
        Epochs | None, "Epochs after which they are no longer trained."
    ] = None

    @field_validator("freeze_until_epoch", "freeze_after_epoch")
    @classmethod
    def _sometimes(cls, value: Any, info: ValidationInfo) -> Any:
        if value is not None and info.data.get("frozen"):
            raise problem("the group is always frozen; remove frozen or this key")
        begin = info.data.get("freeze_until_epoch")
        if begin is not None and value is not None and value <= begin:
            raise problem(f"expected an epoch after freeze_until_epoch ({begin:g})")
        return value


class EmaConfig(Model):
    """avg = decay * avg + (1 - decay) * p after every step; evaluation uses the averages."""

    decay: Annotated[Share, "Share of the average that is kept at every step."]


class LookaheadConfig(Model):
    """Every few steps, slow = d * slow + (1 - d) * p, then p = slow; p = slow also at the end.

    d = decay ** every * (t / T) ** power after t of the T steps of the training.
    """

    every: Annotated[Count, "Steps between two synchronisations."] = 5
    decay: Annotated[Share, "Share of the slow weights that is kept per step."] = 0.95
    power: Annotated[NotNegative, "How late in training it takes effect; 0: constant."] = 3.0


class SwaConfig(Model):
    """avg = (n * avg + p) / (n + 1) at some steps, n being those before; evaluation uses avg.

    The statistics of batch norm are measured anew, over the training pictures, for the average.
    """

    start_step: Annotated[
        Count | None, "Step after which the weights are in the average first."
    ] = None
    start_epoch: Annotated[
        Epochs | None,
        checked(either("start_step", "start_epoch")),
        "Epoch after which they are, instead of start_step.",
    ] = None
    every_steps: Annotated[Count | None, "Steps from one to the next that is in the average."] = (
        None
    )
    every_epochs: Annotated[
        Epochs | None,
        checked(instead_of("every_steps", "every_epochs")),
        "Epochs from one to the next; default: 1, unless every_steps is given.",
    ] = None


class RuleConfig(TypedModel):
    """An update rule alone, without groups, clipping or averages."""

    noun: ClassVar[str] = "optimizer"
    written_last: ClassVar[tuple[str, ...]] = ("weight_decay", "weight_decay_on")
    type: str
    lr: Annotated[Positive, "Learning rate, before the schedule."]

    def rule_options(self) -> dict[str, Any]:
        """The options of the rule itself."""
        return {each.name: getattr(self, each.name) for each in options_of(RULES[self.type])}


class OptimizerConfig(RuleConfig):
    written_last: ClassVar[tuple[str, ...]] = (
        *RuleConfig.written_last,
        *("clip_norm", "layer_decay", "groups", "ema", "lookahead", "swa"),
    )
    clip_norm: Annotated[
        Positive | None, "Scale all gradients down to this norm if their norm is larger."
    ] = None
    layer_decay: Annotated[
        Annotated[float, Field(gt=0, le=1)] | None,
        "Multiply the rate of a layer by this once for every layer above it; default: 1.",
    ] = None
    groups: Annotated[
        Annotated[tuple[GroupConfig, ...], Field(min_length=1), BeforeValidator(tupled)] | None,
        "Parameters with their own settings.",
    ] = None
    ema: Annotated[EmaConfig | None, "Keep averages of the weights; evaluation uses them."] = None
    lookahead: Annotated[
        LookaheadConfig | None, "Periodically replace the weights by slow ones."
    ] = None
    swa: Annotated[
        SwaConfig | None,
        checked(instead_of("ema", "swa")),
        "Average the weights of some steps equally; evaluation uses the average.",
    ] = None

    @property
    def rest_rule(self) -> RuleConfig | None:
        """The rule for the parameters that this one does not train."""
        rest: RuleConfig | None = getattr(self, "rest", None)
        return rest


def optimizer_type(rules: Mapping[str, type], base: type[OptimizerConfig] = OptimizerConfig) -> Any:
    """The type of an optimizer in a config: one of these rules, with what ``base`` has."""
    rests = {kind: rule for kind, rule in rules.items() if issubclass(rule, Decaying)}
    rest = one_of(config_models(rests, RuleConfig, suffix="Rule"), Typed("optimizer"))
    models = config_models(rules, base, {Decaying: rest})

    def muon() -> type[OptimizerConfig]:
        model = models["muon"]
        # Configs keep the order in which earlier versions wrote them.
        model.written_last = (*base.written_last[2:], "weight_decay")
        return model

    return one_of(models.with_others(Models({"muon": muon})), Typed("optimizer"))


def groups_of(group: Any) -> Any:
    """The type of the groups of an optimizer."""
    listed = tuple[group, ...]
    return Annotated[listed, Field(min_length=1), BeforeValidator(tupled)] | None


if TYPE_CHECKING:
    Optimizer = OptimizerConfig
else:
    Optimizer = optimizer_type(RULES)

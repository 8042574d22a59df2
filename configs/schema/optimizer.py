"""The optimizer of a config: rules, groups of parameters, averages of the weights."""

from __future__ import annotations

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
from .training import Schedule

Share = Annotated[float, Field(ge=0, lt=1)]
Kind = Literal["kernel", "bias", "scale", "shift"]


def _listed(value: Any) -> Any:
    return (value,) if isinstance(value, str) else tupled(value)


def _short(value: Any) -> Any:
    return value if value is None else value[0] if len(value) == 1 else list(value)


def _schema(item: dict[str, Any]) -> WithJsonSchema:
    return WithJsonSchema({"anyOf": [item, {"type": "array", "items": item, "minItems": 1}]})


Patterns = Annotated[
    tuple[Annotated[str, Field(min_length=1)], ...],
    BeforeValidator(_listed),
    PlainSerializer(_short),
    _schema({"type": "string", "minLength": 1}),
]
"""One text or a list of them."""
Kinds = Annotated[
    tuple[Kind, ...],
    BeforeValidator(_listed),
    PlainSerializer(_short),
    _schema({"enum": ["kernel", "bias", "scale", "shift"]}),
]


class GroupConfig(Model):
    """Parameters that are updated in another way than the rest; the first fitting group counts."""

    parameters: Patterns | None = Field(
        default=None, description="Names such as conv2d_1.bias; * and ? stand for any text."
    )
    kind: Kinds | None = Field(
        default=None,
        validate_default=True,
        description="kernel, bias, scale or shift (those of normalisation; scale also the "
        "coefficients of scaled_subsampling); where parameters are given too, both must fit.",
    )
    lr_factor: NotNegative | None = Field(
        default=None, description="Multiple of the optimizer's learning rate of each step."
    )
    lr: NotNegative | None = Field(
        default=None,
        description="Learning rate before the schedule, instead of lr_factor; "
        "min_lr of a cosine holds for it as it stands.",
    )
    weight_decay: NotNegative | None = Field(
        default=None, description="Weight decay; default: the optimizer's."
    )
    schedule: Schedule | None = Field(
        default=None, description="Schedule of the group's rate; default: the training's."
    )
    frozen: bool = Field(default=False, description="Never train them.")
    freeze_until_epoch: Epochs | None = Field(
        default=None, description="Epochs that pass before they are trained."
    )
    freeze_after_epoch: Epochs | None = Field(
        default=None, description="Epochs after which they are trained no more."
    )

    @field_validator("kind")
    @classmethod
    def _some(cls, kind: Any, info: ValidationInfo) -> Any:
        if kind is None and "parameters" in info.data and info.data["parameters"] is None:
            raise problem("required: parameters or kind", missing=True)
        return kind

    @field_validator("lr")
    @classmethod
    def _one_rate(cls, lr: Any, info: ValidationInfo) -> Any:
        if lr is not None and info.data.get("lr_factor") is not None:
            raise problem("give either lr_factor or lr, not both")
        return lr

    @field_validator("freeze_until_epoch", "freeze_after_epoch")
    @classmethod
    def _sometimes(cls, value: Any, info: ValidationInfo) -> Any:
        if value is not None and info.data.get("frozen"):
            raise problem("the group is frozen for good; take frozen out, or this")
        begin = info.data.get("freeze_until_epoch")
        if begin is not None and value is not None and value <= begin:
            raise problem(f"expected an epoch after freeze_until_epoch ({begin:g})")
        return value


class EmaConfig(Model):
    """avg = decay * avg + (1 - decay) * p after every step; evaluation takes the averages."""

    decay: Share = Field(description="Share of the average that is kept at every step.")


class LookaheadConfig(Model):
    """Every so many steps slow = d * slow + (1 - d) * p, then p = slow; p = slow at the end.

    d = decay ** every * (t / T) ** power, with t steps done of the training's T.
    """

    every: Count = Field(default=5, description="Steps between two meetings.")
    decay: Share = Field(default=0.95, description="Share of the slow weights kept for a step.")
    power: NotNegative = Field(
        default=3.0, description="How late in training it sets in; 0: it is the same throughout."
    )


class _Rule(TypedModel):
    kind: ClassVar[str] = "optimizer"
    written_last: ClassVar[tuple[str, ...]] = (
        *("weight_decay", "weight_decay_on"),
        *("clip_norm", "groups", "ema", "lookahead"),
    )
    lr: Positive = Field(description="Learning rate, before the schedule.")


class _Decaying(_Rule):
    weight_decay: NotNegative = Field(
        default=0.0, description="g += weight_decay * p before the momentum (L2 regularisation)."
    )
    weight_decay_on: Literal["all", "weights"] = Field(
        default="all", description="Parameters that decay: all, or weights alone (no biases)."
    )


class SgdRule(_Decaying):
    """Stochastic gradient descent as PyTorch's: buf = momentum * buf + g; p -= lr * buf."""

    type: Literal["sgd"] = "sgd"
    momentum: Share = Field(
        default=0.0, description="Share of the last update's direction that is kept."
    )
    nesterov: bool = Field(
        default=False, description="Nesterov's momentum: p -= lr * (g + m * buf)."
    )

    @field_validator("nesterov")
    @classmethod
    def _needs_momentum(cls, nesterov: bool, info: ValidationInfo) -> bool:
        if nesterov and info.data.get("momentum") == 0:
            raise problem("nesterov needs a momentum above 0, such as 0.9")
        return nesterov


def _two(value: Any) -> Any:
    if isinstance(value, list) and len(value) != 2:
        raise problem("expected two numbers, such as [0.9, 0.999]")
    return tupled(value)


class _AdamRule(_Decaying):
    betas: Annotated[tuple[Share, Share], BeforeValidator(_two), PlainSerializer(list)] = Field(
        default=(0.9, 0.999), description="Shares of the averages of g and g**2 that are kept."
    )
    eps: Positive = Field(default=1e-8, description="Added to the root in the denominator.")


class AdamRule(_AdamRule):
    """Adam as PyTorch's; weight decay is added to the gradient."""

    type: Literal["adam"] = "adam"


class AdamwRule(_AdamRule):
    """Adam with decoupled weight decay: p -= lr * weight_decay * p beside its step."""

    type: Literal["adamw"] = "adamw"
    weight_decay: NotNegative = Field(
        default=0.01, description="p -= lr * weight_decay * p beside the update."
    )


class _Whole(_Rule):
    """What surrounds the rule."""

    clip_norm: Positive | None = Field(
        default=None, description="Scale all gradients down to this norm where theirs is larger."
    )
    groups: (
        Annotated[tuple[GroupConfig, ...], Field(min_length=1), BeforeValidator(tupled)] | None
    ) = Field(default=None, description="Parameters that are treated in another way.")
    ema: EmaConfig | None = Field(
        default=None, description="Keep averages of the weights; evaluation takes them."
    )
    lookahead: LookaheadConfig | None = Field(
        default=None, description="Draw the weights to slow ones now and then."
    )


class SgdConfig(_Whole, SgdRule):
    """Stochastic gradient descent as PyTorch's: buf = momentum * buf + g; p -= lr * buf."""


class AdamConfig(_Whole, AdamRule):
    """Adam as PyTorch's; weight decay is added to the gradient."""


class AdamwConfig(_Whole, AdamwRule):
    """Adam with decoupled weight decay: p -= lr * weight_decay * p beside its step."""


Rest = Annotated[
    Annotated[SgdRule | AdamRule | AdamwRule, Field(discriminator="type")], Typed("optimizer")
]


class MuonConfig(_Whole):
    """Muon for the filters of convolutions; all else follows the rule under ``rest``."""

    type: Literal["muon"] = "muon"
    rest: Rest = Field(description="The rule of all parameters that are no filters.")
    momentum: Share = Field(
        default=0.95, description="Share of the last update's direction that is kept."
    )
    nesterov: bool = Field(default=True, description="Nesterov's momentum: u = g + m * buf.")
    iterations: Count = Field(default=5, description="Iterations of Newton and Schulz.")
    rescale: bool = Field(
        default=False, description="Give each filter bank the norm sqrt(filters) before its step."
    )
    weight_decay: NotNegative = Field(
        default=0.0, description="p -= lr * weight_decay * p beside the update, for filters."
    )


Optimizer = Annotated[
    Annotated[
        SgdConfig | AdamConfig | AdamwConfig | MuonConfig,
        Field(discriminator="type"),
    ],
    Typed("optimizer"),
]

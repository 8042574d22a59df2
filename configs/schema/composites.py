"""Layers made of layers, the union of all kinds of layers, and their names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Any, Literal, cast

from pydantic import (
    BeforeValidator,
    Field,
    PlainSerializer,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)

from .base import Named, problem, tupled
from .classic import (
    HeavisideConfig,
    Pad2dConfig,
    RbfConfig,
    ScaledSubsamplingConfig,
    ScaledTanhConfig,
)
from .layer_base import LayerConfig
from .layers import (
    AvgPool2dConfig,
    Conv2dConfig,
    DenseConfig,
    EluConfig,
    FlattenConfig,
    GeluConfig,
    GlobalAvgPool2dConfig,
    LeakyReluConfig,
    MaxPool2dConfig,
    ReluConfig,
    ScaleConfig,
    SigmoidConfig,
    SiluConfig,
    SoftmaxConfig,
    SoftplusConfig,
    TanhConfig,
)
from .norm import BatchNormConfig, DropoutConfig, LcnConfig, LrnConfig
from .shape import kinds, models_in

SHORTCUTS = ("identity", "projection", "padding")


def _branches(value: Any) -> Any:
    """A list of lists as tuples; a branch may be empty."""
    if not isinstance(value, (list, tuple)) or len(value) < 2:
        raise problem("expected a list of at least two lists of layers")
    return tuple(tuple(branch) if isinstance(branch, list) else branch for branch in value)


def _shortcut(value: Any, layers: ValidatorFunctionWrapHandler) -> Any:
    """One of the words, or what ``layers`` makes of a list."""
    if isinstance(value, str) and value in SHORTCUTS:
        return value
    if not isinstance(value, (list, tuple)):
        raise problem(f"expected {', '.join(SHORTCUTS)} or a list of layers")
    return layers(tupled(value))


def _written(value: Any) -> Any:
    """Layers, lists of layers or a word as plain data: a union inside itself is beyond pydantic."""
    if isinstance(value, tuple):
        return tuple(_written(item) for item in value)
    return value if isinstance(value, str) else value.model_dump()


WRITTEN = PlainSerializer(_written)


class SequentialConfig(LayerConfig):
    """Layers, one after the other, under a name of their own."""

    type: Literal["sequential"] = "sequential"
    layers: Annotated[tuple[Layer, ...], Field(min_length=1), BeforeValidator(tupled), WRITTEN] = (
        Field(description="The layers.")
    )


class ResidualConfig(LayerConfig):
    """body(x) + shortcut(x)."""

    type: Literal["residual"] = "residual"
    body: Annotated[tuple[Layer, ...], Field(min_length=1), BeforeValidator(tupled), WRITTEN] = (
        Field(description="The layers of the body.")
    )
    shortcut: Annotated[tuple[Layer, ...], WrapValidator(_shortcut), WRITTEN] = Field(
        default=cast("tuple[Layer, ...]", "identity"),
        description="The way around the body: identity; projection, a 1x1 convolution of the right "
        "stride; padding, every n-th pixel with channels of zeros added; or a list of layers.",
    )


class ConcatConfig(LayerConfig):
    """The outputs of several branches, one after another along the channels."""

    type: Literal["concat"] = "concat"
    branches: Annotated[tuple[tuple[Layer, ...], ...], BeforeValidator(_branches), WRITTEN] = Field(
        description="Lists of layers; an empty list passes the input on."
    )


NESTED = {"sequential": ("layers",), "residual": ("body", "shortcut"), "concat": ("branches",)}
"""The options that hold layers, or lists of layers, in the order in which layers are counted."""


Layer = Annotated[
    Annotated[
        DenseConfig
        | Conv2dConfig
        | MaxPool2dConfig
        | AvgPool2dConfig
        | GlobalAvgPool2dConfig
        | FlattenConfig
        | ScaleConfig
        | SoftmaxConfig
        | BatchNormConfig
        | LrnConfig
        | LcnConfig
        | DropoutConfig
        | ReluConfig
        | LeakyReluConfig
        | SigmoidConfig
        | TanhConfig
        | EluConfig
        | SoftplusConfig
        | SiluConfig
        | GeluConfig
        | ScaledTanhConfig
        | HeavisideConfig
        | Pad2dConfig
        | ScaledSubsamplingConfig
        | RbfConfig
        | SequentialConfig
        | ResidualConfig
        | ConcatConfig,
        Field(discriminator="type"),
    ],
    Named("layer", "relu or dense: {units: 10}"),
]

for _composite in (SequentialConfig, ResidualConfig, ConcatConfig):
    _composite.model_rebuild()

LAYER_KINDS = tuple(kind for model in models_in(Layer) for kind in kinds(model))


def named_layers(
    layers: Sequence[Layer], counts: Counter[str] | None = None, prefix: str = ""
) -> list[tuple[str, Layer]]:
    """Each layer with its name: its ``name``, else ``<type>_<n>``, n counted from 1 per type.

    The body of a residual is counted before its shortcut, whichever is written first. Each layer is
    followed by those that it is made of, whose names begin with its own and a dot.
    """
    counts = Counter() if counts is None else counts
    found: list[tuple[str, Layer]] = []
    for layer in layers:
        counts[layer.type] += 1
        name = prefix + (layer.name or f"{layer.type}_{counts[layer.type]}")
        found.append((name, layer))
        for key in NESTED.get(layer.type, ()):
            inner = getattr(layer, key)
            for each in inner if key == "branches" else [inner]:
                found += [] if isinstance(each, str) else named_layers(each, counts, f"{name}.")
    return found


def layer_names(layers: Sequence[Layer]) -> list[str]:
    """The name of each layer, those of a composite's layers after its own."""
    return [name for name, _ in named_layers(layers)]


def unique_names(layers: tuple[Layer, ...]) -> tuple[Layer, ...]:
    """The layers as they are; two of one name are an error."""
    for name, count in Counter(layer_names(layers)).items():
        if count > 1:
            raise problem(f"{count} layers are called '{name}'; give each its own name, or none")
    return layers

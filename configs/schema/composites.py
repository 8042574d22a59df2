"""Layers made of layers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

from pydantic import (
    BeforeValidator,
    Field,
    PlainSerializer,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)

from .schema_base import problem, tupled
from .schema_layer_base import LayerConfig

if TYPE_CHECKING:
    from .schema_layers import Layer

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

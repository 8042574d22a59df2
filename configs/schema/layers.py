"""The layers of a config, made from the classes of the layers, and the names of its layers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from inspect import get_annotations
from typing import TYPE_CHECKING, Annotated, Any, get_args

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PlainSerializer,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)

from ...common.options import options_of
from ...layers.build import LAYERS
from ...layers.initializers import Initializer as InitializerObject
from ...layers.layer import Layer as LayerObject
from ...layers.parallel import split_options
from ...layers.shortcut import Shortcut
from .base import Named, problem, tupled
from .declared import config_models
from .layer_base import Initializer, LayerConfig
from .one_of import Models, one_of

SHORTCUTS = get_args(Shortcut)
_OURS = f"{__package__.partition('.')[0]}.layers."


def _branches(value: Any) -> Any:
    """A list of lists as tuples; a branch may be empty."""
    if not isinstance(value, (list, tuple)) or len(value) < 2:
        raise problem("expected a list of at least two lists of layers")
    return tuple(tuple(branch) if isinstance(branch, list) else branch for branch in value)


def _shortcut(value: Any, layers: ValidatorFunctionWrapHandler) -> Any:
    """One of the words, or a list, which ``layers`` validates."""
    if isinstance(value, str) and value in SHORTCUTS:
        return value
    if not isinstance(value, (list, tuple)):
        raise problem(f"expected {', '.join(SHORTCUTS)} or a list of layers")
    return layers(tupled(value))


def _written(value: Any) -> Any:
    """Layers, lists of layers or a word as plain data: pydantic writes no union inside itself."""
    if isinstance(value, tuple):
        return tuple(_written(item) for item in value)
    return value if isinstance(value, str) else value.model_dump()


WRITTEN = PlainSerializer(_written)

_STACK, _STACK_OR_WORD, _BRANCHES = (
    Sequence[LayerObject],
    Shortcut | Sequence[LayerObject],
    Sequence[Sequence[LayerObject]],
)
"""The types of the options that hold layers."""
NESTED: dict[str, tuple[str, ...]] = {}
"""The options that hold layers, or lists of layers, in the order in which layers are counted."""

_MODELS = Models[LayerConfig]({})
_KINDS: dict[str, None] = {}
LAYER_KINDS = _KINDS.keys()


def layer_models(kinds: Mapping[str, type], layer: Any) -> Models[LayerConfig]:
    """Models of these layers; ``layer``: the type of those that a composite takes."""
    stack = tuple[layer, ...]
    nested: dict[Any, Any] = {
        _STACK: Annotated[(stack, Field(min_length=1), BeforeValidator(tupled), WRITTEN)],
        _STACK_OR_WORD: Annotated[(stack, WrapValidator(_shortcut), WRITTEN)],
        _BRANCHES: Annotated[(tuple[stack, ...], BeforeValidator(_branches), WRITTEN)],
    }
    types = {InitializerObject: Initializer, **nested}
    return config_models(
        kinds, LayerConfig, types, options=lambda kind: options_of(kind) + split_options(kind)
    )


def layer_type(kinds: Mapping[str, type]) -> Any:
    """The type of a layer in a config: one of those known before, or one of these kinds."""
    global _MODELS
    for kind, layer in kinds.items():
        NESTED.pop(kind, None)
        if found := _holding(layer):
            NESTED[kind] = found
    union = one_of(Models({}), Named("layer", "relu or dense: {units: 10}"))
    # What holds layers is made anew: it may hold the new ones too.
    new = {**{kind: LAYERS[kind] for kind in NESTED if kind not in kinds}, **kinds}
    _MODELS = union.models = _MODELS.with_others(layer_models(new, union))
    _KINDS.update(dict.fromkeys(kinds))
    return union


def _holding(layer: type) -> tuple[str, ...]:
    """The names of the options that hold layers."""
    # To evaluate the hints of all kinds takes long; those of the package's layers hide no Layer.
    hints = [hint for each in layer.__mro__ for hint in get_annotations(each).values()]
    if layer.__module__.startswith(_OURS) and not any("Layer" in str(hint) for hint in hints):
        return ()
    holding = (_STACK, _STACK_OR_WORD, _BRANCHES)
    return tuple(each.name for each in options_of(layer) if each.type in holding)


def stack_of(layer: Any) -> Any:
    """The type of the layers of a network."""
    stack = tuple[layer, ...]
    marks = (Field(min_length=1), AfterValidator(unique_names), BeforeValidator(tupled), WRITTEN)
    return Annotated[(stack, *marks)]


if TYPE_CHECKING:
    Layer = LayerConfig
else:
    Layer = layer_type(LAYERS)


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
    """The layers, unchanged; two with the same name are an error."""
    for name, count in Counter(layer_names(layers)).items():
        if count > 1:
            raise problem(f"{count} layers are called '{name}'; give each its own name, or none")
    return layers

"""The layers of a config, made from the classes of the layers, and the names of its layers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ForwardRef, get_args

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
from ...layers.shortcut import Shortcut
from .base import Named, problem, tupled
from .declared import config_models, one_of
from .layer_base import Initializer, LayerConfig

SHORTCUTS = get_args(Shortcut)


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

_LAYER = ForwardRef("Layer")
_STACK = tuple[_LAYER, ...]  # type: ignore[valid-type]  # pydantic resolves it, mypy cannot
_NESTED: dict[Any, Any] = {
    Sequence[LayerObject]: Annotated[_STACK, Field(min_length=1), BeforeValidator(tupled), WRITTEN],
    Shortcut | Sequence[LayerObject]: Annotated[_STACK, WrapValidator(_shortcut), WRITTEN],
    Sequence[Sequence[LayerObject]]: Annotated[
        tuple[_STACK, ...], BeforeValidator(_branches), WRITTEN
    ],
}
NESTED: dict[str, tuple[str, ...]] = {}
"""The options that hold layers, or lists of layers, in the order in which layers are counted."""

_MODELS: dict[str, type[LayerConfig]] = {}
LAYER_KINDS = _MODELS.keys()


def layer_models(kinds: Mapping[str, type]) -> dict[str, type[LayerConfig]]:
    """Models of these layers; those of composites take layers once ``layer_type`` knows them."""
    return config_models(kinds, LayerConfig, {InitializerObject: Initializer, **_NESTED})


def layer_type(kinds: Mapping[str, type]) -> Any:
    """The type of a layer in a config: one of those known before, or one of these kinds."""
    for kind, layer in kinds.items():
        NESTED.pop(kind, None)
        if found := tuple(each.name for each in options_of(layer) if each.type in _NESTED):
            NESTED[kind] = found
    # What holds layers is made anew: it may hold the new ones too.
    _MODELS.update(layer_models({kind: LAYERS[kind] for kind in NESTED.keys() - kinds.keys()}))
    _MODELS.update(layer_models(kinds))
    union = one_of(_MODELS, Named("layer", "relu or dense: {units: 10}"))
    for kind in NESTED:
        _MODELS[kind].model_rebuild(_types_namespace={"Layer": union})
    return union


def stack_of(layer: Any) -> Any:
    """The type of the layers of a network."""
    stack = tuple[layer, ...]
    marks = (
        Field(min_length=1),
        AfterValidator(unique_names),
        BeforeValidator(tupled),
        WRITTEN,
    )
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

"""Reading the schema: which keys and kinds are possible at a place of a document."""

from __future__ import annotations

from typing import Annotated, Any, get_args, get_origin

from .base import Model, NamedModel, TypedModel, in_order
from .one_of import OneOf


def models_in(annotation: Any) -> list[type[Model]]:
    """The models that a field's annotation is made of: several for a union, else one or none."""
    if get_origin(annotation) is None and isinstance(annotation, type):
        if issubclass(annotation, OneOf):
            return list(dict.fromkeys(annotation.models.values()))
        return [annotation] if issubclass(annotation, Model) else []
    return [model for part in get_args(annotation) for model in models_in(part)]


def sections_of(annotation: Any) -> list[type[Model]]:
    """The models of a field that is a section; none for a list of layers or augmentations."""
    if is_list(annotation):
        return []
    parts = (annotation, *get_args(annotation))
    return [
        model
        for each in parts
        if get_origin(each) in (None, Annotated)
        for model in models_in(each)
    ]


def is_list(annotation: Any) -> bool:
    """Whether a field is a list, or may be absent and is one otherwise."""
    plain = (
        get_args(each)[0] if get_origin(each) is Annotated else each
        for each in (annotation, *get_args(annotation))
    )
    return any(get_origin(each) is tuple for each in plain)


def field_models(model: type[Model], key: str) -> list[type[Model]]:
    """The models of one field; none for a scalar or an unknown key."""
    field = model.model_fields.get(key)
    return models_in(field.annotation) if field else []


def item_models(model: type[Model], key: str) -> list[type[Model]]:
    """The models of a list whose items are all of one kind, such as the stages of a compression."""
    field = model.model_fields.get(key)
    if field is None or sections_of(field.annotation):
        return []
    found = models_in(field.annotation)
    return [each for each in found if not issubclass(each, (NamedModel, TypedModel))]


def kinds(model: type[Model]) -> tuple[str, ...]:
    """The values of the model's ``type``; empty for a model of which there is one kind."""
    field = model.model_fields.get("type")
    return get_args(field.annotation) if field else ()


def keys(model: type[Model]) -> list[str]:
    """The keys that a person may write in the model's mapping, in the order of ``config``."""
    hidden = "type" if issubclass(model, NamedModel) else ""
    return [key for key in in_order(model, model.model_fields) if key != hidden]


def kind_word(models: list[type[Model]]) -> str:
    """``layer``, ``schedule`` ...: what the models of a union are kinds of."""
    first = models[0]
    return first.noun if issubclass(first, (NamedModel, TypedModel)) else "value"

"""Config models of what is declared elsewhere: the options of a kind become fields."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial, reduce
from operator import or_
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin

from pydantic import Field, create_model

from ...common.options import Check, DefaultOf, Form, Option, options_of, summary_of
from .base import Formed, Model, checked
from .one_of import Models

M = TypeVar("M", bound=Model)
Types = Mapping[Any, Any]
Options = Callable[[type], list[Option]]


def config_models(
    kinds: Mapping[str, type],
    base: type[M],
    types: Types | None = None,
    suffix: str = "Config",
    options: Options = options_of,
) -> Models[M]:
    """A model for each kind, called by its name in camel case and ``suffix``.

    types: the config types that replace the types of objects that a kind takes; ``options``: gives
    the options of a kind.
    """
    how = (base, types or {}, suffix, options)
    return Models({kind: partial(_model, kind, each, *how) for kind, each in kinds.items()})


def _model(
    kind: str, declared: type, base: type[M], types: Types, suffix: str, options: Options
) -> type[M]:
    fields: dict[str, Any] = {"type": (Literal[kind], kind)}
    for option in options(declared):
        fields[option.name] = _annotation(option, types), _field(option)
    name = "".join(part.capitalize() for part in kind.split("_")) + suffix
    model: type[M] = create_model(
        name, __base__=base, __doc__=summary_of(declared), __module__=__name__, **fields
    )
    return model


def _annotation(option: Option, types: Types) -> Any:
    if any(isinstance(mark, DefaultOf) for mark in option.marks):
        given = [each for each in get_args(option.type) if each is not type(None)]
        return _with_marks(given[0], option.marks, types)
    return _with_marks(option.type, option.marks, types)


def _field(option: Option) -> Any:
    others = [mark.option for mark in option.marks if isinstance(mark, DefaultOf)]
    if others:
        # Pydantic 2.11 asks for a default too if the other option is wrong, and then not there.
        return Field(
            default_factory=lambda data: data.get(others[0]),
            validate_default=False,
            description=option.text,
        )
    if option.is_required:
        return Field(description=option.text)
    # An initialiser is written by its name.
    default = getattr(option.default, "name", option.default)
    return Field(default=default, description=option.text)


def _with_marks(type_: Any, marks: tuple[Any, ...], types: Types) -> Any:
    found = [each for mark in marks for each in _metadata(mark)]
    described = any(isinstance(mark, Form) and mark.schema for mark in marks)
    base = Any if described else _type(type_, types)
    return Annotated[(base, *found)] if found else base


def _type(type_: Any, types: Types) -> Any:
    """The type as pydantic knows it, marks inside it included."""
    if type_ in types:
        return types[type_]
    origin, arguments = get_origin(type_), get_args(type_)
    if origin is Annotated:
        return _with_marks(type_.__origin__, type_.__metadata__, types)
    if origin is tuple:
        found: Any = tuple(each if each is ... else _type(each, types) for each in arguments)
        return origin[found]
    if type(None) in arguments:
        return reduce(or_, (_type(each, types) for each in arguments))
    return type_


def _metadata(mark: Any) -> list[Any]:
    """A mark as pydantic metadata; pydantic knows those of annotated_types itself."""
    if isinstance(mark, Check):
        return [checked(mark)]
    if isinstance(mark, Form):
        return [Formed(mark)]
    return [] if isinstance(mark, DefaultOf) else [mark]

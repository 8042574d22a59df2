"""What all config models share: strictness, the written forms, and small value types.

A model is written back in the form that a person writes: ``model_dump()`` gives the plain data of
the YAML file (short forms included, unset keys left out), and validating that gives an equal model.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Annotated, Any, ClassVar

from annotated_types import GroupedMetadata, Interval
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    SerializerFunctionWrapHandler,
    ValidationInfo,
    WithJsonSchema,
    model_serializer,
)
from pydantic_core import PydanticCustomError

from ...common.options import SHORT_EPOCHS, Check, Form, OptionError, is_number, sides
from ...common.records import dataclass
from ...common.text import with_article

PROBLEM = "config"
"""The type of the errors that ``problem`` makes."""


def problem(message: str, **context: Any) -> PydanticCustomError:
    """An error whose text is ``message``; ``key=`` names the key of a mapping that it is about."""
    return PydanticCustomError(PROBLEM, "{message}", {"message": message, **context})


class Model(BaseModel):
    """A mapping of known keys: unknown keys, wrong types, infinities and NaN are errors.

    A field is described by the text in its annotation, as an option of a constructor is.
    """

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        strict=True,
        allow_inf_nan=False,
        validate_default=True,
        defer_build=True,
    )
    written_last: ClassVar[tuple[str, ...]] = ()
    short_key: ClassVar[str] = ""
    """The key that a text in the place of the mapping stands for; "" if there is none."""

    def __setattr__(self, name: str, value: Any) -> None:
        """Raises AttributeError for a key, with what to do instead."""
        if name in type(self).model_fields:
            raise AttributeError(
                f"{name}: a config is never changed; change the dict that model_dump() of the "
                'whole config gives, or give overrides, as in overrides={"optimizer.lr": 0.05}'
            )
        super().__setattr__(name, value)

    @classmethod
    def __pydantic_init_subclass__(cls, **arguments: Any) -> None:
        for field in cls.model_fields.values():
            texts = [mark for mark in field.metadata if isinstance(mark, str)]
            field.description = texts[0] if texts else field.description

    def options(self) -> dict[str, Any]:
        """Every field except the type, unchanged."""
        return {key: getattr(self, key) for key in type(self).model_fields if key != "type"}

    @model_serializer(mode="wrap")
    def written(self, handler: SerializerFunctionWrapHandler) -> Any:
        fields = handler(self)
        keys = in_order(type(self), fields)
        return self.shortened({key: fields[key] for key in keys if fields[key] is not None})

    def shortened(self, options: dict[str, Any]) -> Any:
        """The short form of the keys that are set, which are in the order of writing."""
        return options[self.short_key] if [*options] == [self.short_key] else options


def in_order(model: type[Model], keys: Iterable[str]) -> list[str]:
    """The keys in the order of writing: the type, the model's own, those in ``written_last``."""
    rank = {"type": -1, **{key: at for at, key in enumerate(model.written_last, 1)}}
    return sorted(keys, key=lambda key: rank.get(key, 0))


class TypedModel(Model):
    """One of several kinds, told apart by the key ``type``; ``fixed`` means ``{type: fixed}``."""

    noun: ClassVar[str]
    short_key: ClassVar[str] = "type"


class NamedModel(Model):
    """One of several kinds, written ``relu`` or, with options, ``conv2d: {filters: 20, ...}``."""

    noun: ClassVar[str]

    def shortened(self, options: dict[str, Any]) -> Any:
        name = options.pop("type")
        return {name: options} if options else name


class Aside:
    """What is noted beside a model's fields. It is no part of the value: all are equal."""

    def __init__(self, noted: Any) -> None:
        self.noted = noted

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Aside)


@dataclass(frozen=True)
class Typed:
    """Accepts ``name`` for ``{type: name}`` where one of several TypedModels is expected."""

    kind: str

    def normalise(self, value: Any, known: Collection[str]) -> Any:
        """The long form of what may be written shorter. known: the types that there are."""
        if isinstance(value, str):
            return {"type": value}
        if not isinstance(value, (Mapping, TypedModel)):
            raise problem(
                f"expected the name of {with_article(self.kind)} or a mapping with its type"
            )
        if isinstance(value, Mapping) and "type" not in value:
            raise problem(f"the key 'type' is missing ({', '.join(known)})", at_key=True)
        return value

    def described(self, members: list[dict[str, Any]]) -> dict[str, Any]:
        """The JSON Schema of one of these members, which json_schema.py completes."""
        # The members may be incomplete, as layers contain layers.
        return {"x-typed": members}


@dataclass(frozen=True)
class Named:
    """Accepts ``name`` and ``{name: {options}}`` where one of several NamedModels is expected."""

    kind: str
    example: str

    def normalise(self, value: Any, known: Collection[str]) -> Any:
        """The long form of what may be written shorter. known: the types that there are."""
        if isinstance(value, NamedModel):
            return value
        if isinstance(value, str):
            return {"type": value}
        if not isinstance(value, Mapping) or not value:
            raise problem(f"expected {with_article(self.kind)}, such as {self.example}")
        name = next(iter(value))
        options = value[name]
        if len(value) > 1:
            raise problem(self._crowded(value, name))
        if name == "type":
            raise problem(f"{with_article(self.kind)} is written by its name alone: '{options}'")
        if name not in known:
            return {"type": str(name)}
        if options is not None and not isinstance(options, Mapping):
            raise problem(f"expected the options of '{name}' as a mapping", key=name)
        if options and "type" in options:
            raise problem("unknown key", key=name, inner="type")
        return {**(options or {}), "type": name}

    def _crowded(self, value: Mapping[str, Any], name: str) -> str:
        if value[name] is None:
            return (
                f"the options of '{name}' must be indented further than '{name}', "
                f"or written '{name}: {{...}}'"
            )
        if "type" in value:
            kind = with_article(self.kind)
            return f"{kind} with options is written '{value['type']}: {{...}}'"
        found = ", ".join(map(str, value))
        return f"expected one {self.kind}, got several keys: {found}; each begins with its own '-'"

    def described(self, members: list[dict[str, Any]]) -> dict[str, Any]:
        """The JSON Schema of one of these members, which json_schema.py completes."""
        return {"x-named": self.kind, "x-members": members}


def matching(pattern: str, expected: str) -> AfterValidator:
    """Text that the pattern matches; for another the message says what was ``expected``."""

    def check(value: str) -> str:
        if not re.fullmatch(pattern, value):
            raise problem(f"expected {expected}")
        return value

    return AfterValidator(check)


def written_kinds(model: dict[str, Any]) -> list[str]:
    kind = model.get("properties", {}).get("type", {})
    return list(kind["enum"]) if "enum" in kind else [kind["const"]] if "const" in kind else []


def tupled(value: Any) -> Any:
    """A list as a tuple, because frozen models hold tuples and strict ones accept no list."""
    if isinstance(value, list) and not value:
        raise problem("expected a list of at least one item")
    return tuple(value) if isinstance(value, list) else value


def one_or_more(item: dict[str, Any]) -> WithJsonSchema:
    """The JSON Schema of one item, or a list of at least one."""
    return WithJsonSchema({"anyOf": [item, {"type": "array", "items": item, "minItems": 1}]})


def mapping(
    required: list[str] | None = None, about: str = "", /, **properties: dict[str, Any]
) -> dict[str, Any]:
    """The JSON Schema of a mapping with these keys and no other; ``about``: its description."""
    return {
        **({"description": about} if about else {}),
        "type": "object",
        "properties": properties,
        **({"required": required} if required else {}),
        "additionalProperties": False,
    }


def _short(value: Any) -> Any:
    return value if value is None else value[0] if len(value) == 1 else list(value)


short = PlainSerializer(_short)
"""Writes a list of one item as the item."""


def numbers(value: Any, expected: str) -> tuple[int | float, ...]:
    """One number or a list of them, none beyond 1e6."""
    values = value if isinstance(value, (list, tuple)) else [value]
    if not values or not all(is_number(v) and abs(v) <= 1e6 for v in values):
        raise problem(f"expected {expected}")
    return tuple(values)


@dataclass(frozen=True)
class Formed(GroupedMetadata):
    """A ``Form``, as pydantic reads and writes it."""

    form: Form

    def __iter__(self) -> Iterator[Any]:
        if self.form.read is not None:
            yield BeforeValidator(self._read)
        if self.form.write is not None:
            yield PlainSerializer(self.form.write)
        if self.form.schema is not None:
            yield WithJsonSchema(dict(self.form.schema))

    def _read(self, value: Any) -> Any:
        assert self.form.read is not None
        try:
            return self.form.read(value)
        except OptionError as error:
            raise misfit(error) from None


def misfit(error: OptionError) -> PydanticCustomError:
    """The error of a value that does not fit an option, for pydantic."""
    context: dict[str, Any] = {"words": error.words} if error.words else {}
    return problem(str(error), **context, **({"missing": True} if error.missing else {}))


def checked(check: Check) -> AfterValidator:
    """A ``Check``, as pydantic runs it."""

    def validator(value: Any, info: ValidationInfo) -> Any:
        try:
            check.test(value, info.data)
        except OptionError as error:
            raise misfit(error) from None
        return value

    return AfterValidator(validator)


Threads = Annotated[int, Field(ge=1, le=1024)]
"""Starting more threads than this fails in ways that cannot be reported."""
Epochs = Annotated[float, Interval(gt=0, le=1e9), Formed(SHORT_EPOCHS)]
"""A positive number of epochs, fractions allowed."""


def omitting(default: Any) -> Any:
    """None for the default, with which a config is the same as without the key."""
    return AfterValidator(lambda value: None if value == default else value)


Flag = Annotated[bool | None, omitting(False)]
"""True, or None, which false means too."""
Pair = Annotated[tuple[int, int], Formed(sides(1))]
"""(height, width); one number stands for both."""

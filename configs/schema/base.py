"""What all config models share: strictness, the written forms, and small value types.

A model is written back in the form that a person writes: ``model_dump()`` gives the plain data of
the YAML file (short forms included, unset keys left out), and validating that gives an equal model.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, get_args, get_origin

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    PlainSerializer,
    SerializerFunctionWrapHandler,
    WithJsonSchema,
    model_serializer,
)
from pydantic_core import CoreSchema, PydanticCustomError, core_schema


def problem(message: str, **context: Any) -> PydanticCustomError:
    """An error whose text is ``message``; ``key=`` names the key of a mapping that it is about."""
    return PydanticCustomError("config", "{message}", {"message": message, **context})


class Model(BaseModel):
    """A mapping of known keys: unknown keys, wrong types, infinities and NaN are errors."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, allow_inf_nan=False, defer_build=True
    )
    written_last: ClassVar[tuple[str, ...]] = ()

    @model_serializer(mode="wrap")
    def written(self, handler: SerializerFunctionWrapHandler) -> Any:
        return ordered(self, handler(self))


def ordered(model: Model, fields: dict[str, Any]) -> dict[str, Any]:
    """The keys that are set: the type, the model's own, then those named in ``written_last``."""
    rank = {"type": -1, **dict.fromkeys(model.written_last, 1)}
    present = [(key, value) for key, value in fields.items() if value is not None]
    return dict(sorted(present, key=lambda item: rank.get(item[0], 0)))


class TypedModel(Model):
    """One of several kinds, told apart by the key ``type``; ``fixed`` means ``{type: fixed}``."""

    kind: ClassVar[str]

    @model_serializer(mode="wrap")
    def written(self, handler: SerializerFunctionWrapHandler) -> Any:
        options = ordered(self, handler(self))
        return options["type"] if len(options) == 1 else options


class NamedModel(Model):
    """One of several kinds, written ``relu`` or, with options, ``conv2d: {filters: 20, ...}``."""

    kind: ClassVar[str]

    @model_serializer(mode="wrap")
    def written(self, handler: SerializerFunctionWrapHandler) -> Any:
        options = ordered(self, handler(self))
        name = options.pop("type")
        return {name: options} if options else name


@dataclass(frozen=True)
class Typed:
    """Accepts ``name`` for ``{type: name}`` in front of a union of TypedModels."""

    kind: str

    def normalise(self, value: Any, known: Collection[str]) -> Any:
        if isinstance(value, str):
            return {"type": value}
        if not isinstance(value, (Mapping, TypedModel)):
            raise problem(f"expected the name of a {self.kind} or a mapping with its type")
        if isinstance(value, Mapping) and "type" not in value:
            raise problem(f"the key 'type' is missing ({', '.join(known)})", at_key=True)
        return value

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        known = _kinds(source)
        return core_schema.no_info_before_validator_function(
            lambda value: self.normalise(value, known), handler(source)
        )

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        # The members may be in the making, where layers hold layers: schema_json writes the rest.
        written = handler(schema)
        members = written.get("oneOf", [written])
        return {"x-typed": members}


@dataclass(frozen=True)
class Named:
    """Accepts ``name`` and ``{name: {options}}`` in front of a union of NamedModels."""

    kind: str
    example: str

    def normalise(self, value: Any, known: Collection[str]) -> Any:
        if isinstance(value, NamedModel):
            return value
        if isinstance(value, str):
            return {"type": value}
        if not isinstance(value, Mapping) or not value:
            raise problem(f"expected a {self.kind}, such as {self.example}")
        name = next(iter(value))
        options = value[name]
        if len(value) > 1:
            raise problem(self._crowded(value, name))
        if name == "type":
            raise problem(f"a {self.kind} is written by its name alone: '{options}'")
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
            return f"a {self.kind} with options is written '{value['type']}: {{...}}'"
        found = ", ".join(map(str, value))
        return f"expected one {self.kind}, got several keys: {found}; each begins with its own '-'"

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        known = frozenset(_kinds(source))
        return core_schema.no_info_before_validator_function(
            lambda value: self.normalise(value, known), handler(source)
        )

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return {"x-named": self.kind, "x-members": handler(schema)["oneOf"]}


def _kinds(annotation: Any) -> list[str]:
    """The types of all models of a union."""
    if get_origin(annotation) is not None:
        return [kind for part in get_args(annotation) for kind in _kinds(part)]
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return list(get_args(annotation.model_fields["type"].annotation))
    return []


def written_kinds(model: dict[str, Any]) -> list[str]:
    kind = model.get("properties", {}).get("type", {})
    return list(kind["enum"]) if "enum" in kind else [kind["const"]] if "const" in kind else []


def is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def tupled(value: Any) -> Any:
    """A list as a tuple, because frozen models hold tuples and strict ones take no list for one."""
    if isinstance(value, list) and not value:
        raise problem("expected a list of at least one item")
    return tuple(value) if isinstance(value, list) else value


LARGEST = 2**31 - 1
"""The largest count or size; the libraries take 32-bit numbers."""


def _pair(minimum: int, words: tuple[str, ...] = ()) -> Callable[[Any], Any]:
    expected = f"expected a whole number of at least {minimum} or a pair [height, width]"
    expected += "".join(f" or '{word}'" for word in words)

    def normalise(value: Any) -> Any:
        if isinstance(value, str) and value in words:
            return (0, 0) if value == "valid" else value
        sides = value if isinstance(value, (list, tuple)) else [value, value]
        if len(sides) != 2 or not all(is_whole(s) and minimum <= s <= LARGEST for s in sides):
            raise problem(expected, words=words)
        return tuple(sides)

    return normalise


def _border(value: Any) -> Any:
    sides = _pair(0)(value)
    if sides == (0, 0):
        raise problem("expected a border on at least one side, such as 1 or [1, 0]")
    return sides


def _short_pair(value: Any) -> Any:
    if isinstance(value, tuple):
        return value[0] if value[0] == value[1] else list(value)
    return value


def _pair_schema(minimum: int, *words: str) -> WithJsonSchema:
    number = {"type": "integer", "minimum": minimum, "maximum": LARGEST}
    forms: list[dict[str, Any]] = [
        number,
        {"type": "array", "items": number, "minItems": 2, "maxItems": 2},
    ]
    return WithJsonSchema({"anyOf": forms + ([{"enum": list(words)}] if words else [])})


def _border_schema() -> WithJsonSchema:
    both = {"type": "integer", "minimum": 1, "maximum": LARGEST}
    side = {**both, "minimum": 0}
    sides = {"items": side, "minItems": 2, "maxItems": 2, "contains": {"minimum": 1}}
    return WithJsonSchema({"anyOf": [both, {"type": "array", **sides}]})


Threads = Annotated[int, Field(ge=1, le=1024)]
"""More than so many, and starting them fails in ways that no message can follow."""
Count = Annotated[int, Field(ge=1, le=LARGEST)]
Epochs = Annotated[
    float, Field(gt=0, le=1e9), PlainSerializer(lambda e: int(e) if e == int(e) else e)
]
"""A positive number of epochs, fractions allowed."""
Positive = Annotated[float, Field(gt=0)]
NotNegative = Annotated[float, Field(ge=0)]
Pair = Annotated[
    tuple[int, int], BeforeValidator(_pair(1)), PlainSerializer(_short_pair), _pair_schema(1)
]
"""(height, width); one number stands for both."""
Padding = Annotated[
    tuple[int, int] | Literal["same"],
    BeforeValidator(_pair(0, ("same", "valid"))),
    PlainSerializer(_short_pair),
    _pair_schema(0, "same", "valid"),
]
"""(height, width) on either side of the picture, or ``same``; ``valid`` is read as (0, 0)."""
Border = Annotated[
    tuple[int, int], BeforeValidator(_border), PlainSerializer(_short_pair), _border_schema()
]
"""(height, width) on either side of the picture, of which one may be 0."""

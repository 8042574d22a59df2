"""A field that is one of several models, each of which is made when a config uses it.

To make and to build the models of all kinds would take longer than the rest of reading a config.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from functools import partial
from threading import RLock
from typing import Any, ClassVar, TypeVar, get_args

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler, ValidationError
from pydantic_core import (
    CoreSchema,
    InitErrorDetails,
    PydanticCustomError,
    PydanticKnownError,
    core_schema,
)

from .base import PROBLEM, Model, Named, Typed

M = TypeVar("M", bound=Model)

_LOCK = RLock()
_being_described: ContextVar[tuple[type[Model], ...]] = ContextVar("being_described", default=())
"""Models whose JSON Schema is being written; one that takes layers may be inside itself."""


class Models(Mapping[str, type[M]]):
    """Models by their kinds, made by these functions, each when it is first asked for."""

    def __init__(self, makers: Mapping[str, Callable[[], type[M]]]) -> None:
        self._makers = {kind: _once(make) for kind, make in makers.items()}

    def __getitem__(self, kind: str) -> type[M]:
        return self._makers[kind]()

    def __iter__(self) -> Iterator[str]:
        return iter(self._makers)

    def __len__(self) -> int:
        return len(self._makers)

    def __contains__(self, kind: object) -> bool:
        return kind in self._makers

    def with_others(self, others: Models[M]) -> Models[M]:
        """Both, with those of ``others`` where the two have the same kind."""
        both = Models[M]({})
        both._makers = {**self._makers, **others._makers}
        return both


def _once(make: Callable[[], type[M]]) -> Callable[[], type[M]]:
    made: list[type[M]] = []

    def model() -> type[M]:
        with _LOCK:
            if not made:
                made.append(make())
        return made[0]

    return model


def already(*models: type[M]) -> Models[M]:
    """Models that are there already, by the values of their ``type``."""
    kinds = {model: get_args(model.model_fields["type"].annotation) for model in models}
    return Models({kind: partial(_given, model) for model in models for kind in kinds[model]})


def _given(model: type[M]) -> type[M]:
    return model


class OneOf:
    """The type of a field: pydantic asks a class that derives from it for the value's model.

    Errors are those of pydantic's own union with the discriminator ``type``.
    """

    models: ClassVar[Models[Any]]
    form: ClassVar[Typed | Named]

    @classmethod
    def validated(cls, value: Any) -> Any:
        value = cls.form.normalise(value, cls.models)
        kind = value.get("type") if isinstance(value, Mapping) else value.type
        if not isinstance(kind, str) or kind not in cls.models:
            expected = ", ".join(f"'{each}'" for each in cls.models)
            context = {"discriminator": "'type'", "tag": str(kind), "expected_tags": expected}
            raise PydanticKnownError("union_tag_invalid", context)
        try:
            return cls.models[kind].__pydantic_validator__.validate_python(value)
        except ValidationError as error:
            raise _of_kind(kind, error) from None

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(cls.validated)

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        models: list[type[Model]] = list(dict.fromkeys(cls.models.values()))
        return cls.form.described([_described(model, handler) for model in models])


def one_of(models: Models[Any], form: Typed | Named) -> Any:
    """A field for one of these models, told apart by their types and written in this form."""
    return type(form.kind, (OneOf,), {"models": models, "form": form})


def _of_kind(kind: str, error: ValidationError) -> ValidationError:
    """The errors of a model, at places that name its kind."""
    lines = []
    for each in error.errors():
        context = each.get("ctx", {})
        custom = each["type"] == PROBLEM
        lines.append(
            InitErrorDetails(
                type=PydanticCustomError(PROBLEM, "{message}", context) if custom else each["type"],
                loc=(kind, *each["loc"]),
                input=each["input"],
                ctx={} if custom else context,
            )
        )
    return ValidationError.from_exception_data(error.title, lines)


def _described(model: type[Model], handler: GetJsonSchemaHandler) -> dict[str, Any]:
    """A reference to the model's JSON Schema, which is written unless it is there or comes."""
    model.model_rebuild()
    schema: Any = model.__pydantic_core_schema__
    outer = _being_described.get()
    if model in outer:
        return handler(core_schema.definition_reference_schema(schema["ref"]))
    mark = _being_described.set((*outer, model))
    try:
        # The handler writes out a model itself, but refers to one inside another schema.
        return handler(core_schema.definitions_schema(schema, []))
    finally:
        _being_described.reset(mark)

"""The options of what a config can name, declared once: as fields of a dataclass.

    units: Annotated[Count, "Number of outputs."]

The text describes the option; ``Interval`` and the marks of this module say what else is expected.
A field without a text is not an option. The schema of a config, its documentation and its errors
are made from these declarations.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from importlib import import_module
from itertools import pairwise
from pkgutil import iter_modules
from types import ModuleType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from annotated_types import Interval, MinLen

from .records import dataclass

T = TypeVar("T")
LARGEST = 2**31 - 1
"""The largest count or size; the libraries take 32-bit numbers."""


class OptionError(ValueError):
    """A value that does not fit; the message says what was expected.

    ``words``: the words that are possible instead. ``missing``: whether an option is missing rather
    than wrong.
    """

    def __init__(self, message: str, *, words: tuple[str, ...] = (), missing: bool = False) -> None:
        super().__init__(message)
        self.words, self.missing = words, missing


@dataclass(frozen=True, eq=False)
class Form:
    """A value that may be written in several ways.

    ``read`` turns what is written into the value and raises OptionError; ``write`` gives the short
    form again. ``schema`` is the JSON Schema of all forms, unless that follows from the type.
    """

    read: Callable[[Any], Any] | None = None
    write: Callable[[Any], Any] | None = None
    schema: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Check:
    """``test(value, others)`` raises OptionError for a value that contradicts earlier options.

    ``others``: the values of those that are valid. Defaults are tested too.
    """

    test: Callable[[Any, Mapping[str, Any]], None]


@dataclass(frozen=True)
class DefaultOf:
    """The default is the value of an earlier option."""

    option: str


Count = Annotated[int, Interval(ge=1, le=LARGEST)]
SMALL, LARGE = 2.0**-126, 2.0**127
"""Numbers beyond these are 0 or infinite in float32, with which trainings compute."""
Positive = Annotated[float, Interval(ge=SMALL, le=LARGE)]
NotNegative = Annotated[float, Interval(ge=0, le=LARGE)]
Share = Annotated[float, Interval(ge=0, lt=1)]
"""A share of less than the whole."""
Fraction = Annotated[float, Interval(ge=0, le=1)]
SHORT_EPOCHS = Form(write=lambda epochs: int(epochs) if epochs == int(epochs) else epochs)
Epochs = Annotated[float, Interval(gt=0, le=1e9), SHORT_EPOCHS]
"""A positive number of epochs, fractions allowed."""


def is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _items(value: Any) -> Any:
    if isinstance(value, list) and not value:
        raise OptionError("expected a list of at least one item")
    return tuple(value) if isinstance(value, list) else value


AsTuple = Form(_items)
Listed = Annotated[tuple[T, ...], MinLen(1), AsTuple]
"""A list of at least one item."""


def sides(
    minimum: int, words: tuple[str, ...] = (), some: bool = False, single: bool = False
) -> Form:
    """(height, width): a pair, or one number for both; ``some``: at least one is above 0.

    ``single``: it is one number. Of the ``words``, ``valid`` is read as 0, and the others are kept.
    """
    expected = f"expected a whole number of at least {minimum}"
    expected += "" if single else " or a pair [height, width]"
    expected += "".join(f" or '{word}'" for word in words)

    def read(value: Any) -> Any:
        if isinstance(value, str) and value in words:
            zero = 0 if single else (0, 0)
            return zero if value == "valid" else value
        both = value if isinstance(value, (list, tuple)) and not single else [value, value]
        if len(both) != 2 or not all(is_whole(s) and minimum <= s for s in both):
            raise OptionError(expected, words=words)
        if max(both) > LARGEST:
            raise OptionError(f"expected numbers of at most {LARGEST}")
        if some and tuple(both) == (0, 0):
            raise OptionError("expected a border on at least one side, such as 1 or [1, 0]")
        return value if single else tuple(both)

    def write(value: Any) -> Any:
        if isinstance(value, tuple):
            return value[0] if value[0] == value[1] else list(value)
        return value

    side: dict[str, Any] = {"type": "integer", "minimum": minimum, "maximum": LARGEST}
    pair: dict[str, Any] = {"type": "array", "items": side, "minItems": 2, "maxItems": 2}
    both = {**side, "minimum": 1} if some else side
    pair |= {"contains": {"minimum": 1}} if some else {}
    forms = [both, *([] if single else [pair]), *([{"enum": list(words)}] if words else [])]
    return Form(read, write, {"anyOf": forms})


Size = Annotated[int | tuple[int, int], sides(1)]
"""(height, width); one number stands for both."""
Padding = Annotated[int | tuple[int, int] | Literal["same", "valid"], sides(0, ("same", "valid"))]
"""(height, width) on either side of the picture, or ``same``; ``valid`` is read as (0, 0)."""
Ends = Annotated[int | Literal["same", "valid"], sides(0, ("same", "valid"), single=True)]
"""Padding at either end of a sequence, or ``same``; ``valid`` is read as 0."""
Border = Annotated[int | tuple[int, int], sides(0, some=True)]
"""(height, width) on either side of the picture, of which one may be 0."""


def some_of(*names: str) -> Check:
    """At least one of them is given; the last is the option's own."""
    before = names[:-1]

    def test(value: Any, others: Mapping[str, Any]) -> None:
        # An invalid option is not among the others; it has an error of its own.
        if value is None and all(others.get(name, ...) is None for name in before):
            raise OptionError(f"required: {' or '.join(names)}", missing=True)

    return Check(test)


def instead_of(other: str, own: str) -> Check:
    """At most one of the two is given."""

    def test(value: Any, others: Mapping[str, Any]) -> None:
        if value is not None and others.get(other) is not None:
            raise OptionError(f"give either {other} or {own}, not both")

    return Check(test)


def either(other: str, own: str) -> Check:
    """Exactly one of the two is given."""

    def test(value: Any, others: Mapping[str, Any]) -> None:
        some_of(other, own).test(value, others)
        instead_of(other, own).test(value, others)

    return Check(test)


def rising(what: str) -> Check:
    """Each number is larger than the one before."""

    def test(values: Any, others: Mapping[str, Any]) -> None:
        if values is not None and any(b <= a for a, b in pairwise(values)):
            raise OptionError(f"expected {what} in rising order")

    return Check(test)


@dataclass(frozen=True)
class Option:
    """An option as it is declared; ``default`` is ``inspect.Parameter.empty`` if it is required."""

    name: str
    type: Any
    marks: tuple[Any, ...]
    text: str
    default: Any

    @property
    def is_required(self) -> bool:
        return self.default is inspect.Parameter.empty


def options_of(kind: type) -> list[Option]:
    """The options of a kind in the order of its fields, those of a base class last."""
    hints = get_type_hints(kind, include_extras=True)
    found = []
    for name, parameter in inspect.signature(kind).parameters.items():
        type_, marks = _parts(hints[name])
        texts = [mark for mark in marks if isinstance(mark, str)]
        if texts:
            rest = tuple(mark for mark in marks if not isinstance(mark, str))
            found.append(Option(name, type_, rest, texts[0], parameter.default))
    own = vars(kind).get("__annotations__", {})
    return sorted(found, key=lambda option: option.name not in own)


def _parts(hint: Any) -> tuple[Any, tuple[Any, ...]]:
    """A type and its marks. Python 3.10 puts a default of None around them, as an Optional."""
    if get_origin(hint) in (Union, UnionType) and len(get_args(hint)) == 2:
        first, second = get_args(hint)
        if get_origin(first) is Annotated and second is type(None):
            hint = first
    if get_origin(hint) is Annotated:
        return hint.__origin__, hint.__metadata__
    return hint, ()


def summary_of(kind: type) -> str:
    """The first paragraph of its docstring, on one line."""
    return " ".join(inspect.cleandoc(kind.__doc__ or "").partition("\n\n")[0].split())


def kinds_of(module: ModuleType, base: Callable[..., T]) -> dict[str, type[T]]:
    """The classes of a module that derive from ``base`` and have their own ``kind``, by kind."""
    root: Any = base
    values: list[Any] = list(vars(module).values())
    # Python 3.10 takes a generic alias for a class.
    classes = [c for c in values if inspect.isclass(c) and get_origin(c) is None]
    own: list[Any] = [c for c in classes if issubclass(c, root) and c.__module__ == module.__name__]
    return {vars(each)["kind"]: each for each in own if "kind" in vars(each)}


def kinds_in(package: str, base: Callable[..., T]) -> dict[str, type[T]]:
    """The same for all modules of a package, in the order of their names.

    Raises ValueError if two modules define the same kind.
    """
    found: dict[str, type[T]] = {}
    for each in iter_modules(import_module(package).__path__):
        own = kinds_of(import_module(f"{package}.{each.name}"), base)
        for kind in own.keys() & found.keys():
            other = found[kind].__module__
            raise ValueError(f"{own[kind].__module__}: {other} defines '{kind}' too")
        found |= own
    return found

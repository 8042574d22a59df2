"""Dataclasses that are quick to define.

``dataclasses`` writes the methods of each class as text and compiles it. A start of the program
defines hundreds of classes, of which a training uses a few, and would spend a tenth of a second on
that. Here all classes share methods; only ``__init__`` takes a little longer when it is called.
"""

from __future__ import annotations

import dataclasses
import inspect
import threading
from collections.abc import Callable, Sequence
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any

_Values = Callable[[Any], tuple[Any, ...]]
_defining = threading.local()


class _Parameters:
    """What a record says of itself to a dataclass that derives from it: it is frozen.

    To the dataclass of which a record is made, frozen only later, its bases must not be.
    """

    def __init__(self, made: Any) -> None:
        self._made = made

    @property
    def frozen(self) -> bool:
        return not getattr(_defining, "record", False)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._made, name)


def record(
    cls: Any, *, frozen: bool, kw_only: bool = False, eq: bool = True, repr: bool = True
) -> None:
    """Make a class a dataclass, as ``dataclasses.dataclass`` does.

    Its bases may be records, and no other dataclasses; any dataclass may derive from it that is
    frozen as it is.
    """
    own = vars(cls)
    for base in cls.__mro__[1:]:
        known = vars(base).get("__dataclass_params__")
        if known is not None and known.frozen != frozen:
            raise TypeError(f"{cls.__qualname__} and {base.__qualname__}: both are frozen, or none")
    # Otherwise dataclass takes long to write one.
    cls.__doc__ = own.get("__doc__") or cls.__name__
    _defining.record = True
    try:
        dataclasses.dataclass(init=False, repr=False, eq=False, kw_only=kw_only)(cls)
    finally:
        _defining.record = False
    fields = dataclasses.fields(cls)
    methods: dict[str, Any] = {"__init__": _initialiser(_parameters(cls), frozen)}
    if repr:
        methods["__repr__"] = _shown
    if frozen:
        cls.__dataclass_params__ = _Parameters(cls.__dataclass_params__)
        methods |= {"__setattr__": _set, "__delattr__": _delete}
    if eq:
        methods["__eq__"] = _equality(_values([each.name for each in fields if each.compare]))
        if own.get("__hash__") is None:
            cls.__hash__ = _hash(fields) if frozen else None
    for name, method in methods.items():
        if name not in own:
            setattr(cls, name, method)


def _hash(fields: Sequence[dataclasses.Field[Any]]) -> Callable[[Any], int]:
    hashed = _values([e.name for e in fields if (e.compare if e.hash is None else e.hash)])
    return lambda self: hash(hashed(self))


def _values(names: Sequence[str]) -> _Values:
    """What gives these attributes."""
    if len(names) > 1:
        found: _Values = attrgetter(*names)
        return found
    return lambda each: tuple(getattr(each, name) for name in names)


def _kind(field: Any) -> Any:
    # Nothing public tells an InitVar from a ClassVar where both are written as text.
    return field._field_type


def _parameters(cls: Any) -> list[dataclasses.Field[Any]]:
    """The fields, and what ``__init__`` takes for ``__post_init__`` alone."""
    every = cls.__dataclass_fields__.values()
    return [each for each in every if _kind(each) is not dataclasses._FIELD_CLASSVAR]  # type: ignore[attr-defined]


def _initialiser(fields: Sequence[dataclasses.Field[Any]], frozen: bool) -> Callable[..., None]:
    missing = dataclasses.MISSING
    passed = [e.name for e in fields if _kind(e) is dataclasses._FIELD_INITVAR]  # type: ignore[attr-defined]
    taken = [each for each in fields if each.init]
    places = tuple(each.name for each in taken if not each.kw_only)
    # In the order of the fields, in which vars(self) shows what is given, too.
    defaults = {each.name: each.default for each in taken}
    made = {
        each.name: each.default_factory for each in fields if each.default_factory is not missing
    }
    needed = {name for name, value in defaults.items() if value is missing and name not in made}

    def initialise(self: Any, /, *given: Any, **named: Any) -> None:
        if given:
            if len(given) > len(places):
                raise TypeError(f"{_called(self)} takes {len(places)} arguments by their places")
            placed = dict(zip(places, given, strict=False))
            if both := placed.keys() & named.keys():
                raise TypeError(f"{_called(self)} got several values for {_listed(both)}")
            named.update(placed)
        values = {**defaults, **named}
        if len(values) != len(defaults):
            unknown = named.keys() - defaults.keys()
            raise TypeError(f"{_called(self)} got unexpected arguments: {_listed(unknown)}")
        if not named.keys() >= needed:
            absent = needed - named.keys()
            raise TypeError(f"{_called(self)} lacks arguments: {_listed(absent)}")
        for name, make in made.items():
            if name not in named:
                values[name] = make()
        rest = [values.pop(name) for name in passed]
        if frozen:
            self.__dict__.update(values)
        else:
            # A class of a plugin may have properties, or check what it is given.
            for name, value in values.items():
                setattr(self, name, value)
        if finish := getattr(self, "__post_init__", None):
            finish(*rest)

    initialise.__name__ = "__init__"
    initialise.__signature__ = _signature(fields)  # type: ignore[attr-defined]
    return initialise


def _signature(fields: Sequence[dataclasses.Field[Any]]) -> inspect.Signature:
    """What ``inspect`` says of ``__init__``, as of the one that ``dataclasses`` would write."""
    kind, empty, missing = inspect.Parameter, inspect.Parameter.empty, dataclasses.MISSING
    parameters = [kind("self", kind.POSITIONAL_OR_KEYWORD)]
    taken = (each for each in fields if each.init)
    for each in sorted(taken, key=lambda each: bool(each.kw_only)):
        how = kind.KEYWORD_ONLY if each.kw_only else kind.POSITIONAL_OR_KEYWORD
        default = empty if each.default is missing else each.default
        if each.default_factory is not missing:
            default = each.default_factory
        parameters.append(kind(each.name, how, default=default, annotation=each.type))
    return inspect.Signature(parameters, __validate_parameters__=False)


def _called(self: Any) -> str:
    return f"{type(self).__qualname__}()"


def _listed(names: Any) -> str:
    return ", ".join(sorted(names))


@recursive_repr()
def _shown(self: Any) -> str:
    shown = [each.name for each in dataclasses.fields(self) if each.repr]
    return f"{type(self).__qualname__}({', '.join(f'{n}={getattr(self, n)!r}' for n in shown)})"


def _equality(compared: _Values) -> Callable[[Any, object], Any]:
    def equal(self: Any, other: object) -> Any:
        if other.__class__ is self.__class__:
            return compared(self) == compared(other)
        return NotImplemented

    return equal


def _is_frozen(self: Any, name: str) -> bool:
    """Whether its class is a record, or one of the records that it derives from has this field."""
    return "__dataclass_fields__" in vars(type(self)) or name in self.__dataclass_fields__


def _set(self: Any, name: str, value: Any) -> None:
    if _is_frozen(self, name):
        raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
    object.__setattr__(self, name, value)


def _delete(self: Any, name: str) -> None:
    if _is_frozen(self, name):
        raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
    object.__delattr__(self, name)


if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(cls=None, *, frozen=False, kw_only=False, eq=True, repr=True):
        """A decorator that takes what is written for ``dataclasses.dataclass``."""

        def decorated(cls):
            record(cls, frozen=frozen, kw_only=kw_only, eq=eq, repr=repr)
            return cls

        return decorated if cls is None else decorated(cls)

"""Records behave as the dataclasses that they are declared as."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from collections.abc import Callable
from dataclasses import InitVar as Given
from typing import Any, ClassVar

import pytest
from dnnstack.common import records

Decorate = Callable[..., Any]


def declared(decorate: Decorate, kw_only: bool) -> Any:
    """A class and one that derives from it."""

    @decorate(frozen=True, kw_only=kw_only)
    class Base:
        shared: ClassVar[int] = 5
        first: int
        second: str = "two"

        def __post_init__(self) -> None:
            object.__setattr__(self, "seen", self.first)

    @decorate(frozen=True, kw_only=kw_only)
    class Derived(Base):
        """With a docstring."""

        items: list[int] = dataclasses.field(default_factory=list, compare=False)
        hidden: int = dataclasses.field(default=1, repr=False)

    return Derived


@pytest.fixture(params=[False, True], ids=["places", "names"])
def pair(request):
    """The same record and dataclass, and whether they take names alone."""
    kw_only = request.param
    ours, theirs = (declared(each, kw_only) for each in (records.dataclass, dataclasses.dataclass))
    return ours, theirs, kw_only


def test_values_text_and_comparison(pair):
    given: list[dict[str, Any]] = [
        {"first": 1},
        {"second": "x", "first": 1},
        {"first": 1, "items": [3]},
        {"first": 1, "hidden": 2},
    ]
    ours, theirs = ([kind(**each) for each in given] for kind in pair[:2])
    assert [vars(each) for each in ours] == [vars(each) for each in theirs]
    assert [list(vars(each)) for each in ours] == [list(vars(each)) for each in theirs]
    assert [repr(each) for each in ours] == [repr(each) for each in theirs]
    compared = [[a == b for a in each for b in each] for each in (ours, theirs)]
    assert compared[0] == compared[1]
    assert [len(set(each)) for each in (ours, theirs)] == [3, 3]
    assert ours[0] != theirs[0]
    assert ours[0].items is not ours[1].items


def test_signature_fields_and_patterns(pair):
    ours, theirs, _ = pair
    names = [[each.name for each in dataclasses.fields(kind)] for kind in (ours, theirs)]
    assert names[0] == names[1]
    assert ours.__match_args__ == theirs.__match_args__
    signatures = [inspect.signature(kind).parameters.values() for kind in (ours, theirs)]
    for mine, other in zip(*signatures, strict=True):
        assert (mine.name, mine.kind, mine.annotation) == (other.name, other.kind, other.annotation)
        assert mine.default == other.default or mine.default is list


def test_wrong_arguments(pair):
    ours, theirs, kw_only = pair
    wrong: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
        ((), {}),
        ((), {"first": 1, "third": 3}),
        ((1, "x", [], 2, 3), {}),
        ((1,), {"first": 1}),
    ]
    for kind in (ours, theirs):
        for places, names in wrong:
            with pytest.raises(TypeError):
                kind(*places, **names)
    if not kw_only:
        assert vars(ours(1, "x", hidden=3)) == vars(theirs(1, "x", hidden=3))


def test_frozen(pair):
    for kind in pair[:2]:
        made = kind(first=1)
        with pytest.raises(dataclasses.FrozenInstanceError):
            made.first = 2
        with pytest.raises(dataclasses.FrozenInstanceError):
            made.other = 2
        with pytest.raises(dataclasses.FrozenInstanceError):
            del made.first
        plain = type("Plain", (kind,), {})(first=1)
        plain.other = 2
        del plain.other
        with pytest.raises(dataclasses.FrozenInstanceError):
            plain.first = 2


def test_replace_and_copy(pair):
    made = pair[0](first=1, items=[1])
    changed = dataclasses.replace(made, second="x")
    assert (changed.first, changed.second, changed.items) == (1, "x", [1])
    assert changed.seen == 1
    assert copy.deepcopy(made) == made
    assert dataclasses.asdict(made) == {"first": 1, "second": "two", "items": [1], "hidden": 1}


@records.dataclass(frozen=True)
class Kept:
    value: int

    def __repr__(self) -> str:
        return "own"

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 7


def test_own_methods_stay_and_pickling():
    made = pickle.loads(pickle.dumps(Kept(3)))
    assert (made.value, repr(made), hash(made), made == "anything") == (3, "own", 7, True)
    assert Kept.__doc__ == "Kept"


def changeable(decorate: Decorate, eq: bool) -> Any:
    @decorate(eq=eq, repr=eq)
    class Base:
        first: int
        second: str = "two"
        seen: int = dataclasses.field(default=0, init=False)
        items: list[int] = dataclasses.field(default_factory=list, init=False)

    @decorate(eq=eq, repr=eq, kw_only=True)
    class Derived(Base):
        third: float = 1.5

        def __post_init__(self) -> None:
            self.after = self.first

    return Derived


@pytest.mark.parametrize("eq", [True, False])
def test_one_that_may_change(eq):
    ours, theirs = (changeable(each, eq) for each in (records.dataclass, dataclasses.dataclass))
    made, other = (kind(3, third=2.5) for kind in (ours, theirs))
    assert vars(made) == vars(other)
    assert made.seen == other.seen == 0
    made.first = other.first = 4
    made.items.append(1)
    del made.second
    assert (made.first, made.second, made.items) == (4, "two", [1])
    assert ours(3).items == []
    assert (ours(3) == ours(3)) == (theirs(3) == theirs(3)) == eq
    assert (ours.__hash__ is None) == (theirs.__hash__ is None) == eq
    assert repr(ours(3)).startswith("changeable.<locals>.Derived(first=3" if eq else "<")
    assert dataclasses.replace(ours(3), third=0.5).third == 0.5
    names = [list(inspect.signature(kind).parameters) for kind in (ours, theirs)]
    assert names[0] == names[1] == ["first", "second", "third"]
    for kind in (ours, theirs):
        with pytest.raises(TypeError):
            kind(3, seen=1)


def test_a_dataclass_may_derive_from_one_that_may_change():
    for eq in (True, False):

        @dataclasses.dataclass(eq=eq)
        class Further(changeable(records.dataclass, eq)):  # type: ignore[misc]
            fourth: int = 4

        made = Further(1, third=2.0, fourth=7)
        assert (made.first, made.third, made.fourth, made.after) == (1, 2.0, 7, 1)


def test_frozen_and_changeable_ones_do_not_mix():
    with pytest.raises(TypeError, match="Thawed and Kept: both are frozen, or none"):
        records.dataclass(type("Thawed", (Kept,), {}))
    base = changeable(records.dataclass, True)
    with pytest.raises(TypeError, match="both are frozen, or none"):
        records.dataclass(frozen=True)(type("Frozen", (base,), {}))


def with_start(decorate: Decorate) -> tuple[Any, Any]:
    @decorate(eq=False)
    class Base:
        start: Given[int]
        doubled: int = 0

        def __post_init__(self, start: int) -> None:
            self.doubled = 2 * start

    @decorate(eq=False, kw_only=True)
    class Derived(Base):
        more: int = 1

    return Base, Derived


def test_values_for_the_start_alone():
    ours, theirs = with_start(records.dataclass), with_start(dataclasses.dataclass)
    for base, derived in (ours, theirs):
        assert vars(base(3)) == {"doubled": 6}
        assert vars(derived(3, more=2)) == {"doubled": 6, "more": 2}
        with pytest.raises(TypeError):
            base()
    names = [list(inspect.signature(kind).parameters) for kind in (ours[1], theirs[1])]
    assert names[0] == names[1]


def test_a_frozen_dataclass_may_derive_from_a_record():
    @dataclasses.dataclass(frozen=True)
    class Derived(Kept):
        other: int = 2

    @records.dataclass(frozen=True)
    class Record(Kept):
        other: int = 2

    for kind in (Derived, Record):
        assert vars(kind(1)) == {"value": 1, "other": 2}
        with pytest.raises(dataclasses.FrozenInstanceError):
            kind(1).other = 3  # type: ignore[misc]
    with pytest.raises(TypeError, match="non-frozen"):
        dataclasses.dataclass(type("Thawed", (Kept,), {}))

"""Records behave as the frozen dataclasses that they are declared as."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from collections.abc import Callable
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
def pair(request: pytest.FixtureRequest) -> tuple[Any, Any, bool]:
    """The same record and dataclass, and whether they take names alone."""
    kw_only = request.param
    ours, theirs = (declared(each, kw_only) for each in (records.dataclass, dataclasses.dataclass))
    return ours, theirs, kw_only


def test_values_text_and_comparison(pair: tuple[Any, Any, bool]) -> None:
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


def test_signature_fields_and_patterns(pair: tuple[Any, Any, bool]) -> None:
    ours, theirs, _ = pair
    names = [[each.name for each in dataclasses.fields(kind)] for kind in (ours, theirs)]
    assert names[0] == names[1]
    assert ours.__match_args__ == theirs.__match_args__
    signatures = [inspect.signature(kind).parameters.values() for kind in (ours, theirs)]
    for mine, other in zip(*signatures, strict=True):
        assert (mine.name, mine.kind, mine.annotation) == (other.name, other.kind, other.annotation)
        assert mine.default == other.default or mine.default is list


def test_wrong_arguments(pair: tuple[Any, Any, bool]) -> None:
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


def test_frozen(pair: tuple[Any, Any, bool]) -> None:
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


def test_replace_and_copy(pair: tuple[Any, Any, bool]) -> None:
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


def test_own_methods_stay_and_pickling() -> None:
    made = pickle.loads(pickle.dumps(Kept(3)))
    assert (made.value, repr(made), hash(made), made == "anything") == (3, "own", 7, True)
    assert Kept.__doc__ == "Kept"


def test_a_record_is_frozen() -> None:
    with pytest.raises(TypeError, match="frozen"):
        records.dataclass(frozen=False)


def test_a_frozen_dataclass_may_derive_from_a_record() -> None:
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

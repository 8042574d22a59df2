"""What costs much is named by what there is, and left out where it should be."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from .conftest import pytest_collection_modifyitems
from .support import costly


def _is_there(name: str) -> bool:
    file, _, function = name.partition("::")
    path = costly.TESTS / file
    return path.exists() and (not function or f"def {function}(" in path.read_text("utf-8"))


def test_all_that_is_named_is_there() -> None:
    names = costly.SLOW | costly.DRAWN | costly.LONG | costly.BY_TURNS
    assert [name for name in sorted(names) if not _is_there(name)] == []
    assert not _is_there("test_costly.py::test_that_is_gone")
    assert not _is_there("test_gone.py")


class Item:
    """A test as pytest has collected it."""

    def __init__(self, file: str, case: str = "", **parameters: int) -> None:
        self.path: Path = costly.TESTS / file
        self.originalname = "test_some"
        self.name = f"test_some{case}"
        self.callspec = SimpleNamespace(params=parameters)
        self.marks: list[str] = []

    def add_marker(self, name: str) -> None:
        self.marks.append(name)

    def get_closest_marker(self, name: str) -> str | None:
        return name if name in self.marks else None


@pytest.mark.parametrize("long", [False, True])
def test_what_is_marked_and_left_out(monkeypatch: pytest.MonkeyPatch, long: bool) -> None:
    monkeypatch.setattr(costly, "SLOW", {"a.py", "some.py::test_some"})
    monkeypatch.setattr(costly, "DRAWN", {"b.py"})
    monkeypatch.setattr(costly, "LONG", {"c.py"})
    items: list[Any] = [
        *(Item("a.py", seed=1), Item("b.py", seed=0), Item("b.py", seed=2), Item("b.py")),
        *(Item("c.py"), Item("d.py", seed=1), Item("some.py"), Item("other/some.py")),
    ]
    every, gone = list(items), []
    hook = SimpleNamespace(pytest_deselected=lambda items: gone.extend(items))
    config: Any = SimpleNamespace(option=SimpleNamespace(long=long, turn=None), hook=hook)
    pytest_collection_modifyitems(config, items)
    most = ["slow", "long"]
    wanted = [["slow"], ["slow"], most, ["slow"], most, [], ["slow"], []]
    assert [item.marks for item in every] == wanted
    assert gone == ([] if long else [every[2], every[4]])
    assert items == [item for item in every if item not in gone]


@pytest.mark.parametrize(("count", "quick"), [(23, {*range(23)}), (24, {2, 13, 22})])
def test_some_of_many_cases_are_quick(count: int, quick: set[int]) -> None:
    items: list[Any] = [Item("a.py", f"[{number}]") for number in range(count)]
    # Those of another file are no further ones.
    slow = [item.name for item, marks in costly.marks([*items, Item("b.py", "[0]")])]
    assert slow == [f"test_some[{number}]" for number in range(count) if number not in quick]


def test_each_case_has_one_turn_in_three(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(costly, "BY_TURNS", {"a.py", "b.py::test_some"})
    files, made = ("a.py", "b.py", "c.py"), []
    hook = SimpleNamespace(pytest_deselected=lambda items: None)
    for turn in (7, 8, 9):
        items: list[Any] = [Item(file, f"[{number}]") for file in files for number in range(30)]
        config: Any = SimpleNamespace(option=SimpleNamespace(long=True, turn=turn), hook=hook)
        pytest_collection_modifyitems(config, items)
        made.append([(item.path.name, item.name) for item in items])
    for file in files:
        shares = [{name for where, name in each if where == file} for each in made]
        assert len({name for share in shares for name in share}) == 30
        assert [5 < len(share) < 15 for share in shares] == [file != "c.py"] * 3

"""What costs much is named by what there is, and left out where it should be."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from .conftest import pytest_collection_modifyitems
from .support import costly


@pytest.mark.parametrize("name", sorted(costly.SLOW | costly.DRAWN | costly.LONG))
def test_it_is_there(name: str) -> None:
    file, _, function = name.partition("::")
    text = (costly.TESTS / file).read_text("utf-8")
    assert not function or f"def {function}(" in text


class Item:
    """A test as pytest has collected it."""

    def __init__(self, file: str, **parameters: int) -> None:
        self.path: Path = costly.TESTS / file
        self.name = self.originalname = "test_some"
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
    config: Any = SimpleNamespace(option=SimpleNamespace(long=long), hook=hook)
    pytest_collection_modifyitems(config, items)
    most = ["slow", "long"]
    wanted = [["slow"], ["slow"], most, ["slow"], most, [], ["slow"], []]
    assert [item.marks for item in every] == wanted
    assert gone == ([] if long else [every[2], every[4]])
    assert items == [item for item in every if item not in gone]

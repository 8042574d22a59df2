"""Kinds that are found by looking through a folder."""

from __future__ import annotations

from pathlib import Path

import pytest
from dnnstack.common.options import kinds_in

MODULE = """
from collections.abc import Sequence

class Base: ...

Alias = Sequence[int]

class Own(Base):
    kind = "{kind}"

class Without(Base): ...
"""


def package(folder: Path, monkeypatch: pytest.MonkeyPatch, **kinds: str) -> str:
    name = f"made_{'_'.join(kinds.values())}"
    (folder / name).mkdir()
    (folder / name / "__init__.py").touch()
    for module, kind in kinds.items():
        (folder / name / f"{module}.py").write_text(MODULE.format(kind=kind), encoding="utf-8")
    monkeypatch.syspath_prepend(str(folder))
    return name


def test_kinds_come_in_the_order_of_their_modules(tmp_path, monkeypatch):
    name = package(tmp_path, monkeypatch, b="first", a="second")
    assert list(kinds_in(name, object)) == ["second", "first"]


def test_two_modules_cannot_define_the_same_kind(tmp_path, monkeypatch):
    name = package(tmp_path, monkeypatch, a="same", b="same")
    with pytest.raises(ValueError, match=r"\.b: made_same_same\.a defines 'same' too"):
        kinds_in(name, object)

"""Kinds that are found by looking through a folder, and options in several forms."""

from __future__ import annotations

from pathlib import Path

import pytest
from dnnstack.common.options import LARGEST, OptionError, kinds_in, sides

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


@pytest.mark.parametrize("minimum", [0, 1])
def test_a_number_stands_for_both_sides(minimum: int) -> None:
    form = sides(minimum, ("same", "valid"))
    assert form.read is not None
    assert form.write is not None
    assert form.read(minimum) == (minimum, minimum)
    assert form.read([minimum, LARGEST]) == (minimum, LARGEST)
    assert (form.read("same"), form.read("valid")) == ("same", (0, 0))
    assert (form.write((2, 2)), form.write((2, 3)), form.write("same")) == (2, [2, 3], "same")
    for wrong in (minimum - 1, [minimum, minimum - 1], LARGEST + 1, [1], [1, 1, 1], 1.5, "full"):
        with pytest.raises(OptionError):
            form.read(wrong)


def test_of_a_sequence_it_is_one_number() -> None:
    form = sides(1, ("same", "valid"), single=True)
    assert form.read is not None
    assert [form.read(each) for each in (1, LARGEST, "same", "valid")] == [1, LARGEST, "same", 0]
    for wrong in (0, [1, 1], LARGEST + 1, 1.5, "full"):
        with pytest.raises(OptionError):
            form.read(wrong)


def test_a_border_is_on_one_side_at_least() -> None:
    form = sides(0, some=True)
    assert form.read is not None
    assert [form.read(each) for each in (1, [1, 0], [0, 1])] == [(1, 1), (1, 0), (0, 1)]
    for wrong in (0, [0, 0], (0, 0)):
        with pytest.raises(OptionError, match="at least one side"):
            form.read(wrong)

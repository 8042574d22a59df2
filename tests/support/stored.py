"""Texts that lie in files beside the tests: configs, and tables of what is given and answered."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

ANSWER = "> "


def beside(test: str, name: str) -> str:
    """The text of the file ``name`` beside the test's own."""
    return Path(test).with_name(name).read_text("utf-8")


def cases(test: str, name: str) -> Any:
    """What has this name in the file ``*_cases.yaml`` that is called as the test's own file."""
    file = Path(test)
    stem = file.stem.removeprefix("test_")
    return yaml.safe_load(file.with_name(f"{stem}_cases.yaml").read_text("utf-8"))[name]


def tuples(test: str, name: str) -> Any:
    """The same, with tuples in the place of lists."""
    return _frozen(cases(test, name))


def _frozen(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _frozen(each) for key, each in value.items()}
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


def stored(test: str, name: str) -> list[Any]:
    """The cases ``(given, answer)`` in the file ``name`` beside the test's own, to parametrize.

    Empty lines part them; the lines of an answer begin with "> ".
    """
    cases = []
    for block in beside(test, name).rstrip("\n").split("\n\n"):
        given, *answer = block.split(f"\n{ANSWER}")
        assert answer, f"{name}: no answer to {given!r}"
        assert f"\n{given}\n".find(f"\n{ANSWER}") < 0, f"{name}: nothing is given: {block!r}"
        assert "\n" not in "".join(answer), f"{name}: what follows the answer to {given!r}?"
        cases.append(pytest.param(given, "\n".join(answer), id=given))
    return cases
